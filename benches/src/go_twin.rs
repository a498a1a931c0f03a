//! The Go twin: found, built once per run, measured like any other peer.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A Go twin ready to run.
#[derive(Clone, Debug)]
pub struct GoTwin {
    pub program: PathBuf,
    pub hello: PathBuf,
    pub version: String,
}

impl GoTwin {
    /// Builds the twin from `go/` into `out_dir`.
    ///
    /// # Errors
    /// Why there is no twin: no Go tool, or it does not build.
    pub fn build(out_dir: &Path) -> Result<Self, String> {
        let tool = std::env::var_os("GO").unwrap_or_else(|| OsString::from("go"));
        let version = tool_version(&tool)?;
        let (program, hello) = (out_dir.join("go-twin"), out_dir.join("go-hello"));
        compile(&tool, ".", &program)?;
        compile(&tool, "./hello", &hello)?;
        Ok(Self { program, hello, version })
    }
}

fn tool_version(tool: &OsString) -> Result<String, String> {
    let output = Command::new(tool)
        .arg("version")
        .output()
        .map_err(|e| format!("no Go tool ({}: {e}); set GO or PATH", tool.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.split_whitespace()
        .nth(2)
        .map(str::to_owned)
        .ok_or_else(|| format!("{} is not a Go tool", tool.display()))
}

fn compile(tool: &OsString, package: &str, program: &Path) -> Result<(), String> {
    let output = Command::new(tool)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("go"))
        .env("GOTOOLCHAIN", "local")
        // Stripped, as binary_size needs it; it changes nothing else.
        .args(["build", "-ldflags=-s -w", "-o"])
        .arg(program)
        .arg(package)
        .output()
        .map_err(|e| format!("cannot start {}: {e}", tool.display()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("the Go twin does not build: {}", said.trim()))
}
