//! idle_cpu: CPU used by a runtime that has nothing to do.

use std::thread;
use std::time::Duration;

use super::ms;
use crate::contract::blocking::{Gate as _, Tasks};
use crate::reading::{Figures, Outcome};
use crate::sys::{self, Who};

pub const N_PARKED: usize = 100;
pub const LENGTH: Duration = Duration::from_secs(5);
/// Spinners and monitors may take this long to notice that nothing happens.
const SETTLE: Duration = Duration::from_millis(500);

/// Watches the process from the main thread, which sleeps and costs nothing.
///
/// The idle runtime, started on another thread, is left running: the process ends next.
pub fn watch(start_idle_runtime: impl FnOnce() + Send + 'static) -> Outcome {
    thread::spawn(start_idle_runtime);
    thread::sleep(SETTLE);
    let before = sys::cpu_time(Who::Myself);
    thread::sleep(LENGTH);
    Ok(Figures::one(ms(sys::cpu_time(Who::Myself) - before)))
}

pub fn blocking<R: Tasks>(procs: usize) -> Outcome {
    watch(move || {
        R::run(procs, || {
            let gate = R::Gate::new();
            for _ in 0..N_PARKED {
                let gate = gate.clone();
                R::spawn(move || gate.wait());
            }
            gate.wait();
        });
    })
}

#[cfg(any(feature = "peer-tokio", feature = "peer-smol"))]
pub fn futures<R: crate::contract::futures::Tasks>(procs: usize) -> Outcome {
    use crate::contract::futures::Gate as _;

    watch(move || {
        R::run(procs, async {
            let gate = R::Gate::new();
            for _ in 0..N_PARKED {
                let gate = gate.clone();
                R::spawn(async move { gate.wait(|| ()).await });
            }
            gate.wait(|| ()).await;
        });
    })
}
