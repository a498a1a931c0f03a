//! Tests of `JoinHandle`: which result goes to which caller, exactly once.

use crate::matrix;

use heist::goroutine::Builder;
use heist::sync::WaitGroup;
use heist::{JoinHandle, go, yield_now};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts how often it is dropped.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A value of some layout that carries a [`Counted`].
trait Load: Send + 'static {
    fn pack(counted: Counted) -> Self;
    /// Panics if the value is damaged.
    fn check(&self);
}

/// Fits into the record.
struct Small(#[expect(dead_code, reason = "counts its drop")] Counted, u32);

/// Fills the record to the last byte.
struct Exact(#[expect(dead_code, reason = "counts its drop")] Counted, [u64; 6]);

/// One word too many.
struct Large(#[expect(dead_code, reason = "counts its drop")] Counted, [u64; 7]);

struct Huge(#[expect(dead_code, reason = "counts its drop")] Counted, [u64; 1000]);

/// Small, but with an alignment the record does not have.
#[repr(align(64))]
struct Aligned(#[expect(dead_code, reason = "counts its drop")] Counted, u8);

impl Load for Small {
    fn pack(counted: Counted) -> Self {
        Self(counted, 7)
    }
    fn check(&self) {
        assert_eq!(self.1, 7);
    }
}

impl Load for Exact {
    fn pack(counted: Counted) -> Self {
        assert_eq!(size_of::<Self>(), 56);
        Self(counted, [1, 2, 3, 4, 5, 6])
    }
    fn check(&self) {
        assert_eq!(self.1, [1, 2, 3, 4, 5, 6]);
    }
}

impl Load for Large {
    fn pack(counted: Counted) -> Self {
        Self(counted, [9; 7])
    }
    fn check(&self) {
        assert_eq!(self.1, [9; 7]);
    }
}

impl Load for Huge {
    fn pack(counted: Counted) -> Self {
        Self(counted, [3; 1000])
    }
    fn check(&self) {
        assert_eq!(self.1, [3; 1000]);
    }
}

impl Load for Aligned {
    fn pack(counted: Counted) -> Self {
        Self(counted, 5)
    }
    fn check(&self) {
        assert_eq!(std::ptr::from_ref(self).addr() % 64, 0);
        assert_eq!(self.1, 5);
    }
}

/// Spawns a goroutine whose closure carries a `T` and which returns another.
fn carry<T: Load>(drops: &[Arc<AtomicUsize>; 2], gate: &WaitGroup) -> JoinHandle<T> {
    let [captured, returned] = drops.each_ref().map(|n| Counted(Arc::clone(n)));
    let (captured, gate) = (T::pack(captured), gate.clone());
    go(move || {
        gate.wait();
        captured.check();
        T::pack(returned)
    })
}

/// Both counters, with every goroutine of this runtime but the caller's ended.
fn counts(drops: &[Arc<AtomicUsize>; 2]) -> [usize; 2] {
    matrix::yield_until("all others ended", || heist::num_goroutines() == 1);
    drops.each_ref().map(|n| n.load(Ordering::SeqCst))
}

/// The closure and the result are dropped exactly once, in every order of end, join and drop.
fn every_order<T: Load>() {
    let new = || {
        let gate = WaitGroup::new();
        gate.add(1);
        (<[Arc<AtomicUsize>; 2]>::default(), gate)
    };

    // Joined while it waits.
    let (drops, gate) = new();
    let handle = carry::<T>(&drops, &gate);
    let opener = gate.clone();
    go(move || opener.done());
    let result = handle.join().unwrap();
    result.check();
    assert_eq!(drops[1].load(Ordering::SeqCst), 0);
    drop(result);
    assert_eq!(counts(&drops), [1, 1], "joined while it waits");

    // Joined after its end.
    let (drops, gate) = new();
    let handle = carry::<T>(&drops, &gate);
    gate.done();
    matrix::yield_until("the end", || handle.is_finished());
    handle.join().unwrap().check();
    assert_eq!(counts(&drops), [1, 1], "joined after its end");

    // The handle is dropped after the end.
    let (drops, gate) = new();
    let handle = carry::<T>(&drops, &gate);
    gate.done();
    matrix::yield_until("the end", || handle.is_finished());
    drop(handle);
    assert_eq!(counts(&drops), [1, 1], "dropped after its end");

    // The handle is dropped while it runs.
    let (drops, gate) = new();
    let handle = carry::<T>(&drops, &gate);
    yield_now();
    drop(handle);
    gate.done();
    assert_eq!(counts(&drops), [1, 1], "dropped while it runs");

    // The handle is dropped before it has run, if no other processor took it first.
    let (drops, gate) = new();
    drop(carry::<T>(&drops, &gate));
    gate.done();
    assert_eq!(counts(&drops), [1, 1], "dropped at once");

    // Cancelled before it has run, or at its first park.
    let (drops, gate) = new();
    let handle = carry::<T>(&drops, &gate);
    handle.cancel();
    assert!(handle.join().map(drop).unwrap_err().is_cancelled());
    // The result was captured by the closure and went with it.
    assert_eq!(counts(&drops), [1, 1], "cancelled");
}

/// Closures and results of every layout are handed over and dropped exactly once.
#[test]
fn results_are_dropped_once_in_every_order() {
    matrix::run(|| {
        every_order::<Small>();
        every_order::<Exact>();
        every_order::<Large>();
        every_order::<Huge>();
        every_order::<Aligned>();
    });
}

/// Closures and results without a size count as well.
#[test]
fn values_without_a_size_are_dropped_once() {
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    struct Nothing;
    impl Drop for Nothing {
        fn drop(&mut self) {
            DROPS.fetch_add(1, Ordering::SeqCst);
        }
    }
    matrix::run(|| {
        let before = DROPS.load(Ordering::SeqCst);
        assert_eq!(size_of_val(&|| Nothing), 0);
        drop(go(|| Nothing).join().unwrap());
        drop(go(|| Nothing));
        go(|| ()).join().unwrap();
        matrix::yield_until("all ended", || heist::num_goroutines() == 1);
        assert_eq!(DROPS.load(Ordering::SeqCst) - before, 2);
    });
}

/// A panic's payload is handed over or dropped once, with the closure's values.
#[test]
fn the_payload_of_a_panic_is_dropped_once() {
    matrix::each(|_, rt| {
        let drops = Arc::new(AtomicUsize::new(0));
        let bomb = |drops: &Arc<AtomicUsize>| {
            let (held, thrown) = (Counted(Arc::clone(drops)), Counted(Arc::clone(drops)));
            move || {
                let _held = held;
                std::panic::resume_unwind(Box::new(thrown))
            }
        };
        rt.run(|| {
            let handle: JoinHandle<()> = go(bomb(&drops));
            let payload = handle.join().unwrap_err().into_panic().unwrap();
            assert_eq!(drops.load(Ordering::SeqCst), 1);
            assert!(payload.is::<Counted>());
            drop(payload);
            assert_eq!(drops.load(Ordering::SeqCst), 2);

            drop::<JoinHandle<()>>(go(bomb(&drops)));
            matrix::yield_until("the end", || heist::num_goroutines() == 1);
            assert_eq!(drops.load(Ordering::SeqCst), 4);

            let handle: JoinHandle<()> = go(bomb(&drops));
            matrix::yield_until("the end", || handle.is_finished());
            drop(handle);
            assert_eq!(drops.load(Ordering::SeqCst), 6);
        });
    });
}

/// A result whose destructor panics harms no other goroutine.
#[test]
fn a_result_that_panics_when_dropped_ends_its_goroutine_alone() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new("dropped"));
        }
    }
    matrix::run(|| {
        let gate = open();
        let waiter = gate.clone();
        drop(go(move || {
            waiter.wait();
            Bomb
        }));
        // The result can no longer be taken, so the goroutine itself drops it.
        gate.done();
        let n: u64 = (0..10).map(|i| go(move || i).join().unwrap()).sum();
        assert_eq!(n, 45);
        matrix::yield_until("the end", || heist::num_goroutines() == 1);
    });
}

/// A plain thread, a goroutine and a goroutine of another runtime may join, and pass the handle on.
#[test]
fn threads_and_other_runtimes_may_join() {
    matrix::each(|_, rt| {
        let other = matrix::plain(2);
        let from_thread = rt.handle().spawn(|| 1);
        assert_eq!(from_thread.join().unwrap(), 1);
        let passed_on = rt.run(|| go(|| 2));
        assert_eq!(other.run(|| passed_on.join().unwrap()), 2);
        let threads: Vec<_> = (0..4)
            .map(|i| {
                let handle = rt.handle().spawn(move || i);
                std::thread::spawn(move || handle.join().unwrap())
            })
            .collect();
        for (i, thread) in threads.into_iter().enumerate() {
            assert_eq!(thread.join().unwrap(), i);
        }
    });
}

/// A result outlives its runtime.
#[test]
fn a_result_can_be_taken_after_the_runtime_is_gone() {
    for procs in [1, 4] {
        let rt = matrix::plain(procs);
        let finished = rt.run(|| go(|| vec![1, 2, 3]));
        let parked = rt.run(|| go(|| WaitGroup::clone(&open()).wait()));
        matrix::eventually("the end", || finished.is_finished());
        drop(rt);
        assert_eq!(finished.join().unwrap(), [1, 2, 3]);
        assert!(parked.join().unwrap_err().is_cancelled());
    }
}

/// A group that is never done.
fn open() -> WaitGroup {
    let group = WaitGroup::new();
    group.add(1);
    group
}

/// `is_finished` turns true at the end and stays true.
#[test]
fn is_finished_turns_true_at_the_end() {
    matrix::run(|| {
        let gate = open();
        let waiter = gate.clone();
        let handle = go(move || waiter.wait());
        for _ in 0..5 {
            yield_now();
            assert!(!handle.is_finished());
        }
        gate.done();
        matrix::yield_until("the end", || handle.is_finished());
        assert!(handle.is_finished());
        handle.join().unwrap();
    });
}

/// A goroutine whose handle is dropped continues to run.
#[test]
fn dropping_the_handle_detaches() {
    matrix::run(|| {
        let group = WaitGroup::new();
        group.add(50);
        for _ in 0..50 {
            let group = group.clone();
            drop(go(move || {
                yield_now();
                group.done();
            }));
        }
        group.wait();
    });
}

/// Names and numbers are those of the goroutine.
#[test]
fn a_handle_knows_name_and_number() {
    matrix::run(|| {
        let plain = go(|| heist::current_id().unwrap());
        let id = plain.id();
        assert_eq!(plain.name(), None);
        assert!(format!("{plain:?}").contains(&id.to_string()));
        assert_eq!(plain.join().unwrap(), id);

        let named = Builder::new().name("parser").spawn(|| ()).unwrap();
        assert_eq!(named.name(), Some("parser"));
        matrix::yield_until("the end", || named.is_finished());
        assert_eq!(named.name(), Some("parser"), "also after its end");
        named.join().unwrap();
    });
}

/// Errors say which goroutine it was and what happened.
#[test]
fn an_error_says_what_happened() {
    matrix::run(|| {
        let handle = go(|| std::panic::resume_unwind(Box::new("no luck".to_owned())));
        let id = handle.id();
        let error = heist::JoinHandle::<()>::join(handle).unwrap_err();
        assert_eq!(error.id(), id);
        assert!(error.is_panic() && !error.is_cancelled() && !error.is_exited());
        assert_eq!(error.panic_message(), Some("no luck"));
        assert_eq!(error.to_string(), format!("goroutine {id} panicked: no luck"));

        let error = JoinHandle::<()>::join(go(|| heist::exit_current())).unwrap_err();
        assert!(error.is_exited() && !error.is_panic());
        let id = error.id();
        assert_eq!(error.to_string(), format!("goroutine {id} ended itself"));
        assert!(error.into_panic().unwrap_err().is_exited());
    });
}
