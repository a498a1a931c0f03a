//! tmp
use heist::Runtime;
#[test]
fn basics() {
    for procs in [1, 2, 4, 16] {
        let rt = unsafe { Runtime::builder().procs(procs).build() }.unwrap();
        let n = rt.run(|| {
            let hs: Vec<_> = (0..10000u64)
                .map(|i| {
                    heist::go(move || {
                        if i % 3 == 0 {
                            heist::yield_now()
                        }
                        i
                    })
                })
                .collect();
            hs.into_iter().map(|h| h.join().unwrap()).sum::<u64>()
        });
        assert_eq!(n, 10000 * 9999 / 2);
        fn fib(n: u64) -> u64 {
            if n < 2 {
                n
            } else {
                let a = heist::go(move || fib(n - 1));
                fib(n - 2) + a.join().unwrap()
            }
        }
        assert_eq!(rt.run(|| fib(18)), 2584);
        let e = rt.run(|| {
            heist::go(|| {
                if true {
                    panic!("x")
                }
            })
            .join()
            .unwrap_err()
        });
        assert!(e.is_panic());
        fn deep(n: u64) -> u64 {
            let a = [n; 32];
            std::hint::black_box(&a);
            if n == u64::MAX { 0 } else { deep(n + 1) + a[3] }
        }
        let e = rt.run(|| heist::go(|| deep(0)).join().unwrap_err());
        assert!(e.is_stack_overflow(), "{e}");
        eprintln!(
            "{}",
            rt.metrics()
                .to_prometheus()
                .lines()
                .filter(|l| !l.starts_with('#'))
                .collect::<Vec<_>>()
                .join("\n")
        );
    }
}
