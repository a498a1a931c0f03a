//! binary_size: the hello programs, built and stripped once per run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::go_twin::GoTwin;
use crate::peers::{Kind, Peer};

/// Stripped sizes in KiB by peer, or why a size is missing. A peer without a program is absent.
pub type Sizes = BTreeMap<&'static str, Result<f64, String>>;

/// Why a peer is absent.
pub const NO_PROGRAM: &str = "a channel, not a runtime";

/// A program in `src/bin`, and the feature that it needs.
#[derive(Debug)]
struct Hello {
    peer: &'static str,
    program: &'static str,
    feature: Option<&'static str>,
}

const fn hello(peer: &'static str, program: &'static str, feature: Option<&'static str>) -> Hello {
    Hello { peer, program, feature }
}

static HELLOS: &[Hello] = &[
    hello("heist", "hello_heist", None),
    hello("tokio", "hello_tokio", Some("peer-tokio")),
    hello("smol", "hello_smol", Some("peer-smol")),
    hello("may", "hello_may", Some("peer-may")),
    hello("rayon", "hello_rayon", Some("peer-rayon")),
    hello("go-lib", "hello_go_lib", Some("peer-go-lib")),
    hello("threads", "hello_threads", None),
];

/// Builds the needed programs and measures them; `out_dir` is the folder of this program.
pub fn sizes(peers: &[&'static Peer], go: Option<&GoTwin>, out_dir: &Path) -> Sizes {
    let hellos = hellos_of(peers);
    let mut sizes = Sizes::new();
    if !hellos.is_empty() {
        let built = build(&hellos, out_dir);
        let size = |hello: &Hello| kib(&strip(&built.clone()?.join(hello.program))?);
        sizes.extend(hellos.iter().map(|hello| (hello.peer, size(hello))));
    }
    if let (Some(twin), Some(peer)) = (go, peers.iter().find(|p| matches!(p.kind, Kind::Go))) {
        sizes.insert(peer.name, kib(&twin.hello));
    }
    sizes
}

fn hellos_of(peers: &[&Peer]) -> Vec<&'static Hello> {
    HELLOS.iter().filter(|hello| peers.iter().any(|peer| peer.name == hello.peer)).collect()
}

/// Builds the hello programs and returns the directory they are in.
fn build(hellos: &[&Hello], out_dir: &Path) -> Result<PathBuf, String> {
    let target_dir = out_dir.parent().ok_or("this program is not in a target directory")?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    eprintln!(
        "building {} hello programs for binary_size, which takes a while at first",
        hellos.len()
    );
    let output = Command::new(&cargo)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["build", "--release", "--package", "heist-bench"])
        .args(chosen(hellos))
        .arg("--target-dir")
        // In its own directory: a build with other features must not replace the running program.
        .arg(target_dir.join("hello"))
        .output()
        .map_err(|e| format!("cannot start {}: {e}", cargo.display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("the hello programs do not build: {}", said.trim()));
    }
    Ok(target_dir.join("hello").join("release"))
}

/// The arguments by which cargo builds these and not the benchmark.
fn chosen(hellos: &[&Hello]) -> Vec<&'static str> {
    let programs = hellos.iter().flat_map(|hello| ["--bin", hello.program]);
    let features = hellos.iter().filter_map(|hello| hello.feature);
    programs.chain(features.flat_map(|feature| ["--features", feature])).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers;

    #[test]
    fn only_the_programs_of_the_chosen_peers_are_built() {
        let peers = ["go", "heist", "tokio", "kanal"].map(|name| peers::peer(name).unwrap());
        let arguments = chosen(&hellos_of(&peers));
        assert_eq!(
            arguments,
            ["--bin", "hello_heist", "--bin", "hello_tokio", "--features", "peer-tokio"]
        );
    }

    #[test]
    fn every_program_is_there_and_has_a_peer() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bin");
        for hello in HELLOS {
            assert!(peers::peer(hello.peer).is_some(), "{hello:?}");
            assert!(folder.join(hello.program).with_extension("rs").exists(), "{hello:?}");
        }
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), HELLOS.len());
    }
}
