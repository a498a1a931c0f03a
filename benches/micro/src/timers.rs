//! The heap of timers, without a clock.

use heist_core::rng::Rng;
use heist_core::timer_heap::{Entry, TimerHeap};

use crate::Repeat;

/// One timer is added and one is due, beside `OTHERS` that wait for random times.
pub fn heap<const OTHERS: usize>() -> Repeat {
    const SPAN: u32 = 1 << 30;
    let mut heap = TimerHeap::new(Vec::with_capacity(OTHERS / 4 + 2));
    let mut rng = Rng::new(1);
    let mut now = 0;
    for _ in 0..OTHERS {
        assert!(heap.push(Entry { when: u64::from(rng.below(SPAN)), what: 0_u64 }));
    }
    Box::new(move |n| {
        for _ in 0..n {
            assert!(heap.push(Entry { when: now + u64::from(rng.below(SPAN)), what: 0 }));
            now = heap.earliest();
            heap.pop_due(now).expect("the earliest is due at its own time");
        }
    })
}
