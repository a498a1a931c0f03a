//! Which goroutine runs where and when, and how the runtime reports it.

#[path = "../harness/child.rs"]
mod child;
#[path = "../harness/matrix/mod.rs"]
mod matrix;

mod allocation_rule;
mod classes;
mod cpu_classes;
mod debug_hostile;
mod debug_server;
mod debug_socket;
mod debugger;
mod dump;
mod fairness;
mod fork_join;
mod golden_order;
mod leaks;
mod many_procs;
mod metrics;
mod nodes;
mod park_versus_ready;
mod placement;
mod pprof;
mod procs;
mod profiles;
mod records;
mod schedtrace;
mod spinning;
mod trace;
mod trace_end;
mod trace_follow;
mod trace_stress;
mod trace_waits;
mod tracebacks;
mod watch;
mod watchdog;
