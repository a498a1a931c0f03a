//! The Unix sockets at which programs are found by their process id.
//!
//! They are in a folder of the user, with mode 0700, each with mode 0600, and a peer of another
//! user is refused. A process that is killed leaves its socket behind; the next one that opens its
//! own removes it.

use super::{DebugServer, Options, listener};
use crate::runtime::Handle;
use crate::sys::{env, peer};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The folder of the sockets that `HEIST_DEBUG=socket` opens: `heist` in `$XDG_RUNTIME_DIR`, or
/// `heist-UID` in the folder for temporary files. A socket is called `PID.sock`, and `PID.2.sock`
/// and so on for further runtimes of the process.
///
/// # Examples
/// ```
/// let folder = heist::debug::socket_dir();
/// println!("{}", folder.join(format!("{}.sock", std::process::id())).display());
/// ```
#[must_use]
pub fn socket_dir() -> PathBuf {
    match env::var("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty()) {
        Some(dir) => Path::new(&dir).join("heist"),
        None => std::env::temp_dir().join(format!("heist-{}", peer::own_uid())),
    }
}

/// The most runtimes of a process that have a socket.
const PER_PROCESS: u32 = 64;

/// Serves a runtime at a socket in [`socket_dir`].
pub(super) fn serve(handle: &Handle) -> io::Result<DebugServer> {
    let dir = socket_dir();
    prepare(&dir)?;
    remove_stale(&dir);
    let pid = std::process::id();
    let mut number = 1;
    loop {
        let name = match number {
            1 => format!("{pid}.sock"),
            n => format!("{pid}.{n}.sock"),
        };
        match Options::new().serve_at_path(handle, dir.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && number < PER_PROCESS => {
                number += 1;
            }
            result => return result,
        }
    }
}

/// Makes the folder, or checks that it belongs to this user alone.
fn prepare(dir: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = fs::symlink_metadata(dir)?;
    if !found.is_dir() || found.uid() != peer::own_uid() || found.mode() & 0o077 != 0 {
        let why = format!("{} is not a folder that only this user can use", dir.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(())
}

/// Removes the sockets at which nothing listens any more.
fn remove_stale(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    let paths = entries.flatten().map(|entry| entry.path());
    let is_socket = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "sock");
    for path in listener::dead(paths.filter(is_socket)) {
        // Another process may have been faster.
        let _ = fs::remove_file(path);
    }
}
