//! The state of the scheduler as JSON: what each P and M does, and the totals.
//!
//! Reading it stops nothing and takes the scheduler lock for a few loads only, so its parts are of
//! slightly different moments.

use super::json::{self, Json};
use super::routes::Context;
use crate::gmp::described::Described;
use crate::gmp::{G, M, P};
use crate::metrics::shard::VICTIMS;
use crate::metrics::{Histogram, Metrics};
use crate::sched::Sched;
use crate::snapshot::Group;
use crate::sys::clock;
use heist_core::m_word::Place;
use std::time::Instant;

/// The most groups of goroutines that are listed.
const GROUPS_MAX: usize = 100;
/// The most threads that are listed.
const THREADS_MAX: usize = 512;

/// The answer of `/debug/sched.json`.
pub(super) fn sched_json(context: &Context) -> String {
    let sched = context.sched();
    let metrics = Metrics::read(sched);
    let groups = sched.census();
    json::object(|json| {
        write_identity(json, sched);
        write_totals(json, sched, &metrics);
        json.array("ps", |list| {
            let now = Instant::now();
            for pp in sched.all_ps() {
                list.item(|item| write_p(item, context, pp, now));
            }
        });
        write_threads(json, sched);
        write_thefts(json, sched);
        if let Some(latencies) = metrics.histogram("/sched/latencies:seconds") {
            json.object("latency", |json| write_histogram(json, latencies));
        }
        write_counters(json, &metrics);
        write_groups(json, &groups);
    })
}

fn write_identity(json: &mut Json<'_>, sched: &Sched) {
    json.string("version", env!("CARGO_PKG_VERSION"));
    json.string("name", &sched.config.name);
    json.number("pid", std::process::id());
    json.number("uptime_ns", sched.life.age_ns(clock::now_ns()));
}

fn write_totals(json: &mut Json<'_>, sched: &Sched, metrics: &Metrics) {
    let of = |name| metrics.get(name).unwrap_or_default();
    let idle_threads = {
        let locked = sched.lock.lock();
        locked.idle_ms.len()
    };
    json.number("procs", sched.procs());
    json.number("procs_idle", sched.rest.idle().count_all());
    json.number("spinning", sched.rest.n_spinning());
    json.number("threads", of("/sched/threads/total:threads"));
    json.number("threads_idle", idle_threads);
    json.number("global_queue", sched.global_len().get());
    json.number("held_back", sched.threads.n_held_back());
    json.number("timers", of("/heist/timers:timers"));
    json.number("net_waiters", of("/heist/poll/waiters:goroutines"));
    json.number("goroutines", of("/sched/goroutines:goroutines"));
    json.object("states", |json| {
        json.number("running", of("/sched/goroutines/running:goroutines"));
        json.number("runnable", of("/sched/goroutines/runnable:goroutines"));
        json.number("blocked", of("/sched/goroutines/not-in-go:goroutines"));
        json.number("waiting", of("/sched/goroutines/waiting:goroutines"));
    });
}

fn write_p(json: &mut Json<'_>, context: &Context, pp: &P, now: Instant) {
    let sched = context.sched();
    // SAFETY: null, or an M, which lives as long as the runtime.
    let m = unsafe { pp.m().as_ref() };
    let gp = m.and_then(M::current);
    json.number("id", pp.id);
    json.string("state", state_of_p(sched, pp, m));
    json.maybe("m", m.map(|m| m.id));
    match gp {
        Some(gp) => json.object("g", |json| write_g(json, gp)),
        None => json.maybe("g", None::<u8>),
    }
    let run = gp.map(|gp| (gp.id.get(), pp.stats.executed.get()));
    let seen = context.watch.see(pp.id, run, now);
    json.maybe("seen_ns", seen.map(|seen| seen.as_nanos()));
    json.number("queue", pp.queue.ring_len());
    json.flag("next", pp.queue.has_next());
    json.number("yielded", pp.yielded.len());
    json.number("timers", pp.timers.len());
    json.number("tick", pp.tick());
    json.number("executed", pp.stats.executed.get());
    json.number("stolen", pp.stats.stolen.get());
    json.number("steal_attempts", pp.stats.steal_attempts.get());
    json.flag("reserved", pp.is_reserved);
}

fn state_of_p(sched: &Sched, pp: &P, m: Option<&M>) -> &'static str {
    match m {
        None if sched.world.is_stopping() => "stopped",
        None => "idle",
        Some(m) => match (m.current(), m.word.stamp().place()) {
            (Some(_), Place::Blocked) => "blocked",
            (Some(_), _) => "running",
            (None, _) if m.spinning.get() => "spinning",
            (None, _) if sched.rest.idle().idle.contains(pp.id) => "idle",
            (None, _) => "scheduling",
        },
    }
}

/// A goroutine in short, as it is listed at the P that runs it.
pub(super) fn write_g(json: &mut Json<'_>, gp: &G) {
    json.number("id", gp.id.get());
    if let Some(name) = gp.extras.name() {
        json.string("name", name.as_str());
    }
    if let Some(site) = gp.spawn_site() {
        json.string("site", &site.to_string());
    }
    json.string("state", Described::state_of(gp));
}

fn write_threads(json: &mut Json<'_>, sched: &Sched) {
    json.array("ms", |list| {
        let all = sched.threads.all_ms().iter().filter(|m| m.tid() != 0);
        for m in all.take(THREADS_MAX) {
            list.item(|json| {
                json.number("id", m.id);
                json.number("tid", m.tid());
                json.string("state", state_of_m(m));
                json.maybe("p", m.p_id());
                json.maybe("g", m.current().map(|gp| gp.id.get()));
                // SAFETY: goroutine records are never unmapped.
                let locked = unsafe { m.bound_g.get().as_ref() };
                json.maybe("locked_g", locked.map(|gp| gp.id.get()));
            });
        }
    });
}

fn state_of_m(m: &M) -> &'static str {
    match (m.current(), m.word.stamp().place(), m.has_p()) {
        (Some(_), Place::Blocked, _) | (Some(_), Place::User, false) => "blocked",
        (Some(_), _, true) => "running",
        (Some(_), Place::Runtime, false) => "frozen",
        (None, _, _) if m.spinning.get() => "spinning",
        (None, _, true) => "scheduling",
        (None, _, false) => "idle",
    }
}

/// How much each P took from each other P.
fn write_thefts(json: &mut Json<'_>, sched: &Sched) {
    let n = (sched.procs() as usize).min(VICTIMS);
    json.array("thefts", |rows| {
        for thief in sched.all_ps().take(n) {
            rows.row(|row| {
                for count in &thief.stolen_from[..n] {
                    row.element(count.get());
                }
            });
        }
    });
}

/// The counts between powers of two, up to the last that is not zero.
fn write_histogram(json: &mut Json<'_>, histogram: &Histogram) {
    let powers: Vec<(f64, u64)> = histogram.powers().collect();
    let used = powers.iter().rposition(|&(_, count)| count != 0).map_or(0, |last| last + 1);
    json.number("count", histogram.count());
    json.number("sum_s", histogram.sum());
    json.array("upper_s", |list| {
        powers[..used].iter().filter(|(edge, _)| edge.is_finite()).for_each(|(edge, _)| {
            list.element(edge);
        });
    });
    json.array("counts", |list| powers[..used].iter().for_each(|(_, count)| list.element(count)));
}

/// All counters by their names in `/metrics`.
fn write_counters(json: &mut Json<'_>, metrics: &Metrics) {
    json.object("counters", |json| {
        for metric in metrics.iter() {
            if metric.description.kind == crate::metrics::Kind::Counter {
                json.number(metric.description.name, metric.value);
            }
        }
    });
}

fn write_groups(json: &mut Json<'_>, groups: &[Group]) {
    json.number("groups_total", groups.len());
    json.array("groups", |list| {
        for group in groups.iter().take(GROUPS_MAX) {
            list.item(|json| {
                json.number("count", group.count);
                json.string("state", group.state);
                json.string("site", &group.spawned_at.to_string());
            });
        }
    });
    let mut reasons: Vec<(&str, usize)> = Vec::new();
    for group in groups {
        match reasons.iter_mut().find(|(state, _)| *state == group.state) {
            Some((_, count)) => *count += group.count,
            None => reasons.push((group.state, group.count)),
        }
    }
    reasons.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    json.array("reasons", |list| {
        for (state, count) in reasons {
            list.item(|json| {
                json.string("state", state);
                json.number("count", count);
            });
        }
    });
}
