//! A request makes no allocation.

use crate::{turns, wire};

use crate::counting::allocations;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

/// NP-21: reads and writes, with deadlines and with waits, allocate nothing.
#[test]
fn requests_allocate_nothing() {
    let _turn = turns::alone();
    // SAFETY: nothing here is bound to a thread.
    let rt = unsafe { heist::Runtime::builder().procs(2).build() }.expect("the runtime starts");
    rt.run(|| {
        let (mut near, far) = wire::pair();
        let echo = heist::go(move || wire::echo(far));
        let mut buffer = [0; 64];
        let mut ask = |n: u32| {
            for _ in 0..n {
                let until = Instant::now().checked_add(Duration::from_secs(60));
                near.set_read_deadline(until).expect("a deadline");
                near.write_all(&buffer).expect("writes");
                near.read_exact(&mut buffer).expect("reads");
            }
        };
        ask(100);
        let before = allocations();
        ask(1000);
        let after = allocations();
        // There are two reads and two writes in a request. A thread that the scheduler starts
        // meanwhile allocates as well, a few times.
        assert!(after - before < 250, "{} allocations in 1000 requests", after - before);
        drop(near);
        echo.join().expect("ends well");
    });
}
