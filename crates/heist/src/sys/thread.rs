//! OS threads.

use super::alt_stack::AltStack;
use super::memory;
use super::{fd, limits, placed_thread};
use std::ptr::{from_ref, null_mut};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The stack of an M: only the scheduler and signal handlers run there.
const M_STACK_BYTES: usize = 256 << 10;

/// Starts a thread. It allocates and may block, so only the helper thread and plain threads call
/// it.
pub(crate) fn spawn<T: Send + 'static>(
    name: String,
    main: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<std::thread::JoinHandle<T>> {
    // std counts the thread-locals of the program as a part of the stack.
    let bytes = M_STACK_BYTES + placed_thread::needed_bytes();
    // With less memory std does not return an error but ends the process.
    check_room(bytes)?;
    let builder = std::thread::Builder::new().name(name).stack_size(bytes);
    with_normal_turns(|| builder.spawn(main))
}

/// As [`spawn`], for user code: with a stack as large as std's usual one. The closure is returned
/// if the system refuses the thread.
pub(crate) fn spawn_roomy(name: &str, main: Main) -> Result<(), Main> {
    /// The stack that std maps by default.
    const STACK_BYTES: usize = 2 << 20;
    let bytes = STACK_BYTES + placed_thread::needed_bytes();
    let main = Arc::new(Mutex::new(Some(main)));
    let take =
        |main: &Mutex<Option<Main>>| main.lock().unwrap_or_else(PoisonError::into_inner).take();
    let given = Arc::clone(&main);
    let begin = move || {
        if let Some(main) = take(&given) {
            main();
        }
    };
    let start = || std::thread::Builder::new().name(name.to_owned()).stack_size(bytes).spawn(begin);
    let spawned = check_room(bytes).and_then(|()| with_normal_turns(start));
    match spawned.err().and_then(|_| take(&main)) {
        Some(main) => Err(main),
        None => Ok(()),
    }
}

/// As [`spawn`], with a stack as large as std's usual one, because it calls user code.
pub(crate) fn spawn_roomy_joinable(
    name: &str,
    main: impl FnOnce() + Send + 'static,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    let start = || {
        std::thread::Builder::new().name(name.to_owned()).spawn(|| {
            super::signal::block_all_but_ours();
            main();
        })
    };
    with_normal_turns(start)
}

/// The main function of a thread.
pub(crate) type Main = Box<dyn FnOnce() + Send>;

/// An error if the system has no memory for a thread with such a stack and its initial needs.
pub(super) fn check_room(stack_bytes: usize) -> std::io::Result<()> {
    let has_room = limits::room().has(2 * stack_bytes as u64);
    if !has_room || !memory::has_free_mappings() {
        return Err(std::io::Error::from_raw_os_error(libc::ENOMEM));
    }
    Ok(())
}

/// As [`spawn`], but waits a little where threads are limited: threads that have just ended still
/// count for a moment.
pub(crate) fn spawn_patiently<T: Send + 'static>(
    name: &str,
    main: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<std::thread::JoinHandle<T>> {
    /// How often it is tried, and the pause in between.
    const TRIES: u32 = 20;
    const PAUSE: std::time::Duration = std::time::Duration::from_millis(5);
    // If no thread is made, the closure is dropped with the attempt.
    let main = Arc::new(Mutex::new(Some(main)));
    let mut tries = 1;
    loop {
        let given = Arc::clone(&main);
        let begin = move || {
            let main = given.lock().unwrap_or_else(PoisonError::into_inner).take();
            main.map_or_else(|| heist_core::throw!("spawn_patiently: begun twice"), |main| main())
        };
        match spawn(name.to_owned(), begin) {
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) && tries < TRIES => {
                tries += 1;
                std::thread::sleep(PAUSE);
            }
            spawned => return spawned,
        }
    }
}

/// Checks whether the system allows `n` more threads at the same time, with the stacks for signals
/// that an M needs, by making them: each one makes the next.
pub(crate) fn probe(name: &str, n: u32) -> std::io::Result<()> {
    if n == 0 {
        return Ok(());
    }
    let inner = name.to_owned();
    let thread = spawn_patiently(name, move || {
        let _alt_stack = AltStack::install()?;
        probe(&inner, n - 1)
    })?;
    thread.join().unwrap_or_else(|payload| std::panic::resume_unwind(payload))
}

/// The kernel's id of the calling thread.
pub(crate) fn id() -> u32 {
    // SAFETY: gettid only returns a value.
    unsafe { libc::gettid() as u32 }
}

/// Lets short sleeps of the calling thread end on time, not up to 50 us later.
pub(crate) fn precise_naps() {
    // SAFETY: a setting of the calling thread.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
}

/// Asks the kernel's scheduler for short turns that come soon, for a thread that does little each
/// time it wakes up: next to threads that compute, it would otherwise wait for the end of their
/// turns. Kernels before 6.12 ignore the request.
pub(crate) fn short_turns() {
    set_turns(SHORT_TURN_NS);
}

/// The shortest turn that can be requested.
const SHORT_TURN_NS: u64 = 100_000;

/// Undoes [`short_turns`].
pub(crate) fn normal_turns() {
    set_turns(0);
}

/// Starts a program or a thread by `start`: it inherits the length of the calling thread's turns,
/// so these are the usual ones meanwhile.
pub(crate) fn with_normal_turns<T>(start: impl FnOnce() -> T) -> T {
    let is_short = turn_ns() == Some(SHORT_TURN_NS);
    if is_short {
        normal_turns();
    }
    let started = start();
    if is_short {
        short_turns();
    }
    started
}

/// The length of the calling thread's turns, where the kernel tells it.
fn turn_ns() -> Option<u64> {
    let mut attributes = Attributes::USUAL;
    let (room, flags) = (attributes.size, 0);
    // SAFETY: asks about the calling thread; the structure is as long as it says.
    let answered =
        unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, room, flags) == 0 };
    answered.then_some(attributes.runtime)
}

fn set_turns(turn_ns: u64) {
    set_attributes(&Attributes { nice: nice(), runtime: turn_ns, ..Attributes::USUAL });
}

/// Keeps the kernel from preempting the next waker of the calling thread in favour of this thread:
/// the waker is about to sleep by itself, and would have to be scheduled once more for that. False
/// if this thread does not have the default policy, or it cannot be changed.
///
/// Undone by [`drive_wakers_out`].
pub(crate) fn let_wakers_sleep() -> bool {
    // SAFETY: only returns a value.
    let policy = unsafe { libc::sched_getscheduler(0) };
    policy == libc::SCHED_OTHER && change_policy(libc::SCHED_BATCH)
}

/// Undoes [`let_wakers_sleep`].
pub(crate) fn drive_wakers_out() {
    change_policy(libc::SCHED_OTHER);
}

fn change_policy(policy: libc::c_int) -> bool {
    /// The nice value and the length of turns do not change.
    const KEEP_PARAMS: u64 = 0x10;
    set_attributes(&Attributes { policy: policy as u32, flags: KEEP_PARAMS, ..Attributes::USUAL })
}

/// How the kernel's scheduler treats a thread.
#[repr(C)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

impl Attributes {
    const USUAL: Self = Self {
        size: size_of::<Self>() as u32,
        policy: libc::SCHED_OTHER as u32,
        flags: 0,
        nice: 0,
        priority: 0,
        runtime: 0,
        deadline: 0,
        period: 0,
    };
}

fn set_attributes(attributes: &Attributes) -> bool {
    // SAFETY: a setting of the calling thread; the structure is as long as it says.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, from_ref(attributes), 0) == 0 }
}

/// The nice value of the calling thread, which does not change.
fn nice() -> i32 {
    // SAFETY: only returns a value. An error looks like a very low priority, which is a valid
    // value.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

/// CPU time a thread has used, or None if it is gone.
pub(crate) fn cpu_ns(tid: u32) -> Option<u64> {
    // The kernel's encoding of the CPU clock of a thread.
    let clock = ((!(tid as libc::clockid_t)) << 3) | 6;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the answer.
    let answered = unsafe { libc::clock_gettime(clock, &raw mut time) } == 0;
    answered.then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// How often the calling thread has given up its CPU voluntarily, to sleep in the kernel.
pub(crate) fn n_blocks() -> u64 {
    // SAFETY: numbers may be zero.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a valid place for the answer.
    let answered = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) } == 0;
    if answered { usage.ru_nvcsw as u64 } else { 0 }
}

/// Whether a thread of this process sleeps in the kernel.
pub(crate) fn is_asleep(tid: u32) -> bool {
    matches!(state(tid), Some(b'S' | b'D'))
}

/// How many threads this process has, if the system reports it: an emulator may report none. No
/// allocation: sysmon calls it.
pub(crate) fn count() -> Option<u32> {
    let mut text = [0u8; 512];
    let n = read_start(c"/proc/self/stat".as_ptr(), &mut text)?;
    // The name in parentheses may contain anything, so fields are counted from its end: the state
    // is next.
    let from = text[..n].iter().rposition(|&byte| byte == b')')? + 2;
    let field = text[from..n].split(|&byte| byte == b' ').nth(17)?;
    std::str::from_utf8(field).ok()?.parse().ok().filter(|&n| n > 0)
}

/// The state letter of a thread, as in `ps`. No allocation.
fn state(tid: u32) -> Option<u8> {
    StatFile::open(tid).ok()?.state()
}

/// Whether `/proc` is mounted and shows the processes of the namespace of this one: otherwise the
/// number of a thread finds nothing there, or another thread. Needs no descriptor.
pub(crate) fn has_own_proc() -> bool {
    static OWN: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *OWN.get_or_init(|| {
        let mut text = [0u8; 16];
        // SAFETY: the path ends with a zero byte; `text` is valid for its length.
        let n =
            unsafe { libc::readlink(c"/proc/self".as_ptr(), text.as_mut_ptr().cast(), text.len()) };
        let text = usize::try_from(n).ok().and_then(|n| text.get(..n));
        let pid = text.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
        // SAFETY: getpid only returns a value.
        pid == Some(unsafe { libc::getpid() })
    })
}

/// Opens a file about a thread of this process.
fn open_of_thread(path: std::fmt::Arguments<'_>) -> std::io::Result<libc::c_int> {
    if !has_own_proc() {
        return Err(std::io::Error::from_raw_os_error(libc::ENOENT));
    }
    fd::open_named(path, libc::O_RDONLY)
}

/// The file in which the kernel reports the state of a thread of this process.
pub(crate) struct StatFile(libc::c_int);

impl StatFile {
    /// Opens it. No allocation: sysmon calls it.
    pub(crate) fn open(tid: u32) -> std::io::Result<Self> {
        open_of_thread(format_args!("/proc/self/task/{tid}/stat")).map(Self)
    }

    /// The state letter, as in `ps`, unless the thread is gone.
    pub(crate) fn state(&self) -> Option<u8> {
        let mut text = [0u8; 64];
        let text = read_again(self.0, &mut text)?;
        // The name is in parentheses and may contain anything, parentheses too.
        let end = text.iter().rposition(|&byte| byte == b')')?;
        text.get(end + 2).copied()
    }
}

/// The file in which the kernel reports the system call of a thread of this process.
///
/// Reading it costs a third of reading the state. But if the thread is just falling asleep, the
/// read waits for that: so it is for threads that most likely run.
pub(crate) struct CallFile(libc::c_int);

impl CallFile {
    /// Opens it, if the kernel has it. No allocation: sysmon calls it.
    pub(crate) fn open(tid: u32) -> std::io::Result<Self> {
        open_of_thread(format_args!("/proc/self/task/{tid}/syscall")).map(Self)
    }

    /// Whether the thread runs or is runnable. None if it has ended.
    pub(crate) fn is_running(&self) -> Option<bool> {
        let mut text = [0u8; 16];
        let text = read_again(self.0, &mut text)?;
        (!text.is_empty()).then(|| text.starts_with(b"running"))
    }
}

impl Drop for CallFile {
    fn drop(&mut self) {
        // SAFETY: opened by this value, the only user.
        unsafe { libc::close(self.0) };
    }
}

/// Reads the beginning of an open file.
fn read_again(file: libc::c_int, text: &mut [u8]) -> Option<&[u8]> {
    // SAFETY: `text` is valid for its length.
    let n = unsafe { libc::pread(file, text.as_mut_ptr().cast(), text.len(), 0) };
    text.get(..usize::try_from(n).ok()?)
}

impl Drop for StatFile {
    fn drop(&mut self) {
        // SAFETY: opened by this value, the only user.
        unsafe { libc::close(self.0) };
    }
}

/// Reads the beginning of a file, whose path ends with a zero byte.
pub(super) fn read_start(path: *const libc::c_char, text: &mut [u8]) -> Option<usize> {
    // SAFETY: the path ends with a zero byte; `text` is valid for its length; the descriptor is
    // closed again.
    let n = unsafe {
        let file = libc::open(path, libc::O_RDONLY | libc::O_CLOEXEC);
        if file < 0 {
            return None;
        }
        let n = libc::read(file, text.as_mut_ptr().cast(), text.len());
        libc::close(file);
        n
    };
    usize::try_from(n).ok()
}

/// Sends the preemption signal to a thread of this process, with our mark.
pub(crate) fn interrupt(tid: u32) {
    let info = super::signal::marked();
    // SAFETY: the handler of the signal is installed.
    unsafe {
        let (own, signal) = (libc::getpid(), super::signal::PREEMPT);
        let call = libc::SYS_rt_tgsigqueueinfo;
        let refused = libc::syscall(call, own, tid, signal, &raw const info) != 0;
        // A thread that has ended needs no signal.
        if refused && std::io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH) {
            // A sandbox may forbid it, or too many signals are queued.
            super::signal::go_without_marks();
            libc::syscall(libc::SYS_tgkill, own, tid, signal);
        }
    }
}

/// The addresses of the stack of the calling thread, which is std's. It allocates.
pub(crate) fn own_stack() -> Option<std::ops::Range<usize>> {
    let mut attr = std::mem::MaybeUninit::uninit();
    let (mut base, mut bytes) = (null_mut(), 0);
    // SAFETY: the first call initialises the attributes, the last one frees what they hold.
    unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attr.as_mut_ptr()) != 0 {
            return None;
        }
        let found = libc::pthread_attr_getstack(attr.as_ptr(), &raw mut base, &raw mut bytes);
        libc::pthread_attr_destroy(attr.as_mut_ptr());
        (found == 0).then(|| base.addr()..base.addr() + bytes)
    }
}

/// Puts the calling thread to sleep forever.
pub(crate) fn sleep_for_ever() -> ! {
    loop {
        nap(Duration::from_hours(1));
    }
}

/// Puts the calling thread to sleep for at most `pause`: a signal ends it early.
pub(crate) fn nap(pause: Duration) {
    let time = libc::timespec {
        tv_sec: pause.as_secs() as libc::time_t,
        tv_nsec: pause.subsec_nanos().into(),
    };
    // SAFETY: `time` is valid, and the remaining time is not requested.
    unsafe { libc::nanosleep(&raw const time, null_mut()) };
}
