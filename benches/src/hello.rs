//! binary_size: the hello programs, built and stripped once per run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::go_twin::GoTwin;
use crate::peers::{Kind, Peer};

/// Stripped sizes in KiB by peer, or why there is none.
pub type Sizes = BTreeMap<&'static str, Result<f64, String>>;

/// The features of this build that bring a hello program with them.
const FEATURES: &[(&str, bool)] = &[
    ("peer-tokio", cfg!(feature = "peer-tokio")),
    ("peer-smol", cfg!(feature = "peer-smol")),
    ("peer-may", cfg!(feature = "peer-may")),
    ("peer-rayon", cfg!(feature = "peer-rayon")),
    ("peer-go-lib", cfg!(feature = "peer-go-lib")),
];

/// Builds what is needed and measures it; `out_dir` is where this program lies.
pub fn sizes(peers: &[&'static Peer], go: Option<&GoTwin>, out_dir: &Path) -> Sizes {
    let built = build(out_dir);
    let size = |peer: &Peer| match peer.kind {
        Kind::Go => kib(&go.ok_or("no Go twin")?.hello),
        _ => {
            let program = built.clone()?.join(format!("hello_{}", peer.name.replace('-', "_")));
            if !program.exists() {
                return Err("a channel, not a runtime".to_owned());
            }
            kib(&strip(&program)?)
        }
    };
    peers.iter().map(|peer| (peer.name, size(peer))).collect()
}

/// Builds the hello programs and returns the directory they are in.
fn build(out_dir: &Path) -> Result<PathBuf, String> {
    let target_dir = out_dir.parent().ok_or("this program lies in no target directory")?;
    let features: Vec<_> = FEATURES.iter().filter(|(_, on)| *on).map(|(name, _)| *name).collect();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(&cargo)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["build", "--release", "--package", "heist-bench", "--bins", "--features"])
        .arg(features.join(","))
        .arg("--target-dir")
        // A directory of its own: a build with other features must not replace the running
        // program.
        .arg(target_dir.join("hello"))
        .output()
        .map_err(|e| format!("cannot start {}: {e}", cargo.display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("the hello programs do not build: {}", said.trim()));
    }
    Ok(target_dir.join("hello").join("release"))
}

fn strip(program: &Path) -> Result<PathBuf, String> {
    let stripped = program.with_extension("stripped");
    let status = Command::new("strip")
        .arg("-o")
        .arg(&stripped)
        .arg(program)
        .status()
        .map_err(|e| format!("cannot start strip: {e}"))?;
    if status.success() { Ok(stripped) } else { Err(format!("strip: {status}")) }
}

fn kib(program: &Path) -> Result<f64, String> {
    let bytes = std::fs::metadata(program)
        .map_err(|e| format!("cannot read {}: {e}", program.display()))?
        .len();
    Ok(bytes as f64 / 1024.0)
}
