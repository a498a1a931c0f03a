//! Blocking calls: announced ones, and coming back when the P is gone.
//!
//! GO: proc.go entersyscall, exitsyscall.

use super::bound;
use super::find_runnable::Found;
use super::wake::Start;
use super::{Locked, Sched};
use crate::current;
use crate::gmp::{M, g};
use crate::sys::{clock, thread};
use heist_core::m_word::{PART, Place, TAKEN};
use heist_core::status::Status;
use std::ptr::{NonNull, null};

/// Runs `f`, which may block the thread; the other goroutines go on meanwhile.
#[doc(alias = "entersyscall")]
pub(crate) fn blocking<T>(f: impl FnOnce() -> T) -> T {
    let Some(rt) = current::enter() else { return f() };
    let pp = rt.m().p();
    pp.stats.announced.bump();
    rt.sched().watch_call(pp);
    // SAFETY: the M of the calling thread is alive; the evidence ends here.
    unsafe { rt.into_m().as_ref() }.word.leave(Place::Blocked);
    /// Any call into the runtime takes the P back, or waits for one. So does a panic on its way out.
    struct Return;
    impl Drop for Return {
        fn drop(&mut self) {
            drop(current::enter());
        }
    }
    let _return = Return;
    f()
}

impl Sched {
    /// The goroutine on `m` leaves the runtime and most likely blocks without announcing it. Unless others
    /// would find whatever becomes runnable, gives the P away now: sysmon would do it after two looks.
    #[cold]
    pub(super) fn part(&self, m: &M) {
        m.word.clear_attention(PART);
        let pp = m.p();
        if !self.has_work_for(pp) && (pp.is_reserved || self.has_others_free()) {
            return;
        }
        self.leave_timers(m);
        m.parted.set(Some(thread::n_blocks()));
        pp.stats.foreseen.bump();
        // Under the lock, as everybody who takes a P: one who is about to, and finds that the M has moved on,
        // takes its flag back.
        let locked = self.lock.lock();
        m.word.call_attention(TAKEN);
        m.release_p();
        drop(locked);
        self.pass_on(pp);
    }

    /// The goroutine on `m` is back, after its P was given away because it was expected to block. If it did
    /// not, it is not expected to any more.
    #[cold]
    fn judge(&self, m: &M, blocks_before: u64) {
        if let Some(gp) = m.current()
            && thread::n_blocks() == blocks_before
        {
            gp.clear_flag(g::BLOCKS);
            self.block_predictor.went_on(gp.kind());
        }
    }

    /// The M is back in the runtime and its P may have been taken: gets one.
    #[cold]
    #[inline(never)]
    #[doc(alias = "exitsyscall")]
    pub(crate) fn regain_p(&self, m: &M) {
        if let Some(blocks_before) = m.parted.take() {
            self.judge(m, blocks_before);
        }
        let mut locked = self.lock.lock();
        m.word.clear_attention(TAKEN);
        if m.has_p() {
            return; // Who wanted it came too late.
        }
        if !m.stopped_p.get().is_null() {
            self.await_stopped_p(m, locked);
            m.p().stats.regained.bump();
            return;
        }
        let latency = m.current().is_some_and(|gp| gp.has_flag(g::LATENCY));
        if let Some(id) = self.free_p(&mut locked, latency) {
            m.acquire_p(self.p(id));
            drop(locked);
            self.bell.ring();
            m.p().advance_tick();
            m.p().stats.regained.bump();
            return;
        }
        let Some(gp) = m.current() else {
            heist_core::throw!("regain_p: M{} runs nothing", m.id);
        };
        // Every P is busy. The goroutine waits for its turn, its thread with it.
        gp.status.transition(Status::Running, Status::Runnable);
        bound::bind(m, gp);
        // SAFETY: it is runnable now, and being bound nobody but this M runs it.
        unsafe { self.push_stopped(&mut locked, NonNull::from(gp)) };
        drop(locked);
        self.stats.global_put.add_shared(1);
        self.watch_crowd();
        self.wait_for_turn(m);
        m.p().stats.regained.bump();
    }

    /// A P that rests, or that waits for the helper to make an M: this one is there already, and
    /// the helper may be waiting for a lock that its goroutine holds.
    fn free_p(&self, locked: &mut Locked, latency: bool) -> Option<u32> {
        let idle_ps = &mut locked.idle_ps;
        let id = if latency { idle_ps.take_any(&self.idle) } else { idle_ps.take(&self.idle) };
        if id.is_some() {
            return id;
        }
        let (id, start) = locked.orphans.pop()?;
        if !latency && self.idle.is_reserved(id) {
            locked.orphans.push(id, start);
            return None;
        }
        if start == Start::Spinning {
            self.spinning.withdraw();
        }
        Some(id)
    }

    /// Sleeps until whoever found this M's goroutine in a queue lends a P for it. Undoes one
    /// binding.
    pub(crate) fn wait_for_turn(&self, m: &M) {
        self.stats.m_parks.add_shared(1);
        m.note.sleep(&m.doorbell);
        let Found::Retry = self.take_over(m) else {
            heist_core::throw!("wait_for_turn: M{} was woken without a P", m.id);
        };
        let Some(gp) = m.current() else {
            heist_core::throw!("wait_for_turn: M{} runs nothing", m.id);
        };
        bound::unbind(m, gp);
        gp.status.transition(Status::Runnable, Status::Running);
        // After a stop of the world it goes on with what is left of its slice.
        if m.stopped_p.replace(null()).is_null() {
            m.word.mark_next_stay();
            m.p().begin_slice(clock::now_ns());
            if !gp.has_flag(g::HOG) {
                self.expect_no_hog();
            }
        }
    }
}
