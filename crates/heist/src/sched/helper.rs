//! The helper thread: it makes Ms and gives memory back.
//!
//! Both take locks that user code can hold (the allocator's, the thread library's), so no thread
//! with a P may do them. The helper has none. It sleeps until asked.
//!
//! If the system refuses a thread, the P goes back to rest and its work to the global queue, where
//! the Ms that there are find it; the helper tries again later.

use super::find_runnable::Found;
use super::stackless::Patience;
use super::wake::Start;
use super::{Locked, Phase, Sched, schedule};
use crate::coro::stack;
use crate::gmp::M;
use crate::sys::cpu::DefaultProcs;
use crate::sys::degraded::{Lack, Plain};
use crate::sys::futex::Kernel;
use crate::sys::placed_thread::PlacedThread;
use crate::sys::signal::Blocked;
use crate::sys::{registers, stderr, thread};
use heist_core::note::Futex;
use heist_core::sync::{AtomicU32, AtomicUsize, Ordering, fence};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Somebody needs an M, or the runtime stops.
const WORK: u32 = 1;
/// Stacks went to the pool that may not be needed for a while.
const SCAVENGE: u32 = 2;
/// There should be an M at hand that has nothing to do.
const SPARE: u32 = 4;

/// The default number of Ps may have changed.
const PROCS: u32 = 8;
/// A thread that was made could not begin.
const REFUSED: u32 = 16;

/// How long stacks must lie idle before their memory is given back.
const SCAVENGE_PERIOD: Duration = Duration::from_secs(1);
/// How long to wait after the system refused a thread or the memory of a stack.
const REFUSED_PAUSE: Duration = Duration::from_millis(10);

/// How others reach the helper.
pub(crate) struct Mailbox {
    asked: AtomicU32,
    /// The thread that stops the runtime.
    closer: AtomicUsize,
}

impl Mailbox {
    pub(crate) fn new() -> Self {
        Self { asked: AtomicU32::new(0), closer: AtomicUsize::new(0) }
    }

    /// Says who stops the runtime, before that is stopped. It may be a thread that was an M of it: then the
    /// destructor of a thread-local does it, and nobody is to wait for the thread.
    pub(super) fn set_closer(&self) {
        // The phase orders it.
        self.closer.store(registers::thread_pointer(), Ordering::Relaxed);
    }

    /// Asks for a look at the orphans or at the phase.
    pub(crate) fn ask(&self) {
        self.post(WORK);
    }

    /// Says that there are stacks to give back some time. Cheap if that is known already.
    #[inline]
    pub(crate) fn ask_to_scavenge(&self) {
        if self.asked.load(Ordering::Relaxed) & SCAVENGE == 0 {
            self.post(SCAVENGE);
        }
    }

    /// Asks for an M to be made in advance.
    pub(crate) fn ask_for_spare(&self) {
        self.post(SPARE);
    }

    /// Asks for a look at the default number of Ps.
    pub(crate) fn ask_about_procs(&self) {
        self.post(PROCS);
    }

    /// Says that a thread that was made could not begin.
    fn refuse(&self) {
        self.post(REFUSED);
    }

    fn post(&self, what: u32) {
        // ORDERING: AcqRel pairs with `take`: the helper sees what was written before.
        if self.asked.fetch_or(what, Ordering::AcqRel) & what == 0 {
            Kernel.wake(&self.asked);
        }
    }

    /// Sleeps until WORK is asked for, or SCAVENGE unless `scavenging`, or until `timeout`.
    fn wait(&self, scavenging: bool, timeout: Option<Duration>) -> u32 {
        let until = timeout.map(|timeout| Instant::now() + timeout);
        let known = if scavenging { SCAVENGE } else { 0 };
        loop {
            // ORDERING: see `post`.
            let asked = self.asked.fetch_and(SCAVENGE, Ordering::AcqRel);
            if asked & !known != 0 {
                return asked;
            }
            let left = match until {
                None => None,
                Some(until) => match until.checked_duration_since(Instant::now()) {
                    Some(left) if !left.is_zero() => Some(left),
                    _ => return asked,
                },
            };
            Kernel.wait(&self.asked, asked, left);
        }
    }

    fn scavenged(&self) {
        // ORDERING: see `post`.
        self.asked.fetch_and(!SCAVENGE, Ordering::AcqRel);
    }
}

/// Spare Ms that are asked for within so short a time are asked for again and again.
const SPARES_AGAIN: Duration = Duration::from_millis(5);
/// Most Ms made in advance.
const SPARES_MAX: u32 = 8;

/// So many threads are kept count of without asking the allocator, whose lock a stopped goroutine may hold.
const RECORDS_USUAL: usize = 256;

/// Ps that wait for an M to be made.
pub(crate) struct Orphans {
    // Reserved for all Ps at once: pushing must not allocate.
    waiting: Vec<(u32, Start)>,
}

impl Orphans {
    pub(crate) fn new(capacity: u32) -> Self {
        // ALLOC: when the runtime is built.
        Self { waiting: Vec::with_capacity(capacity as usize) }
    }

    pub(crate) fn push(&mut self, p: u32, start: Start) {
        self.waiting.push((p, start));
    }

    pub(crate) fn pop(&mut self) -> Option<(u32, Start)> {
        self.waiting.pop()
    }
}

/// The helper's own state.
pub(crate) struct Helper {
    sched: Arc<Sched>,
    /// The threads by the number of their M; None if that has none.
    threads: Vec<Option<PlacedThread>>,
    /// Records without a thread.
    free: Vec<NonNull<M>>,
    /// Threads that have left their M, with their thread pointers: a destructor of a thread-local may keep
    /// them for as long as it likes.
    ending: Vec<(PlacedThread, usize)>,
    /// The number of a record for which there was no memory.
    unused_id: Option<u32>,
    refused_until: Option<Instant>,
    /// When it last collected stacks.
    collected: Option<Instant>,
    /// How long those who wait for stacks have waited in vain.
    patience: Patience,
    /// When a spare M was last asked for.
    spare_asked: Option<Instant>,
    /// How many to have at hand.
    n_spares: u32,
    /// Where the default number of Ps comes from; made when it is first asked for.
    procs: Option<DefaultProcs>,
}

// SAFETY: the Ms are handed to their threads and come back when those have ended.
unsafe impl Send for Helper {}

impl Helper {
    pub(crate) fn new(sched: Arc<Sched>) -> Self {
        Self {
            procs: None,
            sched,
            threads: Vec::with_capacity(RECORDS_USUAL), // ALLOC: helper thread
            free: Vec::with_capacity(RECORDS_USUAL),    // ALLOC: helper thread
            ending: vec![],                             // ALLOC: helper thread
            unused_id: None,
            refused_until: None,
            collected: None,
            patience: Patience::default(),
            spare_asked: None,
            n_spares: 1,
        }
    }

    /// The helper's life. Returns when the runtime has stopped and its threads have ended.
    pub(crate) fn run(mut self) {
        let sched = Arc::clone(&self.sched);
        let mut scavenging = false;
        loop {
            let short = sched.n_stackless.load(Ordering::Relaxed) != 0;
            let refused = self.refused_until.is_some() || short;
            let pause = refused.then_some(REFUSED_PAUSE);
            let timeout = pause.or(scavenging.then_some(SCAVENGE_PERIOD));
            let asked = sched.helper.wait(scavenging, timeout);
            if sched.phase() == Phase::Stopped {
                return self.leave();
            }
            self.collect_gone();
            if asked & REFUSED != 0 {
                self.pause_making();
            }
            self.adopt_orphans();
            if asked & SPARE != 0 {
                self.make_spares();
            }
            if asked & PROCS != 0 {
                sched.follow_default_procs(&mut self.procs);
            }
            self.collect_stacks();
            if scavenging && asked & !SCAVENGE == 0 {
                let began_ns = thread::cpu_ns(thread::id());
                let (_, more) = stack::scavenge();
                if let Some((began, ended)) = began_ns.zip(thread::cpu_ns(thread::id())) {
                    sched.stats.scavenge_ns.add_shared(ended - began);
                }
                scavenging = more;
                if !more {
                    sched.helper.scavenged();
                }
            } else {
                scavenging |= asked & SCAVENGE != 0;
            }
        }
    }

    /// Helps goroutines that wait for stacks, now and then.
    fn collect_stacks(&mut self) {
        let rested = |at: Instant| at.elapsed() >= REFUSED_PAUSE;
        if self.sched.n_stackless.load(Ordering::Relaxed) != 0 && self.collected.is_none_or(rested)
        {
            self.collected = Some(Instant::now());
            self.sched.end_hopeless(&mut self.patience);
            self.sched.collect_stacks();
        }
    }

    /// Takes the records of threads that have ended, and forgets the threads.
    fn collect_gone(&mut self) {
        loop {
            let Some(m) = self.sched.lock.lock().gone_ms.pop() else {
                break;
            };
            // SAFETY: records live as long as the runtime.
            let gone = unsafe { m.as_ref() };
            if let Some(thread) = self.threads[gone.id as usize].take() {
                self.ending.push((thread, gone.thread.get()));
            }
            self.free.push(m);
        }
        for i in (0..self.ending.len()).rev() {
            let (thread, pointer) = self.ending.swap_remove(i);
            if let Err(thread) = thread.try_join() {
                self.ending.push((thread, pointer));
            }
        }
    }

    /// Finds or makes an M for every P that waits for one. While it makes one it has no P in its
    /// hands: it may have to wait for a goroutine that holds the allocator's lock and that a stop of
    /// the world has stopped, and the stop would wait for the P.
    fn adopt_orphans(&mut self) {
        if self.refused_until.is_some_and(|until| until <= Instant::now()) {
            self.refused_until = None;
            // There may be work that nobody was woken for.
            self.sched.wake_p_if_work();
        }
        let sched = Arc::clone(&self.sched);
        loop {
            let mut locked = sched.lock.lock();
            if locked.orphans.waiting.len() <= locked.n_starting as usize {
                return;
            }
            if !locked.idle_ms.is_empty()
                && let Some((id, start)) = locked.orphans.pop()
                && let Some(m) = locked.idle_ms.pop()
            {
                drop(locked);
                // SAFETY: an idle M is alive and, off the list, this thread's to wake.
                unsafe { sched.hand_over(m, sched.p(id), start) };
                continue;
            }
            let full = locked.n_ms >= sched.config.max_threads;
            let refused = self.refused_until.is_some();
            if !refused && full {
                drop(locked);
                thread_exhaustion(&sched);
            }
            if !refused {
                locked.n_ms += 1;
                locked.n_starting += 1;
            }
            drop(locked);
            if refused || !self.make_m() {
                sched.put_orphan_to_rest();
            }
        }
    }

    /// Sees to it that Ms with nothing to do are at hand: one, and if they are asked for again and
    /// again, because many goroutines block one after the other, several.
    fn make_spares(&mut self) {
        let now = Instant::now();
        let again = self.spare_asked.replace(now).is_some_and(|last| now - last < SPARES_AGAIN);
        self.n_spares = if again { (2 * self.n_spares).min(SPARES_MAX) } else { 1 };
        let sched = Arc::clone(&self.sched);
        loop {
            let mut locked = sched.lock.lock();
            // The last one is kept from those that are held back: they need another.
            let wanted = self.n_spares.max(if locked.held_back.is_empty() { 0 } else { 2 });
            // Each orphan takes one of those that are starting.
            let coming = locked.n_starting.saturating_sub(locked.orphans.waiting.len() as u32);
            let full = locked.n_ms >= sched.config.max_threads;
            if full && sched.admit(&mut locked) {
                drop(locked);
                return sched.wake_for_admitted();
            }
            let enough = locked.idle_ms.len() + coming >= wanted;
            if enough || full || self.refused_until.is_some() {
                return;
            }
            locked.n_ms += 1;
            locked.n_starting += 1;
            drop(locked);
            if !self.make_m() {
                return;
            }
        }
    }

    /// Starts a thread, which was counted already. False if the system refuses.
    fn make_m(&mut self) -> bool {
        match self.try_make_m() {
            Ok(()) => {
                self.sched.threads_refused.store(0, Ordering::Relaxed);
                true
            }
            Err(error) => {
                let mut locked = self.sched.lock.lock();
                locked.n_ms -= 1;
                locked.n_starting -= 1;
                drop(locked);
                self.complain(&error);
                self.pause_making();
                false
            }
        }
    }

    fn try_make_m(&mut self) -> std::io::Result<()> {
        let owned = self.free_record()?;
        // SAFETY: records live as long as the runtime, and no thread has this one yet.
        let id = unsafe { owned.as_ref() }.id;
        let (sched, given) = (Arc::clone(&self.sched), Owned(owned));
        let name = format_args!("{}-m{id}", self.sched.config.name);
        let spawned = PlacedThread::spawn(name, move |stack_end| m_main(sched, given, stack_end));
        self.threads[id as usize] = Some(spawned.inspect_err(|_| self.free.push(owned))?);
        Ok(())
    }

    /// The system has refused a thread.
    fn pause_making(&mut self) {
        self.refused_until = Some(Instant::now() + REFUSED_PAUSE);
        self.sched.threads_refused.store(1, Ordering::Relaxed);
    }

    /// A record that no thread has, made if there is none.
    fn free_record(&mut self) -> std::io::Result<NonNull<M>> {
        if let Some(m) = self.free.pop() {
            // SAFETY: records live as long as the runtime, and its thread has left it.
            unsafe { m.as_ref() }.reset();
            return Ok(m);
        }
        let id = *self.unused_id.get_or_insert_with(|| self.sched.all_ms.next_id());
        self.threads.resize_with(self.threads.len().max(id as usize + 1), || None);
        let m = self.sched.all_ms.add(M::new(NonNull::from(&*self.sched), id))?;
        self.unused_id = None;
        Ok(m)
    }

    fn complain(&self, error: &std::io::Error) {
        let n = self.threads.iter().flatten().count();
        Lack::Thread.missed(format_args!(
            "the system refuses another thread ({}); going on with {n} that run goroutines: while all of them \
             block or compute, others wait; raise `ulimit -u` or pids.max of the control group",
            Plain(error)
        ));
    }

    fn leave(self) {
        let mut threads = self.threads;
        let closer = self.sched.helper.closer.load(Ordering::Relaxed);
        let stays = |m: &&M| m.abandoned.get() || m.thread.get() == closer;
        for m in self.sched.all_ms.iter().filter(stays) {
            // It never ends, or not before this. A guest has no thread here.
            threads.get_mut(m.id as usize).map(Option::take);
        }
        let ending = self.ending.into_iter().filter(|&(_, pointer)| pointer != closer);
        let ending = ending.map(|(thread, _)| thread);
        threads.into_iter().flatten().chain(ending).for_each(PlacedThread::join);
    }
}

/// An M on its way to its thread.
struct Owned(NonNull<M>);

impl Owned {
    const fn get(&self) -> NonNull<M> {
        self.0
    }
}

// SAFETY: the thread that gets it is the only one to use it.
unsafe impl Send for Owned {}

fn m_main(sched: Arc<Sched>, m: Owned, stack_end: usize) {
    // SAFETY: records live as long as the runtime, of which this thread has a share.
    let m = unsafe { m.get().as_ref() };
    m.set_tid(thread::id());
    m.thread.set(registers::thread_pointer());
    m.stack_end.set(stack_end);
    m.blocked.set(Blocked::all_but_ours());
    let alt_stack = match thread::AltStack::install() {
        Ok(alt_stack) => alt_stack,
        Err(error) => return sched.cannot_begin(m, &error),
    };
    if sched.config.short_turns {
        thread::short_turns();
    }
    let unwinding = NoUnwinding;
    schedule::run(m);
    std::mem::forget(unwinding);
    drop(alt_stack);
    sched.give_back(m);
}

impl Sched {
    /// The thread of `m` was made, but has no memory for its signal stack: it is as if it had been refused.
    #[cold]
    fn cannot_begin(&self, m: &M, error: &std::io::Error) {
        Lack::Thread.missed(format_args!(
            "the system refuses a thread the memory for its signals ({}); going on without it",
            Plain(error)
        ));
        self.lock.lock().n_starting -= 1;
        self.helper.refuse();
        self.give_back(m);
    }

    /// The thread of `m` has left it and does not look at it again.
    #[doc(alias = "mexit")]
    fn give_back(&self, m: &M) {
        let mut locked = self.lock.lock();
        // SAFETY: the record lives as long as the runtime, and it is in no other list: an idle M
        // was taken out by who woke it.
        unsafe { locked.gone_ms.push(NonNull::from(m)) };
        locked.n_ms -= 1;
        drop(locked);
        self.helper.ask();
    }
}

/// A panic of the scheduler itself must not end just its thread, with a P in its hands.
pub(super) struct NoUnwinding;

impl Drop for NoUnwinding {
    fn drop(&mut self) {
        heist_core::throw!("m_main: the scheduler panicked");
    }
}

#[cold]
fn thread_exhaustion(sched: &Sched) -> ! {
    let n = sched.config.max_threads;
    stderr::report(format_args!(
        "heist: program exceeds {n}-thread limit\nfatal error: thread exhaustion\n"
    ));
    stderr::exit_now(2)
}

impl Sched {
    /// A new M begins: with a P that waits for one, or with a rest.
    pub(super) fn first_p(&self, m: &M) -> Found {
        let mut locked = self.lock.lock();
        locked.n_starting -= 1;
        let Some((id, start)) = locked.orphans.pop() else {
            drop(locked);
            return self.stop_m(m);
        };
        m.acquire_p(self.p(id));
        if start == Start::Spinning {
            self.begin_spin(m);
        }
        Found::Retry
    }

    /// No thread could be made for a P that waits for one: its work goes where others find it. Those may all be
    /// in use, by goroutines that block or that are bound to them. If one of the latter could run, it gets the P:
    /// its thread does nothing else.
    fn put_orphan_to_rest(&self) {
        let mut locked = self.lock.lock();
        let Some((id, start)) = locked.orphans.pop() else { return };
        let pp = self.p(id);
        // SAFETY: nobody holds an orphan, and this thread has just taken it off the list.
        let mut work = unsafe { pp.owner() }.drain();
        work.append(&mut pp.yielded.take(u32::MAX));
        let Locked { global, .. } = &mut *locked;
        global.prepend(self.global_len(), &mut work);
        let bound = if self.stop.pending() || pp.is_reserved {
            None
        } else {
            global.take_wanted(self.global_len(), |gp| !gp.bound_m.get().is_null())
        };
        // SAFETY: goroutines in a queue are valid.
        let taker =
            bound.and_then(|gp| NonNull::new(unsafe { gp.as_ref() }.bound_m.get().cast_mut()));
        if taker.is_none() {
            self.rest_p(&mut locked, pp);
        }
        drop(locked);
        if start == Start::Spinning {
            self.spinning.stop();
        }
        if let Some(m) = taker {
            // SAFETY: a bound M sleeps, or is about to, while its goroutine is in a queue, and this thread has
            // taken that out.
            unsafe { self.hand_over(m, pp, Start::Working) };
        }
    }

    /// Wakes somebody if there is anything to run.
    pub(super) fn wake_p_if_work(&self) {
        let mut locked = self.lock.lock();
        self.admit(&mut locked);
        let idle_work = !locked.idle_work.is_empty();
        drop(locked);
        // ORDERING: the submitter's fence of `heist_core::spinning`.
        fence(Ordering::SeqCst);
        let queued = self.global_len().get() != 0 || self.all_ps().any(|pp| !pp.is_empty());
        if queued || idle_work {
            self.wake_p();
        }
        if self.global_len().latency() != 0 {
            self.wake_reserved();
        }
    }
}
