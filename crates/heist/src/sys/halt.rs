//! Halting all threads of the process, for a look at its memory.
//!
//! # The protocol
//! 1. The asker lists the threads, gives each a slot, stores an odd number in `ASKED` and sends the
//!    preemption signal to each thread.
//! 2. The handler of a thread that has a slot stores its stack pointer, answers with the number and
//!    sleeps until `ASKED` has another one. The registers of the interrupted code are in memory
//!    then, in the frame of the signal.
//! 3. When all have answered, and the process has no more threads than those, nothing in it runs
//!    but the asker. The asker uses no lock and no allocator: a halted thread may hold both.
//! 4. The asker stores an even number and wakes all.
//!
//! A thread whose handler already sleeps, because its goroutine was preempted, answers no signal
//! and need not: its registers are saved, and it runs no user code before it has handled the next
//! signal. The caller knows these threads.
//!
//! A thread that blocks the signal cannot be halted. Then the whole is refused.
//!
//! # Ordering
//! The slots are written before `ASKED` with Release, and read after it with Acquire. An answer is
//! stored with Release after the stack pointer; the asker loads it with Acquire. What a thread
//! wrote before it answered is therefore seen by the asker. The asker changes nothing of theirs.

use super::registers::stack_pointer;
use super::thread;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most threads that can be halted.
const SLOTS_MAX: usize = 16 << 10;
/// How long all threads together have for their answers.
const PATIENCE: Duration = Duration::from_secs(2);
/// The signal is sent again after this time: the kernel merges it with another one of the same kind
/// that is pending.
const REPEAT: Duration = Duration::from_millis(20);
/// A thread that uses more than this many other stacks is not understood.
const OTHERS_MAX: usize = 4;
/// Functions that the handler calls while it stands still need no more of its stack than this.
const BELOW_BYTES: usize = 1 << 10;
const LOOK_PERIOD: Duration = Duration::from_micros(100);
/// How often threads are listed anew because others came or went meanwhile.
const ATTEMPTS: u32 = 8;

struct Slot {
    tid: AtomicU32,
    /// The value of `ASKED` that the thread has answered.
    answer: AtomicU32,
    stack_pointer: AtomicUsize,
    /// What the caller of `stand_still` passes.
    m: AtomicUsize,
    /// The beginning of its signal stack, how far it is not in use, and its end.
    signal_stack: [AtomicUsize; 3],
    /// The other stacks that it uses: the beginning and the end of each.
    others: [[AtomicUsize; 2]; OTHERS_MAX],
    n_others: AtomicUsize,
}

impl Slot {
    const fn new() -> Self {
        Self {
            tid: AtomicU32::new(0),
            answer: AtomicU32::new(0),
            stack_pointer: AtomicUsize::new(0),
            m: AtomicUsize::new(0),
            signal_stack: [const { AtomicUsize::new(0) }; 3],
            others: [const { [const { AtomicUsize::new(0) }; 2] }; OTHERS_MAX],
            n_others: AtomicUsize::new(0),
        }
    }

    fn others(&self) -> Option<[(usize, usize); OTHERS_MAX]> {
        let n = self.n_others.load(Ordering::Relaxed);
        let mut others = [(0, 0); OTHERS_MAX];
        for (to, [start, end]) in others.get_mut(..n)?.iter_mut().zip(&self.others) {
            *to = (start.load(Ordering::Relaxed), end.load(Ordering::Relaxed));
        }
        Some(others)
    }
}

static SLOTS: [Slot; SLOTS_MAX] = [const { Slot::new() }; SLOTS_MAX];
static N_SLOTS: AtomicUsize = AtomicUsize::new(0);
/// Odd while threads are asked to stand still.
static ASKED: AtomicU32 = AtomicU32::new(0);

/// Makes the calling thread stand still if it is asked to. For the handler of the preemption
/// signal, which interrupted code with this stack pointer. The thread also uses the stacks
/// `others`.
pub(crate) fn stand_still(
    stack_pointer: usize,
    m: usize,
    others: impl Iterator<Item = Range<usize>>,
) {
    let asked = ASKED.load(Ordering::Acquire);
    if asked.is_multiple_of(2) {
        return;
    }
    let tid = thread::id();
    let n = N_SLOTS.load(Ordering::Relaxed);
    // A thread without a slot has just begun. The asker will see that it was not listed.
    let own = |slot: &&Slot| slot.tid.load(Ordering::Relaxed) == tid;
    let Some(slot) = SLOTS[..n].iter().find(own) else { return };
    slot.stack_pointer.store(stack_pointer, Ordering::Relaxed);
    slot.m.store(m, Ordering::Relaxed);
    for (place, address) in slot.signal_stack.iter().zip(signal_stack()) {
        place.store(address, Ordering::Relaxed);
    }
    let mut n_others = 0;
    for other in others {
        if let Some([start, end]) = slot.others.get(n_others) {
            start.store(other.start, Ordering::Relaxed);
            end.store(other.end, Ordering::Relaxed);
        }
        n_others += 1;
    }
    slot.n_others.store(n_others, Ordering::Relaxed);
    slot.answer.store(asked, Ordering::Release);
    while ASKED.load(Ordering::Acquire) == asked {
        futex(libc::FUTEX_WAIT, asked);
    }
}

/// The beginning of the signal stack that the caller is on, how far it is not in use, and its end.
/// All are zero if the caller is on another stack.
fn signal_stack() -> [usize; 3] {
    let mut stack = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: 0, ss_size: 0 };
    // SAFETY: only asks, and there is room for the answer.
    unsafe { libc::sigaltstack(std::ptr::null(), &raw mut stack) };
    let (start, here) = (stack.ss_sp.addr(), stack_pointer());
    let is_inside = (start..start + stack.ss_size).contains(&here);
    if stack.ss_flags & libc::SS_ONSTACK == 0 || !is_inside {
        return [0; 3];
    }
    [start, (here - BELOW_BYTES).max(start), start + stack.ss_size]
}

fn futex(operation: libc::c_int, value: u32) {
    let operation = operation | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word is static, and there is no timeout.
    unsafe {
        let none = std::ptr::null::<libc::timespec>();
        libc::syscall(libc::SYS_futex, ASKED.as_ptr(), operation, value, none);
    }
}

/// A thread that stands still.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    /// The stack pointer of the code that was interrupted.
    pub(crate) stack_pointer: usize,
    /// What its handler passed to [`stand_still`].
    pub(crate) m: usize,
    /// The beginning of its signal stack, how far it is not in use, and its end, if it is on one.
    pub(crate) signal_stack: [usize; 3],
    /// The other stacks that it uses. None if there are too many.
    pub(crate) others: Option<[(usize, usize); OTHERS_MAX]>,
}

/// While it lives, all other threads of the process stand still, except those that were excused.
pub(crate) struct Halt {
    asked: u32,
    /// Freed when the threads run again.
    tids: Vec<u32>,
    turn: Option<Turn>,
}

type Turn = MutexGuard<'static, ()>;

impl Halt {
    /// Halts all other threads. `is_excused` says of a thread that its handler sleeps. The calling
    /// thread is a plain one and holds no lock.
    ///
    /// # Errors
    /// If a thread does not answer, with its name; or if threads come and go all the time.
    pub(crate) fn all(is_excused: impl Fn(u32) -> bool) -> io::Result<Self> {
        static TURN: Mutex<()> = Mutex::new(());
        let mut turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..ATTEMPTS {
            match attempt(turn, &is_excused)? {
                Ok(halt) => return Ok(halt),
                Err(again) => turn = again,
            }
        }
        Err(io::Error::other("threads of the process begin and end all the time"))
    }

    /// The threads that stand still.
    pub(crate) fn threads(&self) -> impl Iterator<Item = Standing> {
        let answered = |slot: &&Slot| slot.answer.load(Ordering::Acquire) == self.asked;
        SLOTS[..self.tids.len()].iter().filter(answered).map(|slot| Standing {
            stack_pointer: slot.stack_pointer.load(Ordering::Relaxed),
            m: slot.m.load(Ordering::Relaxed),
            signal_stack: slot.signal_stack.each_ref().map(|at| at.load(Ordering::Relaxed)),
            others: slot.others(),
        })
    }

    /// The threads that were excused.
    pub(crate) fn excused(&self) -> impl Iterator<Item = u32> {
        let missing = |slot: &&Slot| slot.answer.load(Ordering::Acquire) != self.asked;
        SLOTS[..self.tids.len()].iter().filter(missing).map(|slot| slot.tid.load(Ordering::Relaxed))
    }
}

impl Drop for Halt {
    fn drop(&mut self) {
        ASKED.store(self.asked.wrapping_add(1), Ordering::Release);
        futex(libc::FUTEX_WAKE, i32::MAX as u32);
    }
}

/// One attempt. Gives the turn back if the threads changed meanwhile.
fn attempt(turn: Turn, is_excused: &impl Fn(u32) -> bool) -> io::Result<Result<Halt, Turn>> {
    // All that allocates comes before the first thread is halted.
    let own = thread::id();
    let tids: Vec<u32> = list()?.into_iter().filter(|&tid| tid != own).collect();
    if tids.len() > SLOTS_MAX {
        return Err(io::Error::other("the process has too many threads"));
    }
    let asked = ASKED.load(Ordering::Relaxed).wrapping_add(1) | 1;
    for (slot, &tid) in SLOTS.iter().zip(&tids) {
        slot.tid.store(tid, Ordering::Relaxed);
        slot.answer.store(0, Ordering::Relaxed);
    }
    N_SLOTS.store(tids.len(), Ordering::Relaxed);
    ASKED.store(asked, Ordering::Release);
    let mut halt = Halt { asked, tids, turn: Some(turn) };
    let silent = halt.await_answers(is_excused);
    let n_expected = u32::try_from(halt.tids.len() + 1).ok();
    if silent.is_none() && thread::count() == n_expected {
        return Ok(Ok(halt));
    }
    let turn = halt.turn.take();
    drop(halt);
    match (silent.filter(|&tid| exists(tid)), turn) {
        // A thread began, or ended.
        (None, Some(turn)) => Ok(Err(turn)),
        (Some(tid), _) => Err(io::Error::other(format!(
            "thread {tid} ({}) does not answer the signal; it may block SIGURG",
            name_of(tid)
        ))),
        (None, None) => Err(io::Error::other("halt: the turn is gone")),
    }
}

impl Halt {
    /// Sends signals until all have answered. Returns a thread that does not.
    fn await_answers(&self, is_excused: &impl Fn(u32) -> bool) -> Option<u32> {
        let start = Instant::now();
        let mut sent: Option<Instant> = None;
        loop {
            let late = || self.excused().filter(|&tid| !is_excused(tid));
            let first = late().next()?;
            if start.elapsed() >= PATIENCE {
                return Some(first);
            }
            if sent.is_none_or(|sent| sent.elapsed() >= REPEAT) {
                late().for_each(thread::interrupt);
                sent = Some(Instant::now());
            }
            thread::nap(LOOK_PERIOD);
        }
    }
}

/// The threads of the process.
fn list() -> io::Result<Vec<u32>> {
    let entries = std::fs::read_dir("/proc/self/task")?;
    let tids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(tids.collect())
}

fn exists(tid: u32) -> bool {
    std::path::Path::new(&format!("/proc/self/task/{tid}")).exists()
}

fn name_of(tid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/self/task/{tid}/comm"));
    name.map_or_else(|_| "unknown".to_owned(), |name| name.trim_end().to_owned())
}
