//! The number of Ps, and its change while goroutines run.
//!
//! The world is stopped, Ps are added or removed, and the world is started again. The goroutines of
//! a P that is removed go to the front of the global queue, in order, and its timers go to P0. The
//! P itself stays in the table, with its counters, until it is needed again.
//!
//! GO: proc.go procresize, p.destroy; debug.go GOMAXPROCS.

use super::stop;
use super::stop::{Cause, StoppedWorld, WorldState};
use crate::gmp::p::Stopped;
use crate::gmp::{G, M, P};
use crate::sched::{Locked, Sched};
use crate::sys::clock;
use crate::sys::cpu::DefaultProcs;
use crate::sys::lock::Guard;
use crate::trace::emit;
use heist_core::list::List;
use heist_core::policy::FractionalQuota;
use heist_core::steal_order::StealOrder;
use std::path::PathBuf;
use std::ptr::{NonNull, null};

/// Where the number of Ps comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcsChoice {
    /// The user chose it: it stays.
    Chosen,
    /// The user did not choose: it follows the CPUs and the quota.
    Default,
}

/// How the default number of Ps is found.
#[derive(Clone, Debug)]
pub(crate) struct ProcsDefault {
    /// Where the control groups are mounted; None: their quotas are ignored.
    pub(crate) cgroup_root: Option<PathBuf>,
    /// The number of CPUs that a test pretends to have.
    pub(crate) cpus: Option<u32>,
    pub(crate) rounding: FractionalQuota,
    /// Whether the number of Ps follows the default while the runtime runs.
    pub(crate) follow: bool,
}

impl ProcsDefault {
    /// The reader of CPUs and quotas. Making and using it allocates.
    pub(crate) fn source(&self) -> DefaultProcs {
        DefaultProcs::new(self.cgroup_root.as_deref(), self.cpus, self.rounding)
    }
}

/// The memory that a change needs. It is allocated, and what is left of it freed, by user code or
/// by a plain thread, not while the world is stopped.
pub(crate) struct Prepared {
    order: StealOrder,
    ps: Vec<Option<Box<P>>>,
}

impl Prepared {
    /// Allocates for a change to `n` Ps.
    pub(crate) fn new(sched: &Sched, n: u32) -> Self {
        let missing = sched.world.table.n_made()..n;
        Self {
            order: StealOrder::new(n),
            // ALLOC: in user code or on a plain thread, before the world is stopped.
            ps: missing.map(|id| Some(Box::new(sched.config.new_p(id)))).collect(),
        }
    }
}

/// Changes the number of Ps to `n`, and returns the previous number. A runtime that has ended keeps
/// its number. `caller` is the M of the calling thread, if it is one of this runtime.
#[doc(alias = "procresize")]
pub(crate) fn resize_procs(
    sched: &Sched,
    n: u32,
    prepared: &mut Prepared,
    world_lock: Guard<'_, WorldState>,
    caller: Option<&M>,
) -> u32 {
    let old = sched.procs();
    if n == old {
        return old;
    }
    for pp in &mut prepared.ps {
        // Another thread may have added some of them meanwhile.
        if pp.as_ref().is_some_and(|pp| pp.id == sched.world.table.n_made())
            && let Some(pp) = pp.take()
        {
            sched.world.table.add(pp);
        }
    }
    let Some(mut world) = stop::stop_the_world(sched, world_lock, caller, Cause::Procs) else {
        return old;
    };
    world.resize(n, &mut prepared.order);
    let world_lock = world.start();
    for id in n..old {
        // SAFETY: the P was removed, and only the holder of the world lock, which is this thread,
        // can bring it back.
        unsafe { sched.p(id).local() }.give_back();
    }
    drop(world_lock);
    old
}

/// The default at this moment, but at least one P besides those that are reserved for the latency
/// class.
pub(crate) fn default_procs(sched: &Sched, source: &mut DefaultProcs) -> u32 {
    source.now().max(sched.rest.idle().n_reserved() + 1)
}

/// Changes the number of Ps to the default, unless the user chose a number. Only the helper thread
/// calls this: it has no P and may allocate.
///
/// It does not wait for the world lock: the holder may wait for a thread that the helper has to
/// make.
pub(crate) fn follow_default_procs(sched: &Sched, source: &mut Option<DefaultProcs>) {
    let follows = |world_lock: &Guard<'_, WorldState>| world_lock.choice == ProcsChoice::Default;
    if !sched.world.lock.try_lock().as_ref().is_some_and(follows) {
        return;
    }
    let source = source.get_or_insert_with(|| sched.config.procs_default.source());
    let n = default_procs(sched, source);
    if n == sched.procs() {
        return;
    }
    let mut prepared = Prepared::new(sched, n);
    if let Some(world_lock) = sched.world.lock.try_lock().filter(follows) {
        resize_procs(sched, n, &mut prepared, world_lock, None);
    }
}

impl StoppedWorld<'_> {
    /// Changes the number of Ps. Swaps the previous steal order into `order`.
    fn resize(&mut self, n: u32, order: &mut StealOrder) {
        let sched = self.sched();
        let old = sched.procs();
        let (mut queued, mut frozen) = (List::new(), List::new());
        for id in n..old {
            let pp = sched.p(id);
            displace(&mut sched.lock.lock(), pp, &mut frozen);
            // SAFETY: this thread has stopped the world, so every P belongs to it.
            queued.append(&mut unsafe { pp.retire(sched.p(0)) });
            sched.rest.idle().timers.clear(id);
        }
        for id in old..n {
            sched.p(id).stopped.set(Stopped::Free);
        }
        if let Some(m) = self.caller()
            && m.stopped_p.get().is_null()
        {
            // The caller's P is removed. The caller continues with the first P that is not
            // reserved, ahead of the goroutine that ran there.
            let pp = sched.p(sched.rest.idle().n_reserved());
            displace(&mut sched.lock.lock(), pp, &mut frozen);
            // SAFETY: null, or a P, which lives as long as the runtime.
            if let Some(removed) = unsafe { emit::take_quiet(m).as_ref() } {
                emit::proc_stop(m, removed);
            }
            pp.stopped.set(Stopped::Lost(NonNull::from(m)));
            m.stopped_p.set(pp);
        }
        emit::procs(&sched.recorder, n);
        let mut locked = sched.lock.lock();
        locked.global.prepend(sched.global_len(), &mut queued);
        locked.global.prepend_frozen(sched.global_len(), &mut frozen);
        locked.proc_time.set(n, clock::now_ns());
        drop(locked);
        sched.world.table.set_live(n);
        // SAFETY: this thread has stopped the world.
        unsafe { sched.world.swap_steal_order(order) };
    }
}

/// Takes `pp` from the M that would get it back when the world starts. The M joins the idle ones,
/// its frozen goroutine is appended to `frozen`, or it finds when it comes back that it has lost
/// its P.
fn displace(locked: &mut Locked, pp: &P, frozen: &mut List<G>) {
    match pp.stopped.replace(Stopped::No) {
        Stopped::No => heist_core::throw!("displace: P{} has not stopped", pp.id),
        Stopped::Free => {}
        Stopped::Left(m) => {
            // SAFETY: the M is in no list, and sleeps until it is handed a P.
            unsafe { locked.idle_ms.push(m) };
        }
        Stopped::Awaited(m) => {
            // SAFETY: the M sleeps, with the frozen goroutine that is bound to it, until it is
            // handed a P.
            let m = unsafe { m.as_ref() };
            m.stopped_p.set(null());
            let Some(gp) = m.current() else {
                heist_core::throw!("displace: M{} runs nothing", m.id);
            };
            // SAFETY: the goroutine is valid and runnable, and in no queue.
            unsafe { frozen.push_back(NonNull::from(gp)) };
        }
        Stopped::Lost(m) => {
            // SAFETY: the M runs a goroutine, and without a P it cannot end.
            let m = unsafe { m.as_ref() };
            m.stopped_p.set(null());
        }
    }
}
