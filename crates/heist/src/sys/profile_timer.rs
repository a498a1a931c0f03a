//! Timers that count the CPU time of one thread and interrupt it with SIGPROF.

use super::signal;
use super::walk::Registers;
use std::io;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Handles a tick: the registers of the interrupted code, the periods that have passed, and how
/// long one is.
pub(crate) type Tick = fn(Registers, u64, u64);

static TICK: OnceLock<Tick> = OnceLock::new();
static PERIOD_NS: AtomicU64 = AtomicU64::new(0);

/// Installs the handler of the timers. It stays: a signal may come late. An error if the program
/// has a handler of its own.
pub(crate) fn install(tick: Tick, period_ns: u64) -> io::Result<()> {
    PERIOD_NS.store(period_ns, Ordering::Relaxed);
    let before = signal::current_action(libc::SIGPROF).sa_sigaction;
    let ours = on_tick as *const () as usize;
    if before != libc::SIG_DFL && before != libc::SIG_IGN && before != ours {
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, "SIGPROF has another handler"));
    }
    let _ = TICK.set(tick);
    // SAFETY: all zero is a valid sigaction; every field that matters is set below.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = ours;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: `action` is complete, and the handler is async-signal-safe. No other handler runs
    // meanwhile, except for faults.
    let done = unsafe {
        libc::sigfillset(&raw mut action.sa_mask);
        for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGABRT] {
            libc::sigdelset(&raw mut action.sa_mask, fault);
        }
        libc::sigaction(libc::SIGPROF, &raw const action, null_mut())
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The beginning of the data of a signal that a timer sends, in the kernel's layout.
#[repr(C)]
struct Expired {
    head: [libc::c_int; 4],
    timer: libc::c_int,
    overrun: libc::c_int,
}

extern "C" fn on_tick(_: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: errno is this thread's; the kernel passes valid data and a valid context.
    let (errno, expired, context) =
        unsafe { (*libc::__errno_location(), &*info.cast::<Expired>(), &*context.cast()) };
    // SAFETY: as above.
    if unsafe { (*info).si_code } == libc::SI_TIMER
        && let Some(tick) = TICK.get()
    {
        let n = 1 + u64::from(expired.overrun.cast_unsigned());
        tick(signal::registers(context), n, PERIOD_NS.load(Ordering::Relaxed));
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// A timer of one thread, which runs until it is dropped.
#[derive(Debug)]
pub(crate) struct ThreadTimer(libc::timer_t);

// SAFETY: it is a number that any thread of the process may use.
unsafe impl Send for ThreadTimer {}

impl ThreadTimer {
    /// Starts a timer for the thread with this id. The handler is installed. An error if the thread
    /// has ended, or there are too many timers.
    pub(crate) fn start(tid: u32, period_ns: u64) -> io::Result<Self> {
        // The clock of the CPU time of a thread: see clock_getcpuclockid in the C library.
        let clock = (!tid.cast_signed() << 3) | 6;
        // SAFETY: all zero is a valid event; the fields that matter are set below.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = libc::SIGPROF;
        event.sigev_notify_thread_id = tid.cast_signed();
        let mut timer = MaybeUninit::uninit();
        // SAFETY: both are valid for the call.
        if unsafe { libc::timer_create(clock, &raw mut event, timer.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: filled in by the call.
        let timer = Self(unsafe { timer.assume_init() });
        let period = libc::timespec {
            tv_sec: (period_ns / 1_000_000_000) as libc::time_t,
            tv_nsec: (period_ns % 1_000_000_000) as libc::c_long,
        };
        let times = libc::itimerspec { it_interval: period, it_value: period };
        // SAFETY: the timer is this one, and the times are valid.
        if unsafe { libc::timer_settime(timer.0, 0, &raw const times, null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(timer)
    }
}

impl Drop for ThreadTimer {
    fn drop(&mut self) {
        // SAFETY: made by `start`, and not deleted before.
        unsafe { libc::timer_delete(self.0) };
    }
}
