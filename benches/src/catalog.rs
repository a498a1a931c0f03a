//! The list of workloads, their rows, and how names on the command line select them.
//!
//! A workload is one measurement in one process; it yields one row or several (`steal_hot` yields
//! `steal_hot_p50` and `steal_hot_p99`). The JSON file and the report use the row names, so they
//! stay stable.

/// Which direction is better, for ratios and for the colour of a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    Lower,
    Higher,
}

#[derive(Debug)]
pub struct RowSpec {
    pub name: &'static str,
    pub unit: &'static str,
    pub better: Better,
}

#[derive(Debug)]
pub struct Workload {
    pub name: &'static str,
    pub about: &'static str,
    pub rows: &'static [RowSpec],
}

const fn low(name: &'static str, unit: &'static str) -> RowSpec {
    RowSpec { name, unit, better: Better::Lower }
}

const fn high(name: &'static str, unit: &'static str) -> RowSpec {
    RowSpec { name, unit, better: Better::Higher }
}

const fn work(name: &'static str, about: &'static str, rows: &'static [RowSpec]) -> Workload {
    Workload { name, about, rows }
}

pub static WORKLOADS: &[Workload] = &[
    work(
        "spawn_join",
        "one task spawns 1,000,000 empty ones and waits for all on a counter",
        &[low("spawn_join", "ns/spawn")],
    ),
    work(
        "skynet",
        "10-ary tree of tasks with 1,000,000 leaves, sums carried up",
        &[low("skynet", "ms")],
    ),
    work(
        "fib_join",
        "fib(27): a task per fork, the other branch inline, no sequential cut-off",
        &[low("fib_join", "ns/fork")],
    ),
    work(
        "join_fib",
        "fib(30) by the peer's fork-join, no sequential cut-off",
        &[low("join_fib", "ns/fork")],
    ),
    work(
        "join_sort",
        "quicksort of 10,000,000 numbers by fork-join, down to 1000",
        &[low("join_sort", "ms")],
    ),
    work(
        "join_merge",
        "mergesort of 10,000,000 numbers by fork-join, the merges too",
        &[low("join_merge", "ms")],
    ),
    work(
        "join_matrix",
        "product of two matrices of 512 by 512 by fork-join over the rows",
        &[low("join_matrix", "ms")],
    ),
    work(
        "join_nqueens",
        "the 73,712 solutions of 13 queens, a fork per choice",
        &[low("join_nqueens", "ms")],
    ),
    work(
        "join_uneven",
        "the tree of uneven_tree by fork-join over the children",
        &[low("join_uneven", "ms")],
    ),
    work(
        "join_small",
        "a tree of 1023 nodes, a thousand times one after the other",
        &[low("join_small", "us")],
    ),
    work(
        "join_beside_echo",
        "tcp_echo_1000 while fork-join counts queens with the processors that are left",
        &[low("join_beside_echo_p99", "us"), high("join_beside_echo_rate", "boards/s")],
    ),
    work("yield", "2 tasks per proc, each yielding 1,000,000 times", &[low("yield", "ns/yield")]),
    work(
        "ping_pong",
        "two tasks, two unbuffered channels, a token to and fro",
        &[low("ping_pong", "ns/round")],
    ),
    work(
        "chan_mpmc",
        "4 senders, 4 receivers, one channel buffered 128",
        &[low("chan_mpmc", "ns/msg")],
    ),
    work(
        "chan_mpsc",
        "4 senders, 1 receiver, one channel buffered 128",
        &[low("chan_mpsc", "ns/msg")],
    ),
    work(
        "chan_spsc",
        "1 sender, 1 receiver, one channel buffered 128",
        &[low("chan_spsc", "ns/msg")],
    ),
    work(
        "select",
        "2 senders, each with a channel buffered 128, one receiver selecting over both",
        &[low("select", "ns/msg")],
    ),
    work(
        "ring",
        "1000 tasks in a ring of unbuffered channels, one token going round",
        &[low("ring", "ns/hop")],
    ),
    work(
        "mutex",
        "8 tasks taking the runtime's mutex for one addition",
        &[low("mutex", "ns/lock")],
    ),
    work(
        "rwlock",
        "8 tasks taking the runtime's rwlock, one write to nine reads",
        &[low("rwlock", "ns/lock")],
    ),
    work(
        "timers",
        "100,000 sleepers of 1 to 1000 ms: time over the longest sleep, and CPU used",
        &[low("timers_over", "ms"), low("timers_cpu", "ms")],
    ),
    work(
        "parked_100k",
        "100,000 tasks started and parked, then all woken",
        &[
            low("parked_100k_rss", "B/task"),
            low("parked_100k_spawn", "ns/task"),
            low("parked_100k_wake", "ns/task"),
        ],
    ),
    work(
        "parked_1m",
        "1,000,000 tasks started and parked, then all woken",
        &[
            low("parked_1m_rss", "B/task"),
            low("parked_1m_spawn", "ns/task"),
            low("parked_1m_wake", "ns/task"),
        ],
    ),
    work(
        "task_spawn_join",
        "spawn_join with futures: one spawns 1,000,000 empty ones and waits for all",
        &[low("task_spawn_join", "ns/spawn")],
    ),
    work(
        "task_yield",
        "yield with futures: 2 per proc, each yielding 1,000,000 times",
        &[low("task_yield", "ns/yield")],
    ),
    work(
        "task_ping_pong",
        "ping_pong with futures: two unbuffered channels, a token to and fro",
        &[low("task_ping_pong", "ns/round")],
    ),
    work(
        "task_parked_1m",
        "1,000,000 futures that wait at a gate: the memory of each",
        &[low("task_parked_1m_rss", "B/task")],
    ),
    work(
        "task_timers",
        "timers with futures: time over the longest of 100,000 sleeps, and CPU used",
        &[low("task_timers_over", "ms"), low("task_timers_cpu", "ms")],
    ),
    work(
        "steal_hot",
        "spawn of two by a busy task until the first runs elsewhere, the thief still awake",
        &[low("steal_hot_p50", "us"), low("steal_hot_p99", "us")],
    ),
    work(
        "steal_idle",
        "spawn of two by a busy task until the first runs elsewhere, the thief asleep",
        &[low("steal_idle_p50", "us"), low("steal_idle_p99", "us")],
    ),
    work(
        "steal_hot_single",
        "the same as steal_hot with one task spawned, its worker's newest",
        &[low("steal_hot_single_p50", "us"), low("steal_hot_single_p99", "us")],
    ),
    work(
        "steal_idle_single",
        "the same as steal_idle with one task spawned, its worker's newest",
        &[low("steal_idle_single_p50", "us"), low("steal_idle_single_p99", "us")],
    ),
    work(
        "spawn_latency",
        "creation of a task until it runs, in bursts of 1 to 8 by a task that works in between",
        &[
            low("spawn_latency_p50", "us"),
            low("spawn_latency_p95", "us"),
            low("spawn_latency_p99", "us"),
            low("spawn_latency_p9999", "us"),
        ],
    ),
    work(
        "uneven_tree",
        "an unbalanced random tree, a task per node with a little work each",
        &[low("uneven_tree", "ms")],
    ),
    work(
        "hogs",
        "a 1 ms ticker next to 4 endless CPU loops for 3 s, every missed tick counted",
        &[low("hogs_late_p50", "ms"), low("hogs_late_p99", "ms"), low("hogs_late_max", "ms")],
    ),
    work(
        "blocking",
        "a 1 ms ticker next to 100 tasks in announced 50 ms blocking sleeps for 1 s",
        &[
            low("blocking_late_p50", "ms"),
            low("blocking_late_p99", "ms"),
            low("blocking_late_max", "ms"),
        ],
    ),
    work(
        "unannounced",
        "a 1 ms ticker next to 100 tasks in unannounced 50 ms blocking sleeps for 1 s",
        &[
            low("unannounced_late_p50", "ms"),
            low("unannounced_late_p99", "ms"),
            low("unannounced_late_max", "ms"),
        ],
    ),
    work(
        "tcp_echo_64",
        "64 connections echoing 64 bytes, one load generator for everyone",
        &[
            high("tcp_echo_64", "req/s"),
            low("tcp_echo_64_p50", "us"),
            low("tcp_echo_64_p99", "us"),
            low("tcp_echo_64_cpu", "us/req"),
        ],
    ),
    work(
        "tcp_echo_1000",
        "1000 connections echoing 64 bytes, one load generator for everyone",
        &[
            high("tcp_echo_1000", "req/s"),
            low("tcp_echo_1000_p50", "us"),
            low("tcp_echo_1000_p99", "us"),
            low("tcp_echo_1000_cpu", "us/req"),
        ],
    ),
    work(
        "http_raw",
        "the same smallest HTTP/1.1 server for everyone, kept alive, under wrk with 64 connections",
        &[high("http_raw", "req/s"), low("http_raw_p50", "us"), low("http_raw_p99", "us")],
    ),
    work(
        "http",
        "the HTTP server of each peer's world, kept alive, under wrk with 64 connections",
        &[high("http", "req/s"), low("http_p50", "us"), low("http_p99", "us")],
    ),
    work(
        "http_hyper",
        "the same hyper server on everyone's futures, under wrk with 64 connections",
        &[high("http_hyper", "req/s"), low("http_hyper_p50", "us"), low("http_hyper_p99", "us")],
    ),
    work(
        "idle_cpu",
        "CPU used in 5 s by a runtime with 100 parked tasks",
        &[low("idle_cpu", "ms")],
    ),
    work(
        "start_stop",
        "build a runtime, run an empty task, shut it down",
        &[low("start_stop", "us")],
    ),
    work(
        "binary_size",
        "stripped size of a program that spawns and joins one task",
        &[low("binary_size", "KiB")],
    ),
];

/// The workloads that take a number of tasks; `scale` runs them, `run` does not.
pub static SIZED: &[Workload] = &[
    work(
        "scale_spawn",
        "so many tasks spawned, run and finished at once",
        &[low("scale_spawn", "ns/task")],
    ),
    work("scale_wake", "so many parked tasks woken at once", &[low("scale_wake", "ns/task")]),
    work(
        "scale_timer",
        "so many tasks asleep at once, each once: CPU time",
        &[low("scale_timer", "ns/task")],
    ),
];

/// Finds a workload by its exact name.
pub fn workload(name: &str) -> Option<&'static Workload> {
    WORKLOADS.iter().chain(SIZED).find(|w| w.name == name)
}

/// The workloads that a name selects: the workload of that row, or the workload of that name, or
/// otherwise all whose names or rows continue it with an underscore.
///
/// A whole name goes first, because `http` is a row and also how `http_raw` begins.
fn named(name: &str) -> Vec<&'static Workload> {
    let is_called = |w: &&Workload| w.name == name || w.rows.iter().any(|r| r.name == name);
    let is_below = |full: &str| full.strip_prefix(name).is_some_and(|rest| rest.starts_with('_'));
    match WORKLOADS.iter().find(is_called) {
        Some(workload) => vec![workload],
        None => {
            let in_group =
                |w: &&Workload| is_below(w.name) || w.rows.iter().any(|r| is_below(r.name));
            WORKLOADS.iter().filter(in_group).collect()
        }
    }
}

/// Turns names (rows, workloads or groups) into workloads, in catalog order, each once.
///
/// # Errors
/// Names the first unknown name and lists the known ones.
pub fn select(names: &[String]) -> Result<Vec<&'static Workload>, String> {
    if names.is_empty() {
        return Ok(WORKLOADS.iter().collect());
    }
    let mut chosen = Vec::new();
    for name in names {
        let named = named(name);
        if named.is_empty() {
            let known: Vec<_> = WORKLOADS.iter().map(|w| w.name).collect();
            return Err(format!("unknown workload '{name}'; known: {}", known.join(", ")));
        }
        chosen.extend(named.iter().map(|w| w.name));
    }
    Ok(WORKLOADS.iter().filter(|w| chosen.contains(&w.name)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(selected: &[&Workload]) -> Vec<&'static str> {
        selected.iter().map(|w| w.name).collect()
    }

    fn pick(list: &[&str]) -> Result<Vec<&'static str>, String> {
        let owned: Vec<String> = list.iter().map(|s| (*s).to_owned()).collect();
        select(&owned).map(|s| names(&s))
    }

    #[test]
    fn no_names_select_everything() {
        assert_eq!(select(&[]).unwrap().len(), WORKLOADS.len());
    }

    #[test]
    fn a_row_selects_its_workload() {
        assert_eq!(pick(&["steal_hot_p99"]).unwrap(), ["steal_hot"]);
        assert_eq!(pick(&["timers_cpu"]).unwrap(), ["timers"]);
    }

    #[test]
    fn a_whole_name_goes_before_a_group() {
        assert_eq!(pick(&["http"]).unwrap(), ["http"]);
        assert_eq!(pick(&["http_raw"]).unwrap(), ["http_raw"]);
        let [hot] = select(&["steal_hot".to_owned()]).unwrap()[..] else { panic!("one workload") };
        let rows: Vec<_> = hot.rows.iter().map(|r| r.name).collect();
        assert_eq!(rows, ["steal_hot_p50", "steal_hot_p99"]);
        assert_eq!(pick(&["steal_hot_single"]).unwrap(), ["steal_hot_single"]);
        assert_eq!(pick(&["steal"]).unwrap().len(), 4);
    }

    #[test]
    fn names_select_in_catalog_order_each_once() {
        assert_eq!(pick(&["yield", "skynet", "yield"]).unwrap(), ["skynet", "yield"]);
    }

    #[test]
    fn a_group_selects_all_below_it() {
        assert_eq!(pick(&["parked"]).unwrap(), ["parked_100k", "parked_1m"]);
        assert_eq!(pick(&["hogs_late"]).unwrap(), ["hogs"]);
        assert_eq!(pick(&["chan"]).unwrap(), ["chan_mpmc", "chan_mpsc", "chan_spsc"]);
        assert_eq!(pick(&["tcp_echo"]).unwrap(), ["tcp_echo_64", "tcp_echo_1000"]);
    }

    #[test]
    fn a_prefix_inside_a_word_selects_nothing() {
        assert!(pick(&["spawn_jo"]).is_err());
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let message = pick(&["yield", "nonsense"]).unwrap_err();
        assert!(message.contains("'nonsense'") && message.contains("skynet"), "{message}");
    }

    #[test]
    fn row_names_are_unique() {
        let mut all: Vec<_> = WORKLOADS.iter().flat_map(|w| w.rows).map(|r| r.name).collect();
        let n_all = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), n_all);
    }
}
