//! Dumps: every goroutine with its number, what it does, and who made it where.

mod matrix;

use heist::goroutine::Builder;
use heist::sync::WaitGroup;
use heist::{dump_goroutines, go, num_goroutines, yield_now};

fn headers(dump: &str) -> usize {
    dump.lines().filter(|line| line.starts_with("goroutine ")).count()
}

/// SP-05, SP-06: a dump has one header line for each goroutine that is counted, the caller's first.
#[test]
fn a_dump_has_a_header_for_every_goroutine() {
    matrix::each(|_, rt| {
        rt.run(|| {
            let (gate, parked) = (WaitGroup::new(), WaitGroup::new());
            gate.add(1);
            let handles: Vec<_> = (0..10)
                .map(|_| {
                    parked.add(1);
                    let (gate, parked) = (gate.clone(), parked.clone());
                    go(move || {
                        parked.done();
                        gate.wait();
                    })
                })
                .collect();
            parked.wait();
            let dump = dump_goroutines();
            let own = heist::current_id().unwrap();
            assert!(dump.starts_with(&format!("goroutine {own} [running]:")), "{dump}");
            assert_eq!(headers(&dump), num_goroutines(), "{dump}");
            assert_eq!(headers(&dump), 11, "{dump}");
            // All but the one that was just about to park are parked by now, or soon.
            while dump_goroutines().matches("[sync.WaitGroup.Wait]").count() < 10 {
                yield_now();
            }
            gate.done();
            handles.into_iter().for_each(|handle| handle.join().unwrap());
        });
        // The main goroutine has handed over its result and leaves its stack a moment later.
        while headers(&rt.dump_goroutines()) != 0 {
            std::thread::yield_now();
        }
    });
}

/// SP-24: a dump says which goroutine made another, and where.
#[test]
fn a_dump_names_the_creator() {
    matrix::each(|_, rt| {
        rt.run(|| {
            let gate = WaitGroup::new();
            gate.add(1);
            let waiter = gate.clone();
            let child = Builder::new().name("child").spawn(move || waiter.wait()).unwrap();
            let own = heist::current_id().unwrap();
            let dump = dump_goroutines();
            let at = dump.find(&format!("goroutine {} [", child.id())).unwrap();
            assert!(dump[at..].contains(&format!("created by goroutine {own}\n")), "{dump}");
            assert!(dump[at..].contains("tests/dump.rs:"), "{dump}");
            gate.done();
            child.join().unwrap();
        });
    });
}

/// SP-05: a dump can be made while a panic unwinds.
#[test]
fn a_dump_works_inside_a_panic() {
    struct DumpOnDrop(WaitGroup, std::sync::Arc<std::sync::Mutex<String>>);
    impl Drop for DumpOnDrop {
        fn drop(&mut self) {
            *self.1.lock().unwrap() = dump_goroutines();
            self.0.done();
        }
    }
    matrix::each(|_, rt| {
        let dump = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
        let inner = std::sync::Arc::clone(&dump);
        rt.run(move || {
            let done = WaitGroup::new();
            done.add(1);
            let on_drop = DumpOnDrop(done.clone(), inner);
            let failed = go(move || {
                let _on_drop = on_drop;
                panic!("on purpose");
            });
            done.wait();
            assert!(failed.join().unwrap_err().is_panic());
        });
        assert!(dump.lock().unwrap().starts_with("goroutine "), "{}", dump.lock().unwrap());
    });
}
