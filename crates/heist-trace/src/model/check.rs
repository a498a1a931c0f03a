//! Whether an event is allowed where it stands.

use super::Rule;
use super::event::Event;
use super::machine::{Doing, M, Machine, is_newer};
use crate::record::{Context, Kind};

type Problems = Vec<(Rule, String)>;

impl Machine {
    /// Adds the rules that the event breaks. What is not known breaks nothing.
    pub(super) fn check(&self, event: &Event, problems: &mut Problems) {
        let m = self.m(event.writer);
        if let Some(m) = m
            && m.parked
            && event.kind != Kind::MUnpark
        {
            problems.push((Rule::Asleep, "the M sleeps".to_owned()));
        }
        let g = self.goroutine_of(event);
        // sysmon looks at a goroutine from outside, which may have ended before that is noted.
        let is_late = matches!(event.kind, Kind::GoCreate | Kind::Stuck);
        if g != 0 && self.is_dead(g) && !is_late {
            problems.push((Rule::DeadStaysDead, format!("goroutine {g} has ended")));
            return;
        }
        match event.kind {
            Kind::GoCreate => self.check_create(event, problems),
            Kind::GoStart => self.check_start(event, m, problems),
            Kind::GoUnblock | Kind::GoDrop => self.check_unblock(event, problems),
            Kind::GoStop | Kind::GoFreeze | Kind::GoBlock | Kind::GoEnd => {
                self.check_leave(event, g, m, problems);
            }
            Kind::ProcStart | Kind::ProcStop | Kind::ProcTake => {
                self.check_proc(event, m, problems);
            }
            Kind::Steal => check_steal(event, m, problems),
            Kind::CallStart | Kind::CallStop => self.check_call(event, g, m, problems),
            Kind::RegionStop => self.check_region(event, g, problems),
            Kind::WorldStop | Kind::WorldStart => {
                let stopped = self.world_stopped.is_some();
                if self.world_known && stopped != (event.kind == Kind::WorldStart) {
                    let words = "the world stops and runs in turn".to_owned();
                    problems.push((Rule::World, words));
                }
            }
            _ => self.check_m(event, m, problems),
        }
    }

    fn check_create(&self, event: &Event, problems: &mut Problems) {
        let id = event.subject;
        let is_known = self.gs.get(&id).is_some_and(|g| g.doing != Doing::Unknown);
        if is_known || self.is_dead(id) {
            problems.push((Rule::CreatedOnce, format!("goroutine {id} exists already")));
        }
    }

    fn check_start(&self, event: &Event, m: Option<&M>, problems: &mut Problems) {
        let id = event.subject;
        let doing = self.doing(id);
        let frozen_elsewhere = doing == Doing::Frozen && self.gs[&id].writer != event.writer;
        if frozen_elsewhere || !matches!(doing, Doing::Unknown | Doing::Runnable | Doing::Frozen) {
            let words = format!("goroutine {id} starts while it is {}", self.words(id));
            problems.push((Rule::StartsRunnable, words));
        } else if let Some(known) = self.number(id)
            && event.number != known.wrapping_add(1)
        {
            let words = format!("goroutine {id} has number {}, not {known} + 1", event.number);
            problems.push((Rule::Order, words));
        }
        let Some(m) = m else {
            return;
        };
        if m.g != 0 {
            let words = format!("goroutine {id} starts while goroutine {} runs here", m.g);
            problems.push((Rule::OneGoroutine, words));
        }
        // No number says what the M did just before it was robbed.
        if m.p.is_none() && !m.robbed {
            problems.push((Rule::RunsWithP, format!("goroutine {id} starts on an M without a P")));
        }
    }

    fn check_unblock(&self, event: &Event, problems: &mut Problems) {
        let id = event.subject;
        let number = self.number(id);
        let waits = matches!(self.doing(id), Doing::Unknown | Doing::Waiting | Doing::Unborn);
        if !waits || number.is_some_and(|number| number != event.number) {
            let known = number.map_or(String::new(), |known| format!(" with number {known}"));
            let words = format!(
                "a wait of goroutine {id} with number {} ends, but it is {}{known}",
                event.number,
                self.words(id)
            );
            problems.push((Rule::WakesWaiting, words));
        }
    }

    fn check_leave(&self, event: &Event, id: u64, m: Option<&M>, problems: &mut Problems) {
        let Some(m) = m else {
            let words = "a thread that is no M runs no goroutine".to_owned();
            problems.push((Rule::LeavesWhereItRuns, words));
            return;
        };
        if m.g != id || id == 0 {
            let words = format!("goroutine {id} does not run here; it is {}", self.words(id));
            problems.push((Rule::LeavesWhereItRuns, words));
            return;
        }
        if self.doing(id) == Doing::InCall {
            let words = format!("goroutine {id} leaves its M inside a blocking call");
            problems.push((Rule::Calls, words));
        }
        if m.p.is_none() && !m.robbed && event.kind != Kind::GoFreeze {
            let words = format!("goroutine {id} ran on an M without a P");
            problems.push((Rule::RunsWithP, words));
        }
        let step = u16::from(event.kind == Kind::GoBlock);
        if let Some(known) = self.number(id)
            && event.number != known.wrapping_add(step)
        {
            let words =
                format!("goroutine {id} has number {}, but {known} + {step} is next", event.number);
            problems.push((Rule::Order, words));
        }
    }

    fn check_proc(&self, event: &Event, m: Option<&M>, problems: &mut Problems) {
        let id = event.subject as u32;
        if event.kind == Kind::ProcStart && self.procs.is_some_and(|procs| id >= procs) {
            let words = format!("there is no P {id}");
            problems.push((Rule::ProcExists, words));
        }
        let holder = self.holder(id);
        let expected = match event.kind {
            Kind::ProcStart => 0,
            Kind::ProcStop => event.writer,
            _ => event.extra.victim,
        };
        if let Some(holder) = holder.filter(|&holder| holder != expected) {
            let by = holder.checked_sub(1).map_or("nobody".to_owned(), |m| format!("M {m}"));
            let rule =
                if event.kind == Kind::ProcStart { Rule::OneHolder } else { Rule::LeavesHolder };
            problems.push((rule, format!("P {id} is held by {by}")));
        } else if event.kind == Kind::ProcTake
            && self.m(expected).is_some_and(|m| m.p.is_none() && !m.robbed)
        {
            problems.push((Rule::LeavesHolder, "the M that is robbed has no P".to_owned()));
        } else if event.kind == Kind::ProcStop && m.is_some_and(|m| m.p != Some(id) && !m.robbed) {
            problems.push((Rule::LeavesHolder, format!("the M does not hold P {id}")));
        } else if let Some(known) = self.p_number(id)
            && event.number != known.wrapping_add(1)
        {
            let words = format!("P {id} has number {}, not {known} + 1", event.number);
            problems.push((Rule::ProcNumber, words));
        }
        if event.kind == Kind::ProcStart
            && let Some(p) = m.and_then(|m| self.sure_p(m))
        {
            problems.push((Rule::OneP, format!("the M holds P {p} already")));
        }
    }

    fn check_call(&self, event: &Event, g: u64, m: Option<&M>, problems: &mut Problems) {
        let starts = event.kind == Kind::CallStart;
        let doing = self.doing(g);
        let fits = if starts { doing == Doing::Running } else { doing == Doing::InCall };
        if g == 0 {
            problems.push((Rule::Calls, "no goroutine runs here".to_owned()));
        } else if !fits && doing != Doing::Unknown {
            let words = format!("goroutine {g} is {}", self.words(g));
            problems.push((Rule::Calls, words));
        } else if event.detail == 1 && !starts && m.is_some_and(|m| self.sure_p(m).is_some()) {
            // The opposite is no error: no number orders a call against the taking of its P.
            let words = "the M lost its P in the call, but nobody took it".to_owned();
            problems.push((Rule::Calls, words));
        }
    }

    fn check_region(&self, event: &Event, g: u64, problems: &mut Problems) {
        // Regions from before the trace are not known.
        if let Some(&inner) = self.regions.get(&g).and_then(|regions| regions.last())
            && inner != event.subject
        {
            let words = format!("goroutine {g} leaves a region inside of another one");
            problems.push((Rule::Regions, words));
        }
    }

    fn check_m(&self, event: &Event, m: Option<&M>, problems: &mut Problems) {
        let Some(m) = m else {
            return;
        };
        match event.kind {
            Kind::MPark if self.sure_p(m).is_some() || m.g != 0 => {
                let words = match m.p {
                    Some(p) => format!("the M falls asleep with P {p}"),
                    None => format!("the M falls asleep while goroutine {} runs", m.g),
                };
                problems.push((Rule::Asleep, words));
            }
            Kind::MUnpark if !m.parked && !m.fresh => {
                problems.push((Rule::Asleep, "the M wakes up, but did not sleep".to_owned()));
            }
            Kind::SpinStart if m.spinning => {
                problems.push((Rule::Spins, "the M searches already".to_owned()));
            }
            Kind::SpinStop if !m.spinning => {
                problems.push((Rule::Spins, "the M does not search".to_owned()));
            }
            _ => {}
        }
    }

    /// In which way a buffer begins with something else than the one before it ended with.
    pub(super) fn differs(&self, context: &Context) -> Option<String> {
        let m = self.m(context.writer)?;
        if m.g != context.goroutine {
            return Some(format!(
                "a buffer begins with goroutine {}, but goroutine {} runs here",
                context.goroutine, m.g
            ));
        }
        let p = context.p.checked_sub(1);
        // The M may not know yet that its P was taken.
        let stale = p.is_some_and(|p| {
            self.p_number(p).is_none_or(|known| is_newer(known, context.p_number))
        });
        if m.p != p && !stale {
            return Some(format!(
                "a buffer begins with P {}, but the M holds P {}",
                number_or_none(p),
                number_or_none(m.p)
            ));
        }
        (m.spinning != context.spinning)
            .then(|| "a buffer disagrees with its events about spinning".to_owned())
    }

    /// What a goroutine does, in words.
    #[must_use]
    pub fn words(&self, id: u64) -> String {
        let on =
            |writer: u32| writer.checked_sub(1).map_or(String::new(), |m| format!(" on M {m}"));
        let Some(g) = self.gs.get(&id) else {
            return if self.is_dead(id) { "dead" } else { "unknown" }.to_owned();
        };
        match g.doing {
            Doing::Unknown => "unknown".to_owned(),
            Doing::Unborn => "not born".to_owned(),
            Doing::Runnable => "runnable".to_owned(),
            Doing::Running => format!("running{}", on(g.writer)),
            Doing::Waiting => "waiting".to_owned(),
            Doing::InCall => format!("in a blocking call{}", on(g.writer)),
            Doing::Frozen => format!("frozen{}", on(g.writer)),
        }
    }
}

fn number_or_none(p: Option<u32>) -> String {
    p.map_or("none".to_owned(), |p| p.to_string())
}

fn check_steal(event: &Event, m: Option<&M>, problems: &mut Problems) {
    let Some(m) = m else {
        return;
    };
    let own = m.p.is_some_and(|p| u64::from(p) == event.subject);
    if m.p.is_none() && !m.robbed || own {
        let words = if own { "the P is its own" } else { "the M has no P" };
        problems.push((Rule::Steals, words.to_owned()));
    }
}
