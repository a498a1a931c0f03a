//! Profiles as text, in the form of Go's `debug=1`.
//!
//! GO: pprof.go printCountProfile, writeProfileInternal.

use super::{Profile, pprof};
use crate::traceback::on_large_stack;
use std::fmt::{self, Write as _};

/// The total, then for each stack its values, its addresses and its functions.
impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} profile: total {}", self.name, self.total())?;
        let stacks = on_large_stack(|| {
            let mut text = String::new();
            // Writing to a String does not fail.
            let _ = write_stacks(self, &mut text);
            text
        });
        f.write_str(&stacks)
    }
}

fn write_stacks(profile: &Profile, f: &mut String) -> fmt::Result {
    for sample in &profile.samples {
        let values: Vec<_> = sample.values.iter().map(u64::to_string).collect();
        write!(f, "{} @", values.join(" "))?;
        let lines = pprof::lines(&sample.frames, profile.hides_runtime);
        for (address, ..) in &lines {
            write!(f, " {address:#x}")?;
        }
        writeln!(f)?;
        if !sample.labels.is_empty() {
            let labels: Vec<_> =
                sample.labels.iter().map(|(key, value)| format!("{key:?}:{value:?}")).collect();
            writeln!(f, "# labels: {{{}}}", labels.join(", "))?;
        }
        for (address, functions, shown) in &lines {
            for &nth in shown {
                let function = &functions[nth];
                writeln!(f, "#\t{address:#x}\t{}\t{}", function.name, function.place())?;
            }
        }
        writeln!(f)?;
    }
    Ok(())
}
