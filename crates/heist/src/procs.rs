//! The number of goroutines that run at the same time, as the program reads and changes it.

use crate::current;
use crate::runtime::Handle;
use crate::sched::Sched;
use crate::sched::world;
use crate::sched::world::{Prepared, ProcsChoice, with_world_lock};
use heist_core::policy::PROCS_MAX;

/// How many goroutines of this runtime can run at the same time. Zero on a plain thread.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().procs(3).build() }.unwrap();
/// assert_eq!(rt.run(heist::procs), 3);
/// assert_eq!(heist::procs(), 0);
/// ```
#[doc(alias = "GOMAXPROCS")]
#[must_use]
pub fn procs() -> usize {
    current::enter().map_or(0, |rt| rt.sched().procs() as usize)
}

/// Changes how many goroutines of this runtime can run at the same time. Returns the previous
/// number. See [`Handle::set_procs`].
///
/// # Panics
/// On a plain thread; if `n` is 0 (use [`procs`] to read the number), more than the maximum, or not
/// more than the number of processors reserved for latency goroutines.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().procs(4).build() }.unwrap();
/// # rt.run(|| {
/// assert_eq!(heist::set_procs(2), 4);
/// assert_eq!(heist::procs(), 2);
/// # });
/// ```
#[doc(alias = "GOMAXPROCS")]
#[track_caller]
pub fn set_procs(n: usize) -> usize {
    current_handle("set_procs", "Handle::set_procs").set_procs(n)
}

/// Runs `f` with `n` processors and then restores the previous number, also if `f` panics.
///
/// Calls may be nested: each restores what it found. Two goroutines that do this at the same time
/// undo each other's setting: the number belongs to the runtime, not to the caller.
///
/// # Panics
/// As [`set_procs`], and if `f` panics, with its payload.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().procs(4).build() }.unwrap();
/// # rt.run(|| {
/// let inside = heist::with_procs(1, heist::procs);
/// assert_eq!((inside, heist::procs()), (1, 4));
/// # });
/// ```
#[track_caller]
pub fn with_procs<T>(n: usize, f: impl FnOnce() -> T) -> T {
    struct Restore {
        handle: Handle,
        before: (usize, ProcsChoice),
    }
    impl Drop for Restore {
        fn drop(&mut self) {
            let (n, choice) = self.before;
            change(self.handle.sched(), n, choice);
        }
    }
    let handle = current_handle("with_procs", "Handle::set_procs, before and after");
    let before = change(handle.sched(), n, ProcsChoice::Chosen);
    let _restore = Restore { handle, before };
    f()
}

#[track_caller]
fn current_handle(what: &str, instead: &str) -> Handle {
    match Handle::current() {
        Some(handle) => handle,
        None => panic!("heist::{what}: not on a goroutine; a plain thread uses {instead}"),
    }
}

/// Returns to the default number of processors, which follows the CPUs and the quota of the control
/// group again, whatever was set before. Returns the previous number. See
/// [`Handle::set_default_procs`].
///
/// # Panics
/// On a plain thread.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().procs(64).build() }.unwrap();
/// # rt.run(|| {
/// assert_eq!(heist::set_default_procs(), 64);
/// assert!(heist::procs() <= std::thread::available_parallelism().unwrap().get());
/// # });
/// ```
#[doc(alias = "SetDefaultGOMAXPROCS")]
#[track_caller]
pub fn set_default_procs() -> usize {
    current_handle("set_default_procs", "Handle::set_default_procs").set_default_procs()
}

/// Returns to the default number of any runtime, on any thread.
pub(crate) fn set_default_procs_of(sched: &Sched) -> usize {
    let n = world::default_procs(sched, &mut sched.config.procs_default.source());
    change(sched, n as usize, ProcsChoice::Default).0
}

/// Sets the number of processors of any runtime, on any thread.
#[track_caller]
pub(crate) fn set_procs_of(sched: &Sched, n: usize) -> usize {
    change(sched, n, ProcsChoice::Chosen).0
}

/// Changes the number of processors and whether it was chosen. Returns both previous values.
#[track_caller]
fn change(sched: &Sched, n: usize, choice: ProcsChoice) -> (usize, ProcsChoice) {
    assert!(
        n > 0,
        "heist::set_procs: 0 processors can run nothing; heist::procs() reads the number"
    );
    assert!(n <= PROCS_MAX as usize, "heist::set_procs: {n} is more than the maximum, {PROCS_MAX}");
    let reserved = sched.rest.idle().n_reserved();
    assert!(
        n > reserved as usize,
        "heist::set_procs: {reserved} processors are reserved for latency goroutines, so {n} would \
         leave none for the others"
    );
    let n = n as u32;
    let mut prepared = Prepared::new(sched, n);
    with_world_lock(sched, |caller, mut world_lock| {
        let before = std::mem::replace(&mut world_lock.choice, choice);
        (world::resize_procs(sched, n, &mut prepared, world_lock, caller) as usize, before)
    })
}
