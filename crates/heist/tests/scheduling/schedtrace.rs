//! `HEIST_DEBUG=schedtrace`: lines in Go's format.

use crate::child;
use crate::matrix;

use heist::go;
use heist::sync::WaitGroup;
use std::time::Duration;

/// A line of the trace, taken apart. Panics if it is not exactly as Go writes it.
#[derive(Debug)]
struct Line {
    ms: u64,
    procs: usize,
    idle_procs: usize,
    threads: usize,
    idle_threads: usize,
    run_queue: u64,
    queues: Vec<u64>,
    ticks: Vec<u64>,
}

fn fields<'a>(text: &'a str, names: &[&str]) -> Vec<&'a str> {
    let words: Vec<_> = text.split(' ').collect();
    assert_eq!(words.len(), names.len(), "{text:?}");
    let value = |(word, name): (&&'a str, &&str)| {
        let (found, value) = word.split_once('=').unwrap_or_else(|| panic!("{word:?} in {text:?}"));
        assert_eq!(found, *name, "{text:?}");
        value
    };
    words.iter().zip(names).map(value).collect()
}

const SUMMARY: [&str; 7] = [
    "gomaxprocs",
    "idleprocs",
    "threads",
    "spinningthreads",
    "needspinning",
    "idlethreads",
    "runqueue",
];

fn numbers(list: &str) -> Vec<u64> {
    list.split(' ').map(|word| word.parse().expect("a number")).collect()
}

fn parse(line: &str) -> Line {
    let (head, rest) = line.split_once("ms: ").expect("a time");
    let ms = head.strip_prefix("SCHED ").expect("SCHED").parse().expect("milliseconds");
    let (summary, lists) = rest.split_once(" [ ").expect("a list of queues");
    let (queues, ticks) = lists.split_once(" ] schedticks=[ ").expect("a list of ticks");
    let ticks = ticks.strip_suffix(" ]").expect("the end of the list");
    let values: Vec<u64> =
        fields(summary, &SUMMARY).iter().map(|value| value.parse().expect("a number")).collect();
    Line {
        ms,
        procs: values[0] as usize,
        idle_procs: values[1] as usize,
        threads: values[2] as usize,
        idle_threads: values[5] as usize,
        run_queue: values[6],
        queues: numbers(queues),
        ticks: numbers(ticks),
    }
}

/// The output of a child that runs `body` with these settings.
fn trace(debug: &str, procs: usize, body: impl FnOnce() + Send) -> Vec<String> {
    let ended = child::run_with(
        |command| {
            command.env("HEIST_DEBUG", debug);
        },
        || matrix::start(heist::Runtime::builder().procs(procs)).run(body),
    );
    ended.succeeded();
    ended.stderr.lines().map(str::to_owned).collect()
}

fn hold_hogs(n: usize) {
    let stop = std::time::Instant::now() + Duration::from_millis(150);
    let hogs: Vec<_> = (0..n)
        .map(|_| {
            go(move || {
                while std::time::Instant::now() < stop {
                    std::hint::spin_loop();
                }
            })
        })
        .collect();
    hogs.into_iter().for_each(|hog| hog.join().unwrap());
}

/// MT-24: the lines have Go's form, and their numbers fit together: work waits while all processors
/// are busy, and ticks only grow.
#[test]
fn lines_are_as_go_writes_them() {
    let lines = trace("schedtrace=10", 2, || hold_hogs(8));
    let lines: Vec<_> =
        lines.iter().filter(|line| line.starts_with("SCHED ")).map(|line| parse(line)).collect();
    assert!(lines.len() >= 5, "{lines:?}");
    for line in &lines {
        assert_eq!((line.procs, line.queues.len(), line.ticks.len()), (2, 2, 2), "{line:?}");
        assert!(line.idle_procs <= 2 && line.idle_threads <= line.threads, "{line:?}");
    }
    for pair in lines.windows(2) {
        assert!(pair[0].ms + 10 <= pair[1].ms, "{pair:?}");
        assert!(pair[0].ticks.iter().zip(&pair[1].ticks).all(|(a, b)| a <= b), "{pair:?}");
    }
    let waiting =
        |line: &&Line| line.idle_procs == 0 && line.run_queue + line.queues.iter().sum::<u64>() > 0;
    assert!(lines.iter().any(|line| waiting(&line)), "{lines:?}");
}

/// MT-26: with the trace on sysmon does not sleep without a timeout: a program that does nothing is
/// traced too.
#[test]
fn an_idle_program_is_traced() {
    let lines = trace("schedtrace=20", 3, || {
        heist::time::sleep(Duration::from_millis(500));
    });
    let lines: Vec<_> =
        lines.iter().filter(|line| line.starts_with("SCHED ")).map(|line| parse(line)).collect();
    let idle: Vec<_> = lines.iter().filter(|line| line.idle_procs == 3).collect();
    assert!(idle.len() >= 8, "{lines:?}");
    // Long after all processors became idle.
    assert!(idle.last().unwrap().ms >= 300, "{lines:?}");
}

/// Without it nothing is printed, and `schedtrace=0` is without it.
#[test]
fn nothing_is_traced_unless_asked() {
    let lines = trace("schedtrace=0,scheddetail=1", 1, || {
        heist::time::sleep(Duration::from_millis(50));
    });
    assert!(!lines.iter().any(|line| line.starts_with("SCHED")), "{lines:?}");
}

/// MT-25: with `scheddetail=1` the first line has four more fields, and each P, M and goroutine has
/// a line of its own.
#[test]
fn the_detail_has_a_line_for_each() {
    let lines = trace("schedtrace=20,scheddetail=1", 2, || {
        let gate = WaitGroup::new();
        gate.add(1);
        let parked = gate.clone();
        let parked = go(move || parked.wait());
        let blocked = go(|| heist::blocking(|| std::thread::sleep(Duration::from_millis(150))));
        let locked = heist::goroutine::Builder::new()
            .os_thread()
            .spawn(|| heist::time::sleep(Duration::from_millis(150)))
            .unwrap();
        hold_hogs(1);
        gate.done();
        [parked, blocked, locked].into_iter().for_each(|handle| handle.join().unwrap());
    });
    let mut summary = SUMMARY.to_vec();
    summary.extend(["gcwaiting", "nmidlelocked", "stopwait", "sysmonwait"]);
    let p = ["status", "schedtick", "syscalltick", "m", "runqsize", "gfreecnt", "timerslen"];
    let m = [
        "p",
        "curg",
        "mallocing",
        "throwing",
        "preemptoff",
        "locks",
        "dying",
        "spinning",
        "blocked",
        "lockedg",
    ];
    let mut seen = [0; 4];
    let mut goroutines = Vec::new();
    let mut locked_threads = 0;
    for line in &lines {
        if let Some((head, rest)) = line.split_once("ms: ")
            && head.starts_with("SCHED ")
        {
            assert_eq!(fields(rest, &summary)[7], "false");
            seen[0] += 1;
        } else if let Some(rest) = line.strip_prefix("  P") {
            let (_, rest) = rest.split_once(": ").unwrap();
            assert!(["0", "1"].contains(&fields(rest, &p)[0]), "{line}");
            seen[1] += 1;
        } else if let Some(rest) = line.strip_prefix("  M") {
            let (_, rest) = rest.split_once(": ").unwrap();
            let values = fields(rest, &m);
            assert!(["true", "false"].contains(&values[7]), "{line}");
            locked_threads += usize::from(values[9] != "nil");
            seen[2] += 1;
        } else if let Some(rest) = line.strip_prefix("  G") {
            let (status, rest) = rest.split_once(": status=").unwrap().1.split_once(") ").unwrap();
            fields(rest, &["m", "lockedm"]);
            goroutines.push((status.to_owned(), rest.to_owned()));
            seen[3] += 1;
        }
    }
    assert!(seen[0] >= 3 && seen[1] >= 2 * seen[0] - 2 && seen[2] >= seen[0], "{seen:?}");
    let has = |wanted: &str| goroutines.iter().any(|(status, _)| status == wanted);
    for wanted in ["2(", "3(", "4(sync.WaitGroup.Wait", "4(sleep", "4(goroutine join"] {
        assert!(has(wanted), "no {wanted:?} among {goroutines:?}");
    }
    assert!(locked_threads > 0);
    assert!(goroutines.iter().any(|(_, rest)| !rest.ends_with("lockedm=nil")));
}

/// A value that cannot be parsed is refused at the start.
#[test]
fn nonsense_is_refused() {
    for nonsense in ["schedtrace", "schedtrace=often", "schedtrace=-1", "scheddetail=2"] {
        let ended = child::run_with(
            |command| {
                command.env("HEIST_DEBUG", nonsense);
            },
            || {
                // SAFETY: it is not built.
                let refused = unsafe { heist::Runtime::builder().build() }.unwrap_err();
                assert!(refused.to_string().contains("sched"), "{refused}");
            },
        );
        ended.succeeded();
    }
}
