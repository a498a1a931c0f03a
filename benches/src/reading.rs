//! The output of one measuring process: readings, printed as one JSON object per line.

use serde::{Deserialize, Serialize};

/// One figure, or the reason why there is none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    pub workload: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    pub unit: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The reason why a peer has no figure for a workload.
#[derive(Debug)]
pub struct Cannot(pub String);

pub fn cannot<T>(why: &str) -> Result<T, Cannot> {
    Err(Cannot(why.to_owned()))
}

/// The result of one workload: values in the order of the catalog's rows.
#[derive(Debug, Default)]
pub struct Figures {
    pub values: Vec<f64>,
    pub note: Option<String>,
}

impl Figures {
    pub fn one(value: f64) -> Self {
        Self { values: vec![value], note: None }
    }

    pub fn many(values: Vec<f64>) -> Self {
        Self { values, note: None }
    }

    /// Notes what is different about this peer's figure.
    pub fn with_note(mut self, note: Option<&str>) -> Self {
        self.note = note.map(str::to_owned);
        self
    }
}

pub type Outcome = Result<Figures, Cannot>;

/// Gives every row of the workload its value, or the note that replaces it.
pub fn readings(workload: &crate::catalog::Workload, outcome: Outcome) -> Vec<Reading> {
    let (values, note) = match outcome {
        Ok(figures) => {
            assert_eq!(figures.values.len(), workload.rows.len(), "{}", workload.name);
            (figures.values.into_iter().map(Some).collect(), figures.note)
        }
        Err(Cannot(why)) => (vec![None; workload.rows.len()], Some(why)),
    };
    let row = |(spec, value): (&crate::catalog::RowSpec, Option<f64>)| Reading {
        workload: spec.name.to_owned(),
        value,
        unit: spec.unit.to_owned(),
        note: note.clone(),
    };
    workload.rows.iter().zip(values).map(row).collect()
}

/// Parses the output of a measuring process; lines that are not JSON objects are ignored, because a
/// runtime under test may print too.
///
/// # Errors
/// A line that starts like a reading and is none.
pub fn parse(stdout: &str) -> Result<Vec<Reading>, String> {
    stdout
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).map_err(|e| format!("bad reading: {e}: {line}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::workload;

    #[test]
    fn readings_survive_the_pipe() {
        let sent = readings(workload("timers").unwrap(), Ok(Figures::many(vec![1.5, 2.5])));
        let text: String = sent.iter().map(|r| serde_json::to_string(r).unwrap() + "\n").collect();
        assert_eq!(parse(&text).unwrap(), sent);
        assert_eq!(sent[1].workload, "timers_cpu");
    }

    #[test]
    fn a_refusal_gives_every_row_the_note() {
        let rows = readings(workload("steal_hot").unwrap(), cannot("no stealing"));
        assert_eq!(rows.len(), 2);
        assert!(rows.iter().all(|r| r.value.is_none()));
        assert!(rows.iter().all(|r| r.note.as_deref() == Some("no stealing")));
    }

    #[test]
    fn chatter_is_ignored_but_broken_readings_are_not() {
        assert_eq!(parse("warming up\n").unwrap(), []);
        assert!(parse("{\"workload\": 3}\n").is_err());
    }
}
