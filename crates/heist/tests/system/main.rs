//! The operating system: environment, limits, programs, signals, files.

#[path = "../harness/child.rs"]
mod child;
#[path = "../harness/limited.rs"]
mod limited;
#[path = "../harness/matrix/mod.rs"]
mod matrix;

mod bad_input;
mod default_procs;
mod limits;
mod odd_input;
mod privileges;
mod process;
mod refused;
mod server_limits;
mod signals;
mod std_like;
