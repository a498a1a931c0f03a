//! Every use of a thread-local is a use of the variable of the thread that makes it.
//!
//! For each kind of thread-local and each kind of park: a goroutine uses the variable, parks, and
//! uses it again. The first and the second use are inlined into one function, so the compiler may
//! keep the address across the park. The second one is compared with the truth, which comes from a
//! function that is never inlined and does not park.

use heist::chan::{Receiver, Sender, bounded};
use std::cell::{Cell, RefCell};
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

thread_local! {
    static CONST: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    static LAZY: RefCell<Vec<u64>> = RefCell::new(Vec::with_capacity(3));
    static ARRAY: Cell<[u64; 8]> = const { Cell::new([0; 8]) };
    static LARGE: RefCell<[u64; 512]> = const { RefCell::new([0; 512]) };
}

static PARKING_LOT: parking_lot::Mutex<u64> = parking_lot::Mutex::new(0);

/// Uses a vector behind a thread-local and says where it is.
#[inline(always)]
fn use_vec(cell: &RefCell<Vec<u64>>) -> u64 {
    let mut vec = cell.borrow_mut();
    if vec.len() > 100 {
        *vec = Vec::new();
    }
    vec.push(1);
    drop(vec);
    std::ptr::from_ref(cell).addr() as u64
}

#[inline(always)]
fn use_large() -> u64 {
    LARGE.with(|cell| {
        let mut array = cell.borrow_mut();
        let i = (array[0] & 511) as usize;
        array[i] = array[i].wrapping_add(1);
        (&raw const array[511]).addr() as u64
    })
}

#[inline(always)]
fn use_array() -> u64 {
    ARRAY.with(|cell| {
        let mut array = cell.get();
        array[(array[0] & 7) as usize] += 1;
        cell.set(array);
        std::ptr::from_ref(cell).addr() as u64
    })
}

/// Two hashers of one thread have neighbouring keys, which cannot be observed; but `RandomState`
/// uses its thread-local each time, and a wrong one is a data race that a sanitizer sees.
#[inline(always)]
fn use_random_state() -> u64 {
    black_box(RandomState::new().hash_one(1));
    black_box(std::collections::HashMap::<u64, u64>::new());
    errno()
}

#[inline(always)]
fn use_rand() -> u64 {
    let mut rng = rand::rng();
    black_box(rand::RngExt::random::<u32>(&mut rng));
    // SAFETY: the generator is a counted pointer to the thread's own state.
    unsafe { std::mem::transmute_copy::<_, usize>(&rng) as u64 }
}

#[inline(always)]
fn use_thread() -> u64 {
    let thread = std::thread::current();
    // SAFETY: an id is a number.
    unsafe { std::mem::transmute::<std::thread::ThreadId, u64>(thread.id()) }
}

#[inline(always)]
fn errno() -> u64 {
    // SAFETY: only returns an address.
    unsafe { libc::__errno_location() }.addr() as u64
}

/// A lock of parking_lot, contended so that its thread-local queue entry is used, and a span of
/// tracing, entered and left between two parks.
#[inline(always)]
fn use_libraries() -> u64 {
    *PARKING_LOT.lock() += 1;
    tracing::info_span!("use").in_scope(|| tracing::info!("used"));
    use_thread()
}

/// A kind of thread-local: its name, and the same code inlined and not inlined.
macro_rules! kinds {
    ($($module:ident, $name:literal, $body:expr;)+) => {
        $(mod $module {
            use super::*;
            #[inline(always)]
            pub(super) fn used() -> u64 { $body }
            #[inline(never)]
            pub(super) fn truth() -> u64 { $body }
        })+

        /// The names of the kinds.
        pub const KINDS: &[&str] = &[$($name,)+];

        fn observe(kind: usize, rounds: u32, park: impl FnMut(), tally: &Tally) {
            let mut kinds = [$($name,)+].into_iter().enumerate();
            $(if kinds.next().is_some_and(|(i, _)| i == kind) {
                return watch($module::used, $module::truth, rounds, park, tally);
            })+
        }
    };
}

kinds! {
    const_vec, "const RefCell", CONST.with(use_vec);
    lazy_vec, "lazy RefCell", LAZY.with(use_vec);
    array, "Cell array", use_array();
    large, "large array", use_large();
    random_state, "HashMap::new", use_random_state();
    rand_rng, "rand::rng", use_rand();
    thread, "thread::current", use_thread();
    errno_address, "errno", errno();
    libraries, "parking_lot, tracing", use_libraries();
}

/// The names of the ways to park.
pub const PARKS: &[&str] = &["yield", "channel", "mutex", "sleep", "join"];

/// How often a goroutine had moved when it used a thread-local again, and how often it was a wrong
/// one.
#[derive(Debug, Default)]
pub struct Tally {
    moved: AtomicU64,
    wrong: AtomicU64,
}

impl Tally {
    /// How often it was the variable of another thread.
    pub fn wrong(&self) -> u64 {
        self.wrong.load(Ordering::Relaxed)
    }

    /// How often the goroutine had moved.
    pub fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} wrong of {}", self.wrong(), self.moved())
    }
}

/// The kernel's number of the thread, by a system call each time.
#[inline(never)]
fn thread_number() -> i64 {
    // SAFETY: only returns a value.
    unsafe { libc::syscall(libc::SYS_gettid) }
}

#[inline(always)]
fn watch<F: Fn() -> u64>(
    used: F,
    truth: fn() -> u64,
    rounds: u32,
    mut park: impl FnMut(),
    tally: &Tally,
) {
    for _ in 0..rounds {
        let before = thread_number();
        black_box(used());
        park();
        let moved = before != thread_number();
        let again = used();
        tally.moved.fetch_add(moved.into(), Ordering::Relaxed);
        tally.wrong.fetch_add((again != truth()).into(), Ordering::Relaxed);
    }
}

/// The objects that a goroutine needs for all ways to park.
struct Partner {
    to: Sender<u64>,
    from: Receiver<u64>,
    lock: Arc<heist::sync::Mutex<u64>>,
}

fn observe_by(park: usize, kind: usize, rounds: u32, partner: &Partner, tally: &Tally) {
    match park {
        0 => observe(kind, rounds, heist::yield_now, tally),
        1 => observe(
            kind,
            rounds,
            || {
                partner.to.send(1).expect("the partner is there");
                partner.from.recv().expect("the partner is there");
            },
            tally,
        ),
        2 => observe(
            kind,
            rounds,
            || {
                let mut count = partner.lock.lock();
                *count += 1;
                heist::yield_now();
            },
            tally,
        ),
        3 => {
            observe(kind, rounds, || heist::time::sleep(Duration::from_micros(50)), tally);
        }
        _ => {
            let join = || heist::go(heist::yield_now).join().expect("it does not panic");
            observe(kind, rounds, join, tally);
        }
    }
}

/// Checks one way to park with all kinds, on the calling goroutine's runtime.
pub fn check(park: usize, rounds: u32) -> Vec<Tally> {
    const PER_KIND: usize = 8;
    let tallies: Arc<Vec<Tally>> = Arc::new(KINDS.iter().map(|_| Tally::default()).collect());
    let lock = Arc::new(heist::sync::Mutex::new(0));
    let mut handles = vec![];
    for i in 0..PER_KIND * KINDS.len() {
        let (to, echo_from) = bounded::<u64>(1);
        let (echo_to, from) = bounded::<u64>(1);
        handles.push(heist::go(move || {
            for message in echo_from {
                if echo_to.send(message).is_err() {
                    break;
                }
            }
        }));
        let tallies = Arc::clone(&tallies);
        let partner = Partner { to, from, lock: Arc::clone(&lock) };
        handles.push(heist::go(move || {
            let kind = i % KINDS.len();
            observe_by(park, kind, rounds, &partner, &tallies[kind]);
        }));
    }
    for handle in handles {
        handle.join().expect("a goroutine failed");
    }
    Arc::into_inner(tallies).expect("all goroutines have ended")
}
