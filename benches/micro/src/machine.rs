//! The cost of the basic steps of every path on this machine: a lower bound for any runtime.
//!
//! Each figure is the median of several rounds of minimal programs, without heist except for the
//! ring of its channels, which two threads use that do nothing else.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::hand_over;
use corosensei::stack::{Stack, StackPointer};
use corosensei::{Coroutine, CoroutineResult};
use heist_core::buffer::{Buffer as _, Put, Ring, Take};

/// Distance of stacks, as in heist.
const STRIDE: usize = 256 << 10;
/// The number of stacks: as many as the sleepers of the workload `timers`.
const STACKS: usize = 100_000;
const PAGE: usize = 4096;
const MADV_GUARD_INSTALL: i32 = 102;
/// Ranges in one call, as in heist.
const BATCH: usize = 64;

/// Takes all figures and prints them.
pub fn measure() -> Result<(), String> {
    let wrong = |error: std::io::Error| error.to_string();
    println!("{:50} {:>9}", "", "ns");
    show("a switch to a coroutine and back", switch());
    show("an atomic read-modify-write, alone", read_modify_write());
    show("a cache line of another CPU, one way", other_line());
    show("a message through a ring, from CPU to CPU", ring());
    show("a system call", system_call());
    show("an alarm set (timerfd_settime)", alarm().map_err(wrong)?);
    show("64 bytes through TCP, sent and received", loopback(1).map_err(wrong)?);
    show("the same, through a thousand connections in turn", loopback(1000).map_err(wrong)?);
    let (page, guard) = stacks().map_err(wrong)?;
    show("a fresh page, one every 256 KiB", page);
    match guard {
        Some(guard) => show("a guard page, 64 in a call", guard),
        None => println!("{:50} {:>9}", "a guard page, 64 in a call", "not here"),
    }
    show("a thread made and joined", thread());
    show("a thread woken that slept 2 ms, until it runs", wake());
    show("a computing thread stopped, until another computes", median(hand_over::gaps()?));
    Ok(())
}

fn show(what: &str, ns: f64) {
    println!("{what:50} {ns:>9.1}");
}

/// The middle one.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The middle of nine rounds of `n`, in nanoseconds each.
fn each(n: u64, mut round: impl FnMut(u64)) -> f64 {
    round(n / 10);
    let timed = |_| {
        let from = Instant::now();
        round(n);
        from.elapsed().as_nanos() as f64 / n as f64
    };
    median((0..9).map(timed).collect())
}

/// A stack that needs no guard, because the code that runs on it is known.
struct Plain(Box<[u128]>);

impl Plain {
    fn new() -> Self {
        Self(vec![0; (32 << 10) / size_of::<u128>()].into())
    }
}

// SAFETY: the memory is the box's, aligned to 16 bytes at both ends, and stays where it is.
unsafe impl Stack for Plain {
    fn base(&self) -> StackPointer {
        let end = self.0.as_ptr_range().end.addr();
        StackPointer::new(end).expect("not null")
    }

    fn limit(&self) -> StackPointer {
        StackPointer::new(self.0.as_ptr().addr()).expect("not null")
    }
}

/// Four in turn: a single one would be foreseen better than goroutines ever are.
fn switch() -> f64 {
    let new = |_| {
        Coroutine::<(), (), (), Plain>::with_stack(Plain::new(), |yielder, ()| {
            loop {
                yielder.suspend(());
            }
        })
    };
    let mut coroutines: Vec<_> = (0..4).map(new).collect();
    let ns = each(4_000_000, |n| {
        for i in 0..n as usize {
            let CoroutineResult::Yield(()) = coroutines[i % 4].resume(()) else { unreachable!() };
        }
    });
    for mut coroutine in coroutines {
        // SAFETY: there is nothing on its stack that has a destructor.
        unsafe { coroutine.force_reset() };
    }
    ns
}

fn read_modify_write() -> f64 {
    let word = AtomicU64::new(0);
    each(20_000_000, |n| {
        for _ in 0..n {
            std::hint::black_box(&word).fetch_add(1, Ordering::AcqRel);
        }
    })
}

/// Two threads hand a number to and fro.
fn other_line() -> f64 {
    let word = Arc::new(AtomicU64::new(0));
    let wait_for = |word: &AtomicU64, number| {
        while word.load(Ordering::Acquire) != number {
            std::hint::spin_loop();
        }
    };
    let timed = |_| {
        const ROUNDS: u64 = 100_000;
        word.store(0, Ordering::Release);
        let other = Arc::clone(&word);
        let answers = std::thread::spawn(move || {
            for round in 0..ROUNDS {
                wait_for(&other, 2 * round + 1);
                other.store(2 * round + 2, Ordering::Release);
            }
        });
        let from = Instant::now();
        for round in 0..ROUNDS {
            word.store(2 * round + 1, Ordering::Release);
            wait_for(&word, 2 * round + 2);
        }
        let took = from.elapsed();
        answers.join().expect("it ends");
        took.as_nanos() as f64 / (2 * ROUNDS) as f64
    };
    median((0..9).map(timed).collect())
}

/// A thread that sends and one that receives, on one CPU each if there are two, through the ring of
/// a buffered channel: neither ever sleeps, and no thread is woken.
fn ring() -> f64 {
    const MESSAGES: u64 = 1_000_000;
    const CAPACITY: usize = 128;
    let timed = |_| {
        let ring = Ring::new(CAPACITY, std::thread::yield_now).expect("there is memory");
        let from = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for message in 0..MESSAGES {
                    // SAFETY: the message is this thread's until it is sent.
                    while unsafe { ring.put(&raw const message, &mut ()) } != Put::Done {
                        std::hint::spin_loop();
                    }
                }
            });
            for expected in 0..MESSAGES {
                let mut message = 0;
                // SAFETY: there is room for a message.
                while unsafe { ring.take(&raw mut message, &mut ()) } != Take::Done {
                    std::hint::spin_loop();
                }
                assert_eq!(message, expected, "they come in order");
            }
        });
        from.elapsed().as_nanos() as f64 / MESSAGES as f64
    };
    median((0..9).map(timed).collect())
}

fn system_call() -> f64 {
    each(1_000_000, |n| {
        for _ in 0..n {
            // SAFETY: it has no arguments and changes nothing.
            unsafe { libc::syscall(libc::SYS_getppid) };
        }
    })
}

fn alarm() -> std::io::Result<f64> {
    // SAFETY: it makes a descriptor.
    let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    let never = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let ns = each(200_000, |n| {
        for i in 0..n {
            // Another time whenever it is set, far enough away that it does not go off.
            let value = libc::timespec { tv_sec: 100 + (i % 100) as i64, tv_nsec: 0 };
            let spec = libc::itimerspec { it_interval: never, it_value: value };
            // SAFETY: this program owns the descriptor, the value is live, and the old one is not
            // requested.
            unsafe { libc::timerfd_settime(fd, 0, &raw const spec, std::ptr::null_mut()) };
        }
    });
    // SAFETY: owned by this program, and not used after this.
    unsafe { libc::close(fd) };
    Ok(ns)
}

/// One end writes, the other reads, in one thread: no thread is woken. Several connections take
/// turns, so that with many of them the kernel's data of each is cold.
fn loopback(n_connections: usize) -> std::io::Result<f64> {
    allow_descriptors(2 * n_connections as u64 + 100)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let connect = |_| {
        let client = TcpStream::connect(listener.local_addr()?)?;
        client.set_nodelay(true)?;
        Ok((client, listener.accept()?.0))
    };
    let connections = (0..n_connections).map(connect).collect::<std::io::Result<Vec<_>>>()?;
    let mut in_turn = connections.iter().cycle();
    let mut failed = Ok(());
    let ns = each(50_000, |n| {
        let mut buffer = [7; 64];
        for (client, server) in in_turn.by_ref().take(n as usize) {
            let (mut client, mut server) = (client, server);
            let done = client.write_all(&buffer).and_then(|()| server.read_exact(&mut buffer));
            if done.is_err() {
                failed = done;
                return;
            }
        }
    });
    failed.map(|()| ns)
}

/// Raises the limit of this process on descriptors, as far as it may.
fn allow_descriptors(n: u64) -> std::io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a live place for the answer.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    if limit.rlim_cur >= n {
        return Ok(());
    }
    limit.rlim_cur = n;
    // SAFETY: a live value.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0 {
        return Err(std::io::Error::other(format!(
            "{n} descriptors are not allowed: ulimit -n {n}"
        )));
    }
    Ok(())
}

/// The cost of the first page of a stack, and of its guard, where the kernel has guards.
fn stacks() -> std::io::Result<(f64, Option<f64>)> {
    let (mut pages, mut guards) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let slab = Slab::map()?;
        let from = Instant::now();
        for i in 0..STACKS {
            // SAFETY: the last byte of a stack of the slab, which no other code uses.
            unsafe { slab.at(i, STRIDE - 1).write_volatile(1) };
        }
        pages.push(from.elapsed().as_nanos() as f64 / STACKS as f64);
        drop(slab);
        let slab = Slab::map()?;
        let from = Instant::now();
        if (0..STACKS).step_by(BATCH).all(|first| slab.guard(first)) {
            guards.push(from.elapsed().as_nanos() as f64 / STACKS as f64);
        }
    }
    Ok((median(pages), (guards.len() == 3).then(|| median(guards))))
}

/// Address space for all stacks.
struct Slab(*mut u8);

impl Slab {
    const BYTES: usize = STACKS * STRIDE;

    fn map() -> std::io::Result<Self> {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping, wherever there is room.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), Self::BYTES, rights, kind, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: this program owns the mapping. If the kernel refuses, a page takes longer.
        unsafe { libc::madvise(base, Self::BYTES, libc::MADV_NOHUGEPAGE) };
        Ok(Self(base.cast()))
    }

    fn at(&self, stack: usize, offset: usize) -> *mut u8 {
        self.0.wrapping_add(stack * STRIDE + offset)
    }

    /// Guards the lowest page of some stacks from `first` on. False where that cannot be done at
    /// once.
    fn guard(&self, first: usize) -> bool {
        let ranges: Vec<_> = (first..STACKS.min(first + BATCH))
            .map(|stack| libc::iovec { iov_base: self.at(stack, 0).cast(), iov_len: PAGE })
            .collect();
        // SAFETY: the process itself, and ranges of a mapping that no other code uses.
        let done = unsafe {
            libc::syscall(
                libc::SYS_process_madvise,
                PIDFD_SELF,
                ranges.as_ptr(),
                ranges.len(),
                MADV_GUARD_INSTALL,
                0,
            )
        };
        done == (ranges.len() * PAGE) as i64
    }
}

/// Stands for the calling process where a descriptor of one is expected.
const PIDFD_SELF: i32 = -10001;

impl Drop for Slab {
    fn drop(&mut self) {
        // SAFETY: owned by this program, and not used after this.
        unsafe { libc::munmap(self.0.cast(), Self::BYTES) };
    }
}

fn thread() -> f64 {
    each(300, |n| (0..n).for_each(|_| std::thread::spawn(|| ()).join().expect("it ends")))
}

/// From the call that wakes it until it runs.
fn wake() -> f64 {
    const ROUNDS: usize = 300;
    let zero = Instant::now();
    let (called, seen) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (calls, sees) = (Arc::clone(&called), Arc::clone(&seen));
    let sleeper = std::thread::spawn(move || {
        let mut took = Vec::new();
        for round in 1..=ROUNDS as u64 {
            let mut at = 0;
            while at == 0 {
                std::thread::park();
                at = calls.swap(0, Ordering::AcqRel);
            }
            took.push(zero.elapsed().as_nanos() as f64 - at as f64);
            sees.store(round, Ordering::Release);
        }
        median(took)
    });
    for round in 1..=ROUNDS as u64 {
        std::thread::sleep(Duration::from_millis(2));
        called.store(zero.elapsed().as_nanos() as u64, Ordering::Release);
        sleeper.thread().unpark();
        while seen.load(Ordering::Acquire) != round {
            std::hint::spin_loop();
        }
    }
    sleeper.join().expect("it ends")
}
