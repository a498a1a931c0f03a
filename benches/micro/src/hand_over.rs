//! The cost of stopping a thread that computes and running another instead, without heist: a
//! signal, in whose handler the first thread wakes the second and sleeps.
//!
//! Preemption by a signal consists of this, here in its simplest form: the kernel gets no hint
//! about which thread should run where. Every CPU has a pair of threads that take turns of 10 ms,
//! as four hogs on two Ps do; another thread sends the signals, as sysmon does.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const WAKE: i32 = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
const WAIT: i32 = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
const SLICE: Duration = Duration::from_millis(10);
const ROUNDS: usize = 200;
/// A read of the clock takes a hundredth of this: a thread that took longer was stopped.
const PAUSE_NS: u64 = 10_000;

thread_local! {
    static SEAT: Cell<*const Seat> = const { Cell::new(std::ptr::null()) };
}

/// One of a pair.
#[derive(Default)]
#[repr(align(128))]
struct Seat {
    /// It may compute.
    has_turn: AtomicU32,
    /// When it last read the clock.
    looked_ns: AtomicU64,
    tid: AtomicI32,
    other: AtomicU64,
}

impl Seat {
    fn other(&self) -> &Self {
        let other = self.other.load(Ordering::Relaxed) as *const Self;
        // SAFETY: both of a pair live until all threads have ended.
        unsafe { &*other }
    }

    fn give_turn(&self) {
        self.has_turn.store(1, Ordering::Release);
        // SAFETY: the word is live.
        unsafe { libc::syscall(libc::SYS_futex, self.has_turn.as_ptr(), WAKE, 1) };
    }

    fn await_turn(&self) {
        while self.has_turn.load(Ordering::Acquire) == 0 {
            let none: *const libc::timespec = std::ptr::null();
            let word = self.has_turn.as_ptr();
            // SAFETY: the word is live, and there is no timeout.
            unsafe { libc::syscall(libc::SYS_futex, word, WAIT, 0, none) };
        }
    }
}

extern "C" fn on_signal(_: libc::c_int) {
    // SAFETY: null, or the seat of this thread, which lives as long as it.
    if let Some(seat) = unsafe { SEAT.get().as_ref() } {
        seat.has_turn.store(0, Ordering::Relaxed);
        seat.other().give_turn();
        seat.await_turn();
    }
}

/// Computes when it has its turn; returns the pauses of its CPU between the other's last read of
/// the clock and its own first.
fn compute(seat: &Seat, zero: Instant, stop: &AtomicBool) -> Vec<f64> {
    let mut gaps = Vec::new();
    SEAT.set(seat);
    // SAFETY: it has no arguments.
    let tid = unsafe { libc::syscall(libc::SYS_gettid) } as i32;
    seat.tid.store(tid, Ordering::Release);
    seat.await_turn();
    let mut last_ns = 0;
    while !stop.load(Ordering::Relaxed) {
        let now_ns = zero.elapsed().as_nanos() as u64;
        if now_ns - last_ns > PAUSE_NS {
            let before = seat.other().looked_ns.load(Ordering::Relaxed);
            // Not if it was merely interrupted.
            if before > last_ns {
                gaps.push((now_ns - before) as f64);
            }
        }
        last_ns = now_ns;
        seat.looked_ns.store(now_ns, Ordering::Relaxed);
    }
    SEAT.set(std::ptr::null());
    seat.other().give_turn();
    gaps
}

/// How long a CPU computes nothing each time one thread is stopped and another continues.
pub fn gaps() -> Result<Vec<f64>, String> {
    let pairs = std::thread::available_parallelism().map_or(1, usize::from);
    let seats: Vec<Seat> = std::iter::repeat_with(Seat::default).take(2 * pairs).collect();
    for (i, seat) in seats.iter().enumerate() {
        seat.other.store(std::ptr::from_ref(&seats[i ^ 1]) as u64, Ordering::Relaxed);
        seat.has_turn.store(u32::from(i % 2 == 0), Ordering::Relaxed);
    }
    // SAFETY: zero is a valid value, and the handler is async-signal-safe: it makes system calls
    // alone.
    let installed = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut())
    };
    if installed != 0 {
        return Err(format!("sigaction: {}", std::io::Error::last_os_error()));
    }
    let (zero, stop) = (Instant::now(), AtomicBool::new(false));
    Ok(std::thread::scope(|scope| {
        let threads: Vec<_> =
            seats.iter().map(|seat| scope.spawn(|| compute(seat, zero, &stop))).collect();
        while seats.iter().any(|seat| seat.tid.load(Ordering::Acquire) == 0) {
            std::thread::yield_now();
        }
        for _ in 0..ROUNDS {
            std::thread::sleep(SLICE);
            // All at once: a thread that is woken because of one signal must not get the next.
            let has_turn = |seat: &&Seat| seat.has_turn.load(Ordering::Relaxed) == 1;
            let computing: Vec<_> = seats.iter().filter(has_turn).collect();
            for seat in computing {
                let (pid, tid) = (std::process::id(), seat.tid.load(Ordering::Relaxed));
                // SAFETY: a signal to a thread of this process, which handles it.
                unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, libc::SIGUSR2) };
            }
        }
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().flat_map(|thread| thread.join().expect("it ends")).collect()
    }))
}
