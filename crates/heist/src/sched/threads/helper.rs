//! The helper thread: it makes Ms and gives memory back.
//!
//! Both take locks that user code can hold (the allocator's, the thread library's), so no thread
//! with a P may do them. The helper has no P. It sleeps until it is asked.
//!
//! If the system refuses a thread, the P becomes idle and its work goes to the global queue, where
//! the existing Ms find it. The helper tries again later.

use super::mailbox::{PROCS, REFUSED, SCAVENGE, SPARE};
use super::{admission, begin};
use crate::coro::stack_pool;
use crate::gmp::M;
use crate::metrics::shard::Shard;
use crate::sched::stacks::Patience;
use crate::sched::{Locked, Phase, Sched};
use crate::sched::{outside, rest, stacks, world};
use crate::sys::cpu::DefaultProcs;
use crate::sys::degraded::{Lack, Plain};
use crate::sys::placed_thread::PlacedThread;
use crate::sys::{stderr, thread};
use heist_core::sync::Ordering;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long stacks must be unused before their memory is given back.
const SCAVENGE_PERIOD: Duration = Duration::from_secs(1);
/// How long to wait after the system refused a thread or the memory of a stack.
const REFUSED_PAUSE: Duration = Duration::from_millis(10);

/// How long a P waits while no M is about to become idle before the limit of threads counts as
/// exceeded. Each look at the Ms sees them at slightly different moments.
const FULL_PATIENCE: Duration = Duration::from_millis(100);
/// How long the helper sleeps between two looks for an idle M.
const FULL_PAUSE: Duration = Duration::from_millis(1);

/// How long goroutines must have been unable to start, because of the limit of threads, before that
/// is reported.
const STARVATION: Duration = Duration::from_secs(1);

/// If a spare M is asked for again within this time, more of them are made in advance.
const SPARES_AGAIN: Duration = Duration::from_millis(5);
/// The largest number of Ms made in advance.
const SPARES_MAX: u32 = 8;

/// For this many threads the helper has room without asking the allocator, whose lock a frozen
/// goroutine may hold.
const RECORDS_USUAL: usize = 256;

/// The helper's own state.
pub(crate) struct Helper {
    sched: Arc<Sched>,
    /// The thread of each M, by the number of the M; None if it has no thread.
    threads: Vec<Option<PlacedThread>>,
    /// Records without a thread.
    free: Vec<NonNull<M>>,
    /// Threads that have left their M, with their thread pointers. A destructor of a thread-local
    /// may keep such a thread for as long as it likes.
    ending: Vec<(PlacedThread, usize)>,
    /// A number that was reserved for a record for which there was no memory.
    unused_id: Option<u32>,
    refused_until: Option<Instant>,
    /// Since when a P has waited for an M to become idle because there may be no more threads, and
    /// how many Ps had been given to Ms by then.
    full_since: Option<(Instant, u64)>,
    /// When the helper last collected stacks.
    collected: Option<Instant>,
    /// How long goroutines have waited for stacks in vain.
    patience: Patience,
    /// When a spare M was last asked for.
    spare_asked: Option<Instant>,
    starvation: Starvation,
    /// How many idle Ms to keep in advance.
    n_spares: u32,
    /// Where the default number of Ps comes from. Made when the helper is first asked about it.
    procs: Option<DefaultProcs>,
}

// SAFETY: each M is handed to its thread, and comes back when the thread has ended.
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
            full_since: None,
            spare_asked: None,
            starvation: Starvation::default(),
            n_spares: 1,
        }
    }

    /// Runs the helper. Returns when the runtime has stopped and its threads have ended.
    pub(crate) fn run(mut self) {
        let sched = Arc::clone(&self.sched);
        let mut scavenging = false;
        loop {
            let short = sched.stacks.n_waiting() != 0;
            let refused = self.refused_until.is_some() || short;
            let full = self.full_since.map(|_| FULL_PAUSE);
            let pause = full.or(refused.then_some(REFUSED_PAUSE));
            let timeout = pause.or(scavenging.then_some(SCAVENGE_PERIOD));
            let asked = sched.threads.mailbox.wait(scavenging, timeout);
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
                world::follow_default_procs(&sched, &mut self.procs);
            }
            self.collect_stacks();
            if scavenging && full.is_none() && asked & !SCAVENGE == 0 {
                let began_ns = thread::cpu_ns(thread::id());
                let (_, more) = stack_pool::scavenge();
                if let Some((began, ended)) = began_ns.zip(thread::cpu_ns(thread::id())) {
                    sched.stats.scavenge_ns.add_shared(ended - began);
                }
                scavenging = more;
                if !more {
                    sched.threads.mailbox.scavenged();
                }
            } else {
                scavenging |= asked & SCAVENGE != 0;
            }
        }
    }

    /// Helps goroutines that wait for stacks, at most once in each `REFUSED_PAUSE`.
    fn collect_stacks(&mut self) {
        let is_due = |at: Instant| at.elapsed() >= REFUSED_PAUSE;
        if self.sched.stacks.n_waiting() != 0 && self.collected.is_none_or(is_due) {
            self.collected = Some(Instant::now());
            stacks::end_hopeless(&self.sched, &mut self.patience);
            stacks::collect_stacks(&self.sched);
        }
    }

    /// Takes the records of threads that have ended, and forgets the threads.
    fn collect_gone(&mut self) {
        loop {
            let Some(m) = self.sched.lock.lock().roster.gone_ms.pop() else {
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

    /// Finds or makes an M for every P that waits for one. While it makes one, the helper holds no
    /// P. Making one may have to wait for a goroutine that holds the allocator's lock and was
    /// frozen by a stop of the world; that stop would wait for the P.
    fn adopt_orphans(&mut self) {
        if self.refused_until.is_some_and(|until| until <= Instant::now()) {
            self.refused_until = None;
            // There may be work for which no M was woken.
            rest::wake_p_if_work(&self.sched);
        }
        let sched = Arc::clone(&self.sched);
        loop {
            let mut locked = sched.lock.lock();
            if locked.roster.orphans.len() <= locked.roster.n_starting {
                self.full_since = None;
                return;
            }
            if !locked.idle_ms.is_empty()
                && let Some((id, start)) = locked.roster.orphans.pop()
                && let Some(m) = locked.idle_ms.pop()
            {
                drop(locked);
                // SAFETY: an idle M is alive and, off the list, this thread's to wake.
                unsafe { rest::hand_over(&sched, m, sched.p(id), start) };
                continue;
            }
            let full = locked.roster.n_ms >= sched.config.max_threads;
            let refused = self.refused_until.is_some();
            if !refused && full {
                let n_taken = locked.roster.orphans.n_taken();
                drop(locked);
                if !self.is_m_free_soon() && begin::give_orphan_to_bound(&sched) {
                    continue;
                }
                return self.expect_idle_m(n_taken);
            }
            if !refused {
                locked.roster.n_ms += 1;
                locked.roster.n_starting += 1;
            }
            drop(locked);
            if refused || !self.make_m() {
                begin::give_up_orphan(&sched);
            }
        }
    }

    /// Handles a P that waits for an M when none is idle and there may be no more threads. An M
    /// that is on its way to become idle takes the P, however long its thread waits for a CPU. Only
    /// if there is none for some time is the limit of threads exceeded.
    fn expect_idle_m(&mut self, n_taken: u64) {
        match self.full_since {
            Some((since, before)) if before == n_taken && !self.is_m_free_soon() => {
                if since.elapsed() >= FULL_PATIENCE {
                    thread_exhaustion(&self.sched);
                }
            }
            _ => self.full_since = Some((Instant::now(), n_taken)),
        }
        outside::break_poller(&self.sched);
    }

    /// Whether an M has given its P away and is not idle yet, or waits in the poller.
    fn is_m_free_soon(&self) -> bool {
        let has_thread = |m: &&M| self.threads.get(m.id as usize).is_some_and(Option::is_some);
        let all = self.sched.threads.all_ms.iter().filter(has_thread);
        all.into_iter().any(|m| !m.has_p() && !m.is_in_user() && !m.note.is_asleep())
    }

    /// Makes idle Ms in advance: one, or several if they are asked for again and again, because
    /// many goroutines block one after the other.
    fn make_spares(&mut self) {
        let now = Instant::now();
        let again = self.spare_asked.replace(now).is_some_and(|last| now - last < SPARES_AGAIN);
        self.n_spares = if again { (2 * self.n_spares).min(SPARES_MAX) } else { 1 };
        let sched = Arc::clone(&self.sched);
        loop {
            let mut locked = sched.lock.lock();
            // The last idle M is kept from goroutines that are held back, so they need a second
            // one.
            let wanted = self.n_spares.max(if locked.roster.held_back.is_empty() { 0 } else { 2 });
            // Each orphan takes one of the Ms that are starting.
            let coming = locked.roster.n_starting.saturating_sub(locked.roster.orphans.len());
            let full = locked.roster.n_ms >= sched.config.max_threads;
            let enough = locked.idle_ms.len() + coming >= wanted;
            let starves = full && locked.idle_ms.is_empty() && has_startable(&sched, &locked);
            if admission::admit_from_helper(&sched, &mut locked, enough) {
                drop(locked);
                return rest::announce_work(&sched);
            }
            if full {
                drop(locked);
                return self.starvation.note(&sched, starves);
            }
            if enough || self.refused_until.is_some() {
                return;
            }
            locked.roster.n_ms += 1;
            locked.roster.n_starting += 1;
            drop(locked);
            if !self.make_m() {
                return;
            }
        }
    }

    /// Starts a thread, which the caller has counted already. False if the system refuses.
    fn make_m(&mut self) -> bool {
        match self.try_make_m() {
            Ok(()) => {
                self.sched.threads.refused.store(0, Ordering::Relaxed);
                true
            }
            Err(error) => {
                let mut locked = self.sched.lock.lock();
                locked.roster.n_ms -= 1;
                locked.roster.n_starting -= 1;
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
        let (sched, given) = (Arc::clone(&self.sched), begin::Owned(owned));
        let name = format_args!("{}-m{id}", self.sched.config.name);
        let spawned =
            PlacedThread::spawn(name, move |stack_end| begin::m_main(sched, given, stack_end));
        self.threads[id as usize] = Some(spawned.inspect_err(|_| self.free.push(owned))?);
        Ok(())
    }

    /// Makes no more threads for a while, because the system has refused one.
    fn pause_making(&mut self) {
        self.refused_until = Some(Instant::now() + REFUSED_PAUSE);
        self.sched.threads.refused.store(1, Ordering::Relaxed);
    }

    /// Returns a record that no thread has. Makes one if there is none.
    fn free_record(&mut self) -> std::io::Result<NonNull<M>> {
        if let Some(m) = self.free.pop() {
            // SAFETY: records live as long as the runtime, and its thread has left it.
            unsafe { m.as_ref() }.reset();
            return Ok(m);
        }
        let id = *self.unused_id.get_or_insert_with(|| self.sched.threads.all_ms.next_id());
        self.threads.resize_with(self.threads.len().max(id as usize + 1), || None);
        let m = self.sched.threads.all_ms.add(M::new(
            NonNull::from(&*self.sched),
            Arc::clone(&self.sched.recorder),
            id,
        ))?;
        self.unused_id = None;
        Ok(m)
    }

    fn complain(&self, error: &std::io::Error) {
        let n = self.threads.iter().flatten().count();
        Lack::Thread.missed(format_args!(
            "the system refuses another thread ({}); continuing with {n} that run goroutines: \
             while all of them block or compute, others wait; raise {}",
            Plain(error),
            limit_of_threads(error)
        ));
    }

    fn leave(self) {
        let mut threads = self.threads;
        let closer = self.sched.threads.mailbox.closer();
        let stays = |m: &&M| m.abandoned.get() || m.thread.get() == closer;
        for m in self.sched.threads.all_ms.iter().filter(stays) {
            // The thread never ends, or not before the helper does. A guest has no thread here.
            threads.get_mut(m.id as usize).map(Option::take);
        }
        let ending = self.ending.into_iter().filter(|&(_, pointer)| pointer != closer);
        let ending = ending.map(|(thread, _)| thread);
        threads.into_iter().flatten().chain(ending).for_each(PlacedThread::join);
    }
}

/// The limit to raise if a thread was refused with this error.
fn limit_of_threads(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::OutOfMemory => "`ulimit -v` or the memory of the control group",
        _ => "`ulimit -u` or pids.max of the control group",
    }
}

/// Whether there are goroutines that could start and have no thread yet.
fn has_startable(sched: &Sched, locked: &Locked) -> bool {
    sched.all_ps().any(|pp| !pp.is_empty()) || locked.global.has_free()
}

/// Detects that every thread the limit allows belongs to a frozen goroutine. Those then run in
/// turn, and no other goroutine can start. Only one of them can end this, and a program in which
/// they wait for the others hangs.
#[derive(Default)]
struct Starvation {
    /// Since when this has been so, and how many events there had been by then.
    since: Option<(Instant, u64)>,
    is_reported: bool,
}

impl Starvation {
    /// Notes whether it is so now. Reports it once, if it has lasted and no goroutine has made
    /// progress other than by computing.
    #[cold]
    fn note(&mut self, sched: &Sched, starves: bool) {
        if !starves || self.is_reported {
            self.since = None;
            return;
        }
        let events = |shard: &Shard| {
            let counts = [&shard.created, &shard.finished, &shard.readied, &shard.yields];
            counts.into_iter().fold(0, |sum: u64, count| sum.wrapping_add(count.get()))
        };
        let n =
            sched.all_ps().fold(events(&sched.stats), |n, pp| n.wrapping_add(events(&pp.stats)));
        match self.since {
            Some((since, before)) if before == n => {
                if since.elapsed() >= STARVATION {
                    self.is_reported = true;
                    let most = sched.config.max_threads;
                    Lack::Thread.missed(format_args!(
                        "all {most} threads belong to goroutines that compute or block, and others \
                         cannot start until one of them ends or parks; raise max_threads"
                    ));
                }
            }
            _ => self.since = Some((Instant::now(), n)),
        }
    }
}

/// A report names the limit that was met.
#[test]
fn the_limit_that_was_met_is_named() {
    // The system's numbers for no memory and for too many threads.
    let named = |code| limit_of_threads(&std::io::Error::from_raw_os_error(code));
    assert!(named(12).contains("ulimit -v"));
    assert!(named(11).contains("ulimit -u"));
}

#[cold]
fn thread_exhaustion(sched: &Sched) -> ! {
    let n = sched.config.max_threads;
    stderr::report(format_args!(
        "heist: program exceeds {n}-thread limit\nfatal error: thread exhaustion\n"
    ));
    stderr::exit_now(2)
}
