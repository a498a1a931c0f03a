//! A look inside the scheduler, for this project's own tests. Not part of the API.

mod allocator;

pub use allocator::CheckedAllocator;

use crate::current;
use crate::runtime::{Handle, Runtime};
use crate::sched::world;
use crate::sched::world::with_world_lock;
use crate::sys::lock::Lock;
use crate::sys::placed_thread;
use heist_core::lock_rank::Rank;

/// The state of a scheduler at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Processors.
    pub procs: u32,
    /// Idle processors.
    pub n_idle: u32,
    /// Threads that look for work.
    pub n_spinning: u32,
    /// Whether one more was requested.
    pub need_spinning: bool,
    /// Goroutines in the global queue, including the parts of it at the processors.
    pub global: u32,
    /// Goroutines in each processor's queue, `run_next` included.
    pub queued: Vec<u32>,
    /// Whether each processor is idle.
    pub idle: Vec<bool>,
}

/// Looks at a runtime from outside, without stopping it.
#[must_use]
pub fn sample(rt: &Runtime) -> Sample {
    let sched = rt.sched();
    Sample {
        procs: sched.procs(),
        n_idle: sched.rest.idle().count(),
        n_spinning: sched.rest.n_spinning(),
        need_spinning: sched.rest.wants_spinner(),
        global: sched.global_len().get() + sched.all_ps().map(|pp| pp.yielded.len()).sum::<u32>(),
        queued: sched.all_ps().map(|pp| pp.queue.len()).collect(),
        idle: sched.all_ps().map(|pp| sched.rest.idle().idle.contains(pp.id)).collect(),
    }
}

/// Runs `f` while the world of `rt` is stopped. None if the runtime has ended.
///
/// `f` must not allocate, free, panic or wait: goroutines may have been stopped inside the
/// allocator.
pub fn stop_the_world<T>(rt: &Handle, f: impl FnOnce() -> T) -> Option<T> {
    with_world_lock(rt.sched(), |caller, world_lock| {
        let world = world::stop_the_world(rt.sched(), world_lock, caller, world::Cause::Other)?;
        let result = f();
        drop(world);
        Some(result)
    })
}

/// Changes how many buffers the execution traces of a runtime may have.
pub fn limit_trace_buffers(n: u32) {
    crate::trace::recorder::limit_buffers(n);
}

/// Ends the process as the runtime does when it finds an error in itself.
pub fn throw() -> ! {
    heist_core::throw!("testing: this was asked for");
}

/// Restricts all threads of the process to CPU 0, or lets them use all CPUs again.
///
/// # Errors
/// If the threads cannot be listed.
pub fn restrict_to_one_cpu(to_one: bool) -> std::io::Result<()> {
    crate::sys::cpu::restrict(to_one)
}

/// How often the world of `rt` was stopped.
#[must_use]
pub fn n_stops(rt: &Handle) -> u64 {
    with_world_lock(rt.sched(), |_, world_lock| world_lock.n_stops)
}

/// The tick of the calling goroutine's processor.
#[must_use]
pub fn tick() -> Option<u32> {
    current::enter().map(|rt| rt.m().p().tick())
}

/// Sets the tick of the calling goroutine's processor, to choose the phase of the one-in-61 rule.
pub fn set_tick(tick: u32) {
    if let Some(rt) = current::enter() {
        rt.m().p().set_tick(tick);
    }
}

/// The numbers of the calling goroutine's thread and processor.
#[must_use]
pub fn m_and_p() -> Option<(u32, u32)> {
    current::enter().map(|rt| (rt.m().id, rt.m().p().id))
}

/// How many times the calling goroutine is bound to its thread.
///
/// # Panics
/// If the goroutine and its thread disagree on whether they are bound to each other.
#[must_use]
pub fn n_bindings() -> Option<u32> {
    let rt = current::enter()?;
    let (m, gp) = (rt.m(), rt.goroutine());
    let (tied, n) = (std::ptr::eq(gp.bound_m.get(), m), m.n_bindings.get());
    let agree = tied == std::ptr::eq(m.bound_g.get(), gp) && tied == (n > 0);
    drop(rt);
    assert!(agree, "{n} bindings, but tied is {tied}");
    Some(n)
}

/// Where the threads of a runtime are, one line each.
#[must_use]
pub fn threads(rt: &Runtime) -> String {
    let mut text = String::new();
    for m in rt.sched().threads.all_ms().iter() {
        let place = m.word.stamp().place();
        let attention = m.word.attention();
        let goroutine = m.current().map(|gp| gp.id.get());
        let line = format_args!(
            "M{} tid={} {place:?} attention={attention} p={} goroutine={goroutine:?}\n",
            m.id,
            m.tid(),
            m.has_p(),
        );
        // Writing to a String does not fail.
        let _ = std::fmt::Write::write_fmt(&mut text, line);
    }
    text
}

/// Breaks the rule that the runtime never allocates, in one of the places where the rule holds.
pub fn allocate_in(place: Place) {
    let allocate = || drop(std::hint::black_box(Box::new(1)));
    match place {
        Place::Runtime => {
            let rt = current::enter();
            allocate();
            drop(rt);
        }
        Place::Lock => {
            let lock = Lock::new(Rank::WaitQueue, ());
            let rt = current::enter();
            let guard = lock.lock();
            allocate();
            drop(guard);
            drop(rt);
        }
        Place::Sysmon => {
            let _strict = current::NoAllocation::begin();
            allocate();
        }
    }
}

/// The name of the calling thread, from the kernel. std has none for threads that it has not
/// started.
pub fn thread_name() -> String {
    (*placed_thread::name()).to_owned()
}

/// Recurses without end on the scheduler's own stack.
pub fn overflow_the_scheduler() {
    #[expect(unconditional_recursion, reason = "that is what it is for")]
    fn deeper(frame: [u64; 32]) -> u64 {
        let below = deeper(std::hint::black_box(frame.map(|n| n.wrapping_add(1))));
        std::hint::black_box(frame)[0] + below
    }
    unsafe fn commit(_: std::ptr::NonNull<crate::gmp::G>, _: *mut ()) -> bool {
        deeper([1; 32]) == 0
    }
    if let Some(rt) = current::enter() {
        let (reason, seal) = (crate::gmp::g::WaitReason::Sleep, crate::gmp::m::Seal::Sealed);
        // SAFETY: the function uses nothing but its stack.
        drop(unsafe {
            crate::sched::life::park::park(rt, reason, seal, commit, std::ptr::null_mut())
        });
    }
}

/// A place where the allocator may not be used.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// On a goroutine that has entered the runtime.
    Runtime,
    /// While holding a lock of the runtime.
    Lock,
    /// On sysmon.
    Sysmon,
}

/// Free goroutine records at the calling goroutine's processor.
#[must_use]
pub fn free_records() -> Option<u32> {
    current::enter().map(|rt| rt.holder().p().with_local(|local| local.free_gs.len()))
}

/// Goroutines that are parked on descriptors.
#[must_use]
pub fn poll_waiters(rt: &Runtime) -> u32 {
    rt.sched().outside.poller().waiters()
}

/// How many contexts and functions are registered below a context.
#[must_use]
pub fn context_children(ctx: &crate::context::Context) -> usize {
    ctx.n_children()
}
