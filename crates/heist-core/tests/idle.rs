//! Tests of the idle Ps: the stack and the masks that show it to other threads.
#![cfg(not(loom))]

use heist_core::idle::{IdleProcs, IdleView, ProcMask};

/// IN-20: last in, first out; the count and the idle mask agree with the stack.
#[test]
fn idle_ps_are_last_in_first_out() {
    let (view, mut idle) = (IdleView::new(100), IdleProcs::new(100));
    assert_eq!(idle.take(&view), None);
    for (n, id) in [3, 99, 64, 0].into_iter().enumerate() {
        assert_eq!(view.count(), n as u32);
        idle.put(&view, id, false);
        assert!(view.idle.contains(id));
    }
    assert_eq!((view.count(), view.idle.count()), (4, 4));
    assert_eq!(idle.iter().collect::<Vec<_>>(), [0, 64, 99, 3]);
    for id in [0, 64, 99, 3] {
        assert_eq!(idle.take(&view), Some(id));
        assert!(!view.idle.contains(id));
    }
    assert_eq!((idle.take(&view), view.count(), view.idle.count()), (None, 0, 0));
}

/// IN-20: the timer bit is cleared only if the P has no timers, and set when it is taken.
#[test]
fn timer_bit_follows_the_timers() {
    for has_timers in [false, true] {
        let (view, mut idle) = (IdleView::new(8), IdleProcs::new(8));
        view.timers.set(5);
        idle.put(&view, 5, has_timers);
        assert_eq!(view.timers.contains(5), has_timers);
        assert_eq!(idle.take(&view), Some(5));
        assert!(view.timers.contains(5), "a P that was taken may add timers");
    }
}

/// IN-20, IN-32: a given P can be taken wherever it is; the others keep their order.
#[test]
fn given_p_can_be_taken() {
    for taken in 0..4 {
        let (view, mut idle) = (IdleView::new(4), IdleProcs::new(4));
        for id in 0..4 {
            idle.put(&view, id, false);
        }
        assert!(idle.take_this(&view, taken));
        assert!(!idle.take_this(&view, taken), "it is not there any more");
        assert!(!view.idle.contains(taken) && view.timers.contains(taken));
        assert_eq!(view.count(), 3);
        let left: Vec<u32> = (0..4).rev().filter(|&id| id != taken).collect();
        assert_eq!(idle.iter().collect::<Vec<_>>(), left);
    }
}

/// IN-20: an idle P cannot be put on the stack again.
#[test]
#[should_panic(expected = "throw: IdleProcs::put: P2 is idle already")]
fn idle_p_cannot_be_put_again() {
    let (view, mut idle) = (IdleView::new(4), IdleProcs::new(4));
    idle.put(&view, 2, false);
    idle.put(&view, 2, false);
}

/// IN-20: a mask holds every P of its capacity, and a bit does not touch its neighbours.
#[test]
fn mask_keeps_bits_apart() {
    for capacity in [1, 63, 64, 65, 4096] {
        let mask = ProcMask::new(capacity);
        for id in [0, capacity / 2, capacity - 1] {
            mask.set(id);
            mask.set(id);
            assert_eq!(mask.count(), 1);
            assert!((0..capacity).all(|other| mask.contains(other) == (other == id)));
            mask.clear(id);
            assert_eq!(mask.count(), 0);
        }
    }
}

/// Idle reserved Ps are on their own stack and are not counted with the others.
#[test]
fn reserved_ps_are_kept_apart() {
    let (view, mut idle) = (IdleView::with_reserved(8, 2), IdleProcs::new(8));
    for id in 0..4 {
        idle.put(&view, id, false);
    }
    assert_eq!((view.count(), view.count_reserved(), view.count_all()), (2, 2, 4));
    assert!(view.is_reserved(1) && !view.is_reserved(2));
    assert_eq!([idle.take(&view), idle.take(&view), idle.take(&view)], [Some(3), Some(2), None]);
    assert_eq!(idle.take_reserved(&view), Some(1));
    assert_eq!(idle.take_any(&view), Some(0));
    assert_eq!(idle.take_any(&view), None);
    assert_eq!(view.count_all(), 0);
    idle.put(&view, 1, false);
    assert!(idle.take_this(&view, 1));
    assert_eq!(view.count_reserved(), 0);
}

/// MT-11: the idle time is the sum over all Ps, however they become idle and busy.
#[test]
fn idle_time_adds_up() {
    use std::cell::Cell;
    thread_local!(static NOW_NS: Cell<u64> = const { Cell::new(50) });
    let after = |ns: u64| NOW_NS.set(NOW_NS.get() + ns);
    let view = IdleView::with_reserved(8, 1);
    let mut idle = IdleProcs::with_clock(8, || NOW_NS.get());
    let rested = |idle: &IdleProcs| idle.rested_ns(NOW_NS.get());
    after(1000);
    assert_eq!(rested(&idle), 0);
    (0..3).for_each(|id| idle.put(&view, id, false));
    after(10);
    assert_eq!(rested(&idle), 30);
    assert_eq!(idle.take(&view), Some(2));
    after(100);
    assert_eq!(rested(&idle), 30 + 200);
    assert!(idle.take_this(&view, 1));
    after(1000);
    assert_eq!(idle.take_reserved(&view), Some(0));
    after(10_000);
    assert_eq!(rested(&idle), 30 + 200 + 1000);
    idle.put(&view, 5, true);
    after(7);
    assert_eq!(idle.take_any(&view), Some(5));
    assert_eq!(rested(&idle), 30 + 200 + 1000 + 7);
    // A clock that goes back subtracts nothing.
    assert_eq!(idle.rested_ns(0), 30 + 200 + 1000 + 7);
}
