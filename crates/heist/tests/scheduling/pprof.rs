//! Reads profiles: a reader of pprof's format that knows what these tests need, and Go's tool.

use std::collections::HashMap;
use std::io::Write;
use std::process::{Command, Stdio};

/// A sample: the names of its functions, the innermost first, its values and its labels.
#[derive(Debug)]
pub struct Sample {
    pub functions: Vec<String>,
    pub values: Vec<u64>,
    pub labels: HashMap<String, String>,
}

impl Sample {
    pub fn calls(&self, function: &str) -> bool {
        self.functions.iter().any(|name| name.ends_with(function))
    }
}

enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Field<'a> {
    fn number(&self) -> u64 {
        match self {
            Self::Number(number) => *number,
            Self::Bytes(_) => panic!("not a number"),
        }
    }

    fn bytes(&self) -> &'a [u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Number(_) => panic!("not bytes"),
        }
    }
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (&byte, rest) = bytes.split_first().expect("a whole number");
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    value
}

fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut fields = vec![];
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let field = match key & 7 {
            0 => Field::Number(varint(&mut bytes)),
            2 => {
                let len = varint(&mut bytes) as usize;
                let (field, rest) = bytes.split_at(len);
                bytes = rest;
                Field::Bytes(field)
            }
            wire => panic!("wire type {wire}"),
        };
        fields.push((key >> 3, field));
    }
    fields
}

fn packed(mut bytes: &[u8]) -> Vec<u64> {
    let mut values = vec![];
    while !bytes.is_empty() {
        values.push(varint(&mut bytes));
    }
    values
}

fn number_of(fields: &[(u64, Field<'_>)], wanted: u64) -> u64 {
    fields.iter().find(|(n, _)| *n == wanted).map_or(0, |(_, field)| field.number())
}

/// The samples of a profile.
pub fn read(profile: &[u8]) -> Vec<Sample> {
    let all = fields(profile);
    let of = |wanted: u64| all.iter().filter(move |(n, _)| *n == wanted).map(|(_, f)| f.bytes());
    let strings: Vec<_> = of(6).map(|text| String::from_utf8(text.to_vec()).unwrap()).collect();
    assert_eq!(strings[0], "");
    let string = |n: u64| strings[n as usize].clone();
    let functions: HashMap<u64, String> = of(5)
        .map(fields)
        .map(|function| (number_of(&function, 1), string(number_of(&function, 2))))
        .collect();
    let locations: HashMap<u64, Vec<String>> = of(4)
        .map(fields)
        .map(|location| {
            let lines = location.iter().filter(|(n, _)| *n == 4).map(|(_, line)| line.bytes());
            let names = lines.map(|line| functions[&number_of(&fields(line), 1)].clone());
            (number_of(&location, 1), names.collect())
        })
        .collect();
    let samples = of(2).map(|sample| {
        let sample = fields(sample);
        let all = |wanted: u64| sample.iter().filter(move |(n, _)| *n == wanted);
        let ids = all(1).flat_map(|(_, ids)| packed(ids.bytes()));
        let labels = all(3).map(|(_, label)| {
            let label = fields(label.bytes());
            (string(number_of(&label, 1)), string(number_of(&label, 2)))
        });
        Sample {
            functions: ids.flat_map(|id| locations[&id].clone()).collect(),
            values: all(2).flat_map(|(_, values)| packed(values.bytes())).collect(),
            labels: labels.collect(),
        }
    });
    samples.collect()
}

/// What `go tool pprof` says about a profile. None, with a message, if there is no Go.
pub fn top(profile: &[u8]) -> Option<String> {
    let go = std::env::var("GO").unwrap_or_else(|_| "go".to_owned());
    let known = Command::new(&go).args(["tool", "pprof", "-h"]).output();
    if !known.is_ok_and(|output| output.status.code().is_some_and(|code| code < 126)) {
        eprintln!("SKIPPED: no Go: the profile is not opened with `go tool pprof`");
        return None;
    }
    let path = std::env::temp_dir().join(format!("heist-{}.pprof", std::process::id()));
    std::fs::File::create(&path).unwrap().write_all(profile).unwrap();
    let output = Command::new(go)
        .env("GOTOOLCHAIN", "local")
        .args(["tool", "pprof", "-top", "-nodecount=1000"])
        .arg(&path)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    std::fs::remove_file(&path).unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    Some(out.into_owned())
}
