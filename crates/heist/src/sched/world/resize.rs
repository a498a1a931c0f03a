//! How many Ps there are, and changing that while goroutines run.
//!
//! The world is stopped, Ps are added or taken away, and it goes on. What lay at a P that is taken
//! away goes to the front of the global queue, in order; the P itself stays in the table, with its
//! counters, for the day it is needed again.
//!
//! GO: proc.go procresize, p.destroy; debug.go GOMAXPROCS.

use super::stop;
use super::stop::{StoppedWorld, WorldState};
use crate::gmp::p::Stopped;
use crate::gmp::{G, M, P};
use crate::sched::{Locked, Sched};
use crate::sys::clock;
use crate::sys::cpu::DefaultProcs;
use crate::sys::lock::Guard;
use heist_core::list::List;
use heist_core::policy::FractionalQuota;
use heist_core::steal_order::StealOrder;
use std::path::PathBuf;
use std::ptr::{NonNull, null};

/// Who says how many Ps there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcsChoice {
    /// Somebody did: it stays.
    Chosen,
    /// Nobody did: it follows the CPUs and the quota.
    Default,
}

/// How the default is found out.
#[derive(Clone, Debug)]
pub(crate) struct ProcsDefault {
    /// Where the control groups are; None: they do not count.
    pub(crate) cgroup_root: Option<PathBuf>,
    /// CPUs of a machine that a test imagines.
    pub(crate) cpus: Option<u32>,
    pub(crate) rounding: FractionalQuota,
    /// Whether it is looked at again while the runtime runs.
    pub(crate) follow: bool,
}

impl ProcsDefault {
    /// A look at CPUs and quota. It allocates.
    pub(crate) fn source(&self) -> DefaultProcs {
        DefaultProcs::new(self.cgroup_root.as_deref(), self.cpus, self.rounding)
    }
}

/// What a change needs that has to be allocated. It is made, and what is left of it dropped, by user
/// code or by a plain thread.
pub(crate) struct Prepared {
    order: StealOrder,
    ps: Vec<Option<Box<P>>>,
}

impl Prepared {
    /// For a change to `n` Ps.
    pub(crate) fn new(sched: &Sched, n: u32) -> Self {
        let missing = sched.world.table.n_made()..n;
        Self {
            order: StealOrder::new(n),
            // ALLOC: not in the runtime.
            ps: missing.map(|id| Some(Box::new(sched.config.new_p(id)))).collect(),
        }
    }
}

/// Makes it `n` Ps, for who has the world lock, and returns how many there were. A runtime that has
/// ended stays as it is.
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
        // Somebody else may have made some of them meanwhile.
        if pp.as_ref().is_some_and(|pp| pp.id == sched.world.table.n_made())
            && let Some(pp) = pp.take()
        {
            sched.world.table.add(pp);
        }
    }
    let Some(mut world) = stop::stop_the_world(sched, world_lock, caller) else { return old };
    world.resize(n, &mut prepared.order);
    let world_lock = world.start();
    for id in n..old {
        // SAFETY: the P was taken away, and who has the world lock alone could bring it back.
        unsafe { sched.p(id).local() }.give_back();
    }
    drop(world_lock);
    old
}

/// The default at this moment; processors that are reserved come on top of one for the others.
pub(crate) fn default_procs(sched: &Sched, source: &mut DefaultProcs) -> u32 {
    source.now().max(sched.rest.idle().n_reserved() + 1)
}

/// Follows the default, if nobody chose. For the helper, which has no P and may allocate.
///
/// It does not wait for the world lock: who has them may wait for a thread that the helper makes.
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
    /// Changes the number of Ps. Leaves the steal order of before.
    fn resize(&mut self, n: u32, order: &mut StealOrder) {
        let sched = self.sched();
        let old = sched.procs();
        let (mut queued, mut stopped) = (List::new(), List::new());
        for id in n..old {
            let pp = sched.p(id);
            displace(&mut sched.lock.lock(), pp, &mut stopped);
            // SAFETY: the world is stopped, so every P is this thread's.
            queued.append(&mut unsafe { pp.retire(sched.p(0)) });
            sched.rest.idle().timers.clear(id);
        }
        for id in old..n {
            sched.p(id).stopped.set(Stopped::Free);
        }
        if let Some(m) = self.caller()
            && m.stopped_p.get().is_null()
        {
            // Its P is gone: it goes on with the first that anybody may use, ahead of who ran there.
            let pp = sched.p(sched.rest.idle().n_reserved());
            displace(&mut sched.lock.lock(), pp, &mut stopped);
            pp.stopped.set(Stopped::Lost(NonNull::from(m)));
            m.stopped_p.set(pp);
        }
        let mut locked = sched.lock.lock();
        locked.global.prepend(sched.global_len(), &mut queued);
        locked.global.prepend_stopped(sched.global_len(), &mut stopped);
        locked.proc_time.set(n, clock::now_ns());
        drop(locked);
        sched.world.table.set_live(n);
        // SAFETY: thieves hold a P, and the world is stopped.
        unsafe { sched.world.swap_steal_order(order) };
    }
}

/// Nobody gets `pp` back: who waited for it goes to where others wait.
fn displace(locked: &mut Locked, pp: &P, stopped: &mut List<G>) {
    match pp.stopped.replace(Stopped::No) {
        Stopped::No => heist_core::throw!("displace: P{} has not stopped", pp.id),
        Stopped::Free => {}
        Stopped::Left(m) => {
            // SAFETY: it sleeps until it is handed a P, in no list.
            unsafe { locked.idle_ms.push(m) };
        }
        Stopped::Awaited(m) => {
            // SAFETY: it sleeps until it is handed a P, with its goroutine, which is bound to it.
            let m = unsafe { m.as_ref() };
            m.stopped_p.set(null());
            let Some(gp) = m.current() else {
                heist_core::throw!("displace: M{} runs nothing", m.id);
            };
            // SAFETY: runnable, and in no queue.
            unsafe { stopped.push_back(NonNull::from(gp)) };
        }
        Stopped::Lost(m) => {
            // SAFETY: it runs a goroutine, and without a P it cannot end.
            let m = unsafe { m.as_ref() };
            m.stopped_p.set(null());
        }
    }
}
