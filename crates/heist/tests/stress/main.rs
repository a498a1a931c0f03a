//! Long random work. `HEIST_STRESS_SECS` says for how long.

#[path = "../harness/matrix/mod.rs"]
mod matrix;
#[path = "../harness/stall_load/mod.rs"]
mod stall_load;
#[path = "../harness/turns.rs"]
mod turns;

mod mixture;
mod stalls;
