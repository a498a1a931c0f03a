//! The row: one reading with its peer, repetition and surroundings, as the JSON file holds it.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub workload: String,
    pub peer: String,
    pub allocator: String,
    /// Absent when the peer cannot do it or the measurement failed.
    pub value: Option<f64>,
    pub unit: String,
    pub rep: usize,
    /// Where on an axis of `scale` it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub point: Option<Point>,
    /// CPU seconds of the measuring process and its children.
    pub own_cpu_s: f64,
    /// CPU seconds that all other processes used meanwhile.
    pub other_cpu_s: f64,
    pub wall_s: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The parameter that `scale` varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Axis {
    Procs,
    Tasks,
}

/// One place on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    pub axis: Axis,
    pub at: usize,
}

/// The data needed to judge the rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub cpu_model: String,
    pub n_cpus: usize,
    pub kernel: String,
    pub procs: usize,
    pub reps: usize,
    pub go_version: Option<String>,
}

/// One run: the file that `run --json` writes and `report` reads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunFile {
    /// Where it was read from, for messages.
    #[serde(skip)]
    pub name: String,
    pub machine: Machine,
    pub skipped: Vec<String>,
    pub rows: Vec<Row>,
}

impl RunFile {
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), String> {
        let text = serde_json::to_string_pretty(self).map_err(|e| e.to_string())?;
        fs::write(path, text + "\n").map_err(|e| format!("cannot write {}: {e}", path.display()))
    }

    /// # Errors
    /// The file cannot be read or is not a run.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text =
            fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        let file: Self = serde_json::from_str(&text)
            .map_err(|e| format!("{} is not a file of `run --json`: {e}", path.display()))?;
        Ok(Self { name: path.display().to_string(), ..file })
    }
}

impl Machine {
    pub fn here(procs: usize, reps: usize, go_version: Option<String>) -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let cpu_model = cpuinfo
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
            .map_or_else(|| "unknown".to_owned(), |(_, model)| model.trim().to_owned());
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let n_cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Self { cpu_model, n_cpus, kernel: kernel.trim().to_owned(), procs, reps, go_version }
    }

    /// Why figures of the two must not stand side by side, if so. Repetitions may differ, and
    /// one of them may lack Go.
    pub fn difference(&self, other: &Self) -> Option<String> {
        let mut facts = vec![
            ("CPU", self.cpu_model.clone(), other.cpu_model.clone()),
            ("number of CPUs", self.n_cpus.to_string(), other.n_cpus.to_string()),
            ("kernel", self.kernel.clone(), other.kernel.clone()),
            ("number of procs", self.procs.to_string(), other.procs.to_string()),
        ];
        if let (Some(own), Some(others)) = (&self.go_version, &other.go_version) {
            facts.push(("Go", own.clone(), others.clone()));
        }
        let different = facts.into_iter().find(|(_, own, others)| own != others);
        different.map(|(what, own, others)| format!("another {what} ({own}, {others})"))
    }
}

#[cfg(test)]
pub fn sample(workload: &str, peer: &str, rep: usize, value: f64) -> Row {
    Row {
        workload: workload.to_owned(),
        peer: peer.to_owned(),
        allocator: "system".to_owned(),
        value: Some(value),
        unit: "ns".to_owned(),
        rep,
        point: None,
        own_cpu_s: 1.0,
        other_cpu_s: 0.0,
        wall_s: 1.0,
        note: None,
        error: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_keeps_its_shape_in_json() {
        let row = sample("yield", "go", 2, 109.0);
        let text = serde_json::to_string(&row).unwrap();
        assert!(text.contains(r#""workload":"yield","peer":"go""#), "{text}");
        assert!(!text.contains("error"), "absent fields are left out: {text}");
        assert_eq!(serde_json::from_str::<Row>(&text).unwrap(), row);
    }

    #[test]
    fn a_row_without_a_value_is_legal() {
        let text = r#"{"workload":"select","peer":"kanal","allocator":"system","value":null,
            "unit":"ns/msg","rep":0,"own_cpu_s":0.1,"other_cpu_s":0.0,"wall_s":0.1,
            "note":"no select"}"#;
        let row: Row = serde_json::from_str(text).unwrap();
        assert_eq!((row.value, row.note.as_deref()), (None, Some("no select")));
    }

    #[test]
    fn machines_differ_by_what_bends_figures() {
        let ours = Machine { procs: 2, reps: 5, ..Machine::default() };
        let more_often = Machine { reps: 3, go_version: Some("go1.24".to_owned()), ..ours.clone() };
        assert_eq!(ours.difference(&more_often), None);
        let wider = Machine { procs: 4, ..ours.clone() };
        assert_eq!(ours.difference(&wider).unwrap(), "another number of procs (2, 4)");
        let newer = Machine { go_version: Some("go1.25".to_owned()), ..more_often.clone() };
        assert_eq!(more_often.difference(&newer).unwrap(), "another Go (go1.24, go1.25)");
    }

    #[test]
    fn a_stranger_file_is_refused_by_name() {
        let path = std::env::temp_dir().join(format!("heist-bench-{}.json", std::process::id()));
        fs::write(&path, "[1, 2]").unwrap();
        let message = RunFile::read(&path).unwrap_err();
        fs::remove_file(&path).unwrap();
        assert!(message.contains("not a file of `run --json`"), "{message}");
    }
}
