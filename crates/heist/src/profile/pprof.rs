//! pprof's format: one message of protocol buffers, written by hand.
//!
//! The numbers are those of `profile.proto` in github.com/google/pprof.

use super::{Profile, Sample};
use crate::traceback::symbols::{self, Function, Functions, Side};
use std::collections::HashMap;

/// A message that is being written.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// A number; zero is the default and not written.
    fn number(&mut self, field: u64, value: u64) {
        if value != 0 {
            self.varint(field << 3);
            self.varint(value);
        }
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// Numbers in one piece.
    fn packed(&mut self, field: u64, values: impl IntoIterator<Item = u64>) {
        let mut packed = Self::default();
        values.into_iter().for_each(|value| packed.varint(value));
        self.bytes(field, &packed.0);
    }

    fn message(&mut self, field: u64, build: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        build(&mut inner);
        self.bytes(field, &inner.0);
    }
}

/// The tables of a profile.
struct Tables {
    strings: HashMap<String, u64>,
    /// By name and file.
    functions: HashMap<(u64, u64), u64>,
    /// By address, and which of its functions are shown.
    locations: HashMap<(usize, Vec<usize>), u64>,
    out: Message,
}

impl Tables {
    fn string(&mut self, text: &str) -> u64 {
        if let Some(&known) = self.strings.get(text) {
            return known;
        }
        let id = self.strings.len() as u64;
        self.strings.insert(text.to_owned(), id);
        id
    }

    fn function(&mut self, function: &Function) -> u64 {
        let name = self.string(&function.name);
        let file = self.string(function.file.as_deref().unwrap_or(""));
        let next = self.functions.len() as u64 + 1;
        let id = *self.functions.entry((name, file)).or_insert(next);
        if id == next {
            self.out.message(5, |out| {
                out.number(1, id);
                out.number(2, name);
                out.number(3, name);
                out.number(4, file);
            });
        }
        id
    }

    /// A location with some of the functions at its address.
    fn location(&mut self, address: usize, functions: &Functions, shown: Vec<usize>) -> u64 {
        let next = self.locations.len() as u64 + 1;
        let ids: Vec<_> = shown
            .iter()
            .map(|&nth| (self.function(&functions[nth]), functions[nth].line))
            .collect();
        let id = *self.locations.entry((address, shown)).or_insert(next);
        if id == next {
            self.out.message(4, |out| {
                out.number(1, id);
                out.number(3, address as u64);
                for (function, line) in ids {
                    out.message(4, |out| {
                        out.number(1, function);
                        out.number(2, line.into());
                    });
                }
            });
        }
        id
    }

    fn sample(&mut self, sample: &Sample, hides_runtime: bool) {
        let locations: Vec<u64> = lines(&sample.frames, hides_runtime)
            .into_iter()
            .map(|(address, functions, shown)| self.location(address, &functions, shown))
            .collect();
        let labels: Vec<_> = sample
            .labels
            .iter()
            .map(|(key, value)| (self.string(key), self.string(value)))
            .collect();
        self.out.message(2, |out| {
            out.packed(1, locations);
            out.packed(2, sample.values.iter().copied());
            for (key, value) in labels {
                out.message(3, |out| {
                    out.number(1, key);
                    out.number(2, value);
                });
            }
        });
    }
}

/// The addresses of a stack, each with the functions that are shown.
pub(super) fn lines(frames: &[usize], hides_runtime: bool) -> Vec<(usize, Functions, Vec<usize>)> {
    let found: Vec<_> = frames.iter().map(|&address| symbols::at(address)).collect();
    let all = || {
        let found = found.iter().enumerate();
        found.flat_map(|(n, functions)| (0..functions.len()).map(move |nth| (n, nth)))
    };
    let side = |&(n, nth): &(usize, usize)| -> Side { found[n][nth].side };
    let shown = if hides_runtime { symbols::shown(all().collect(), side) } else { all().collect() };
    let by_frame = shown.chunk_by(|a, b| a.0 == b.0);
    by_frame
        .map(|of_frame| {
            let n = of_frame[0].0;
            let shown = of_frame.iter().map(|&(_, nth)| nth).collect();
            (frames[n], functions_of(&found, n), shown)
        })
        .collect()
}

fn functions_of(found: &[Functions], n: usize) -> Functions {
    Functions::clone(&found[n])
}

/// The whole profile.
pub(super) fn encode(profile: &Profile) -> Vec<u8> {
    let mut tables = Tables {
        strings: HashMap::from([(String::new(), 0)]),
        functions: HashMap::new(),
        locations: HashMap::new(),
        out: Message::default(),
    };
    for unit in &profile.units {
        let (name, unit) = (tables.string(unit.name), tables.string(unit.unit));
        tables.out.message(1, |out| {
            out.number(1, name);
            out.number(2, unit);
        });
    }
    for sample in &profile.samples {
        tables.sample(sample, profile.hides_runtime);
    }
    let since_epoch = profile.taken.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    tables.out.number(9, since_epoch.as_nanos() as u64);
    tables.out.number(10, profile.duration.as_nanos() as u64);
    if let Some((unit, period)) = profile.period {
        let (name, unit) = (tables.string(unit.name), tables.string(unit.unit));
        tables.out.message(11, |out| {
            out.number(1, name);
            out.number(2, unit);
        });
        tables.out.number(12, period);
    }
    let mut strings: Vec<_> = tables.strings.iter().collect();
    strings.sort_by_key(|(_, id)| **id);
    for (text, _) in strings {
        tables.out.bytes(6, text.as_bytes());
    }
    tables.out.0
}
