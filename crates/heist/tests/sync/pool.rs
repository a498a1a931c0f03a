//! The pool: where values come from, how they age, and that a value has one owner at a time.

use crate::matrix;

use heist::go;
use heist::sync::{Pool, WaitGroup};
use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// SY-25: a value comes from the private place first, then from the own shelf, the youngest first,
/// then from the aged values, then it is new.
#[test]
fn values_come_from_the_nearest_place() {
    matrix::plain(1).run(|| {
        let pool = Pool::new(|| "new");
        assert_eq!(pool.get(), "new");
        pool.put("aged");
        pool.age();
        ["private", "older", "younger"].into_iter().for_each(|value| pool.put(value));
        let got: Vec<_> = (0..6).map(|_| pool.get()).collect();
        assert_eq!(got, ["private", "younger", "older", "aged", "new", "new"]);
        assert_eq!(pool.try_get(), None);
    });
}

/// SY-25: a processor that has nothing takes from the shelf of another, from its old end, and
/// leaves its private place alone.
#[test]
fn an_empty_shelf_steals_from_another() {
    matrix::whole_slices(2).run(|| {
        let pool = Arc::new(Pool::new(|| "new"));
        ["private", "older", "younger"].into_iter().for_each(|value| pool.put(value));
        let thief = Arc::clone(&pool);
        let elsewhere = go(move || {
            let (_, p) = heist::testing::m_and_p().unwrap();
            (p, [thief.get(), thief.get(), thief.get()])
        });
        // This goroutine keeps its processor.
        while !elsewhere.is_finished() {
            spin_loop();
        }
        let (p, got) = elsewhere.join().unwrap();
        assert_ne!(p, heist::testing::m_and_p().unwrap().1);
        assert_eq!(got, ["older", "younger", "new"]);
        assert_eq!(pool.get(), "private");
    });
}

/// SY-25: a value outlives one ageing and not two, and each is dropped once.
#[test]
fn values_outlive_one_ageing() {
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    matrix::run(|| {
        let dropped = Arc::new(AtomicUsize::new(0));
        let n_dropped = || dropped.load(Ordering::Relaxed);
        let pool = Pool::new(|| Counted(Arc::clone(&dropped)));
        (0..100).for_each(|_| pool.put(Counted(Arc::clone(&dropped))));
        assert_eq!(n_dropped(), 0);
        pool.age();
        assert_eq!(n_dropped(), 0, "they have aged once");
        let used: Vec<_> = (0..30).map(|_| pool.get()).collect();
        used.into_iter().for_each(|value| pool.put(value));
        pool.age();
        assert_eq!(n_dropped(), 70, "what was used is young again");
        pool.age();
        assert_eq!(n_dropped(), 100);
        pool.put(Counted(Arc::clone(&dropped)));
        drop(pool);
        assert_eq!(n_dropped(), 101);
    });
}

/// SY-25: ten goroutines put and get: no goroutine gets a value that another has, or that was not
/// put.
#[test]
fn a_value_has_one_owner() {
    struct Value {
        number: usize,
        in_use: AtomicBool,
    }
    static MADE: AtomicUsize = AtomicUsize::new(0);
    static POOL: Pool<Arc<Value>> = Pool::new(|| {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        Arc::new(Value { number, in_use: AtomicBool::new(false) })
    });
    fn use_some(rounds: usize) {
        for round in 0..rounds {
            let values: [_; 3] = std::array::from_fn(|_| POOL.get());
            for value in &values {
                assert!(
                    !value.in_use.swap(true, Ordering::Acquire),
                    "{} has two users",
                    value.number
                );
            }
            if round % 64 == 0 {
                heist::yield_now();
            }
            for value in values {
                value.in_use.store(false, Ordering::Release);
                POOL.put(value);
            }
        }
    }
    const ROUNDS: usize = 10_000;
    matrix::stress(4, |round| {
        let procs = [1, 2, 4, 16][round as usize % 4];
        matrix::plain(procs).run(|| {
            let group = WaitGroup::new();
            (0..10).for_each(|_| group.go(move || use_some(ROUNDS)));
            for _ in 0..5 {
                POOL.age();
                heist::yield_now();
            }
            group.wait();
        });
    });
}
