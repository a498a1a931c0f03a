//! What is known about one goroutine.

use crate::spread::Spread;
use heist_trace::file::{Site, State};
use heist_trace::follow::{Appearance, Step};
use heist_trace::record::{End, Stop, Wake};
use std::sync::Arc;

/// What it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// It was made, and waits for the clock before it begins. Nobody sees it.
    Unborn,
    /// It waits for a processor.
    Ready,
    Running,
    /// It runs, in a blocking call.
    InCall,
    /// It waits for something.
    Waiting,
    Ended,
}

/// A goroutine. All times are on the monotonic clock.
#[derive(Clone, Debug)]
pub(crate) struct Goroutine {
    pub(crate) doing: Doing,
    /// Since when it does this.
    since_ns: u64,
    pub(crate) parent: u64,
    pub(crate) class: u8,
    pub(crate) is_task: bool,
    pub(crate) site: Option<Arc<Site>>,
    pub(crate) name: Arc<str>,
    pub(crate) created_ns: u64,
    pub(crate) ended_ns: Option<u64>,
    pub(crate) end: Option<End>,
    /// What it waits for, or waited for last.
    pub(crate) wait_reason: Option<u8>,
    pub(crate) runs: u64,
    pub(crate) first_run_ns: Option<u64>,
    pub(crate) run_started_ns: Option<u64>,
    pub(crate) run_ended_ns: Option<u64>,
    pub(crate) busy_ns: u64,
    pub(crate) ready_ns: u64,
    pub(crate) wakes: u64,
    pub(crate) self_wakes: u64,
    /// When it became ready.
    pub(crate) ready_since_ns: Option<u64>,
    pub(crate) busy: Spread,
    pub(crate) ready: Spread,
    /// The last recording that saw it.
    pub(crate) recording: u64,
    /// The version of the book in which it changed.
    pub(crate) changed: u64,
    /// Counts the changes of what is not a number of it, and that what clients were told last.
    pub(crate) description: u32,
    pub(crate) described: (Doing, Option<u8>),
}

impl Goroutine {
    pub(crate) fn new(appearance: Appearance, time_ns: u64, recording: u64) -> Self {
        let mut goroutine = Self {
            doing: Doing::Waiting,
            since_ns: time_ns,
            parent: appearance.parent,
            class: appearance.class,
            is_task: appearance.is_task,
            site: appearance.site.clone(),
            name: Arc::clone(&appearance.name),
            created_ns: time_ns,
            ended_ns: None,
            end: None,
            wait_reason: None,
            runs: 0,
            first_run_ns: None,
            run_started_ns: None,
            run_ended_ns: None,
            busy_ns: 0,
            ready_ns: 0,
            wakes: 0,
            self_wakes: 0,
            ready_since_ns: None,
            busy: Spread::default(),
            ready: Spread::default(),
            recording,
            changed: 0,
            description: 1,
            described: (Doing::Waiting, None),
        };
        goroutine.resume(&appearance, time_ns, recording);
        goroutine
    }

    /// A recording began, and this is what it says. What happened between it and the last one is
    /// not known, and counts as idle time.
    pub(crate) fn resume(&mut self, seen: &Appearance, time_ns: u64, recording: u64) {
        self.recording = recording;
        let time_ns = time_ns.max(self.since_ns);
        if matches!(self.doing, Doing::Running | Doing::InCall) {
            self.run_ended_ns = self.run_started_ns;
        }
        self.since_ns = time_ns;
        match seen.state {
            State::Unborn => self.doing = Doing::Unborn,
            State::Runnable | State::Frozen => self.become_ready(time_ns),
            State::Running | State::InCall => {
                self.start_run(time_ns);
                if seen.state == State::InCall {
                    self.doing = Doing::InCall;
                }
            }
            State::Waiting => {
                self.doing = Doing::Waiting;
                self.wait_reason = Some(seen.wait_reason);
            }
        }
    }

    /// Notes what it did. `id` is its own.
    pub(crate) fn note(&mut self, id: u64, step: &Step, time_ns: u64) {
        // Clocks of processors differ a little.
        let time_ns = time_ns.max(self.since_ns);
        match *step {
            Step::Appears(_) => {}
            Step::Starts => {
                self.end_ready(time_ns);
                self.start_run(time_ns);
            }
            Step::Stops(why) => {
                self.end_run(time_ns);
                self.become_ready(time_ns);
                if why == Stop::Yield {
                    self.wakes += 1;
                    self.self_wakes += 1;
                }
            }
            Step::Freezes => {
                self.end_run(time_ns);
                self.become_ready(time_ns);
            }
            Step::Waits(reason) => {
                self.end_run(time_ns);
                self.doing = Doing::Waiting;
                self.wait_reason = Some(reason);
            }
            // It is not counted as alive before.
            Step::Wakes { .. } if self.doing == Doing::Unborn => {
                self.created_ns = time_ns;
                self.become_ready(time_ns);
            }
            Step::Wakes { how, by } => {
                self.become_ready(time_ns);
                self.wakes += u64::from(how != Wake::Refused);
                self.self_wakes += u64::from(by == id);
            }
            Step::CallStarts => self.doing = Doing::InCall,
            Step::CallStops => self.doing = Doing::Running,
            Step::Ends(how) => self.finish(time_ns, Some(how)),
        }
        if !matches!(step, Step::CallStarts | Step::CallStops) {
            self.since_ns = time_ns;
        }
    }

    /// It ended; `how` is not known if a recording missed it.
    pub(crate) fn finish(&mut self, time_ns: u64, how: Option<End>) {
        let time_ns = time_ns.max(self.since_ns);
        self.end_run(time_ns);
        self.end_ready(time_ns);
        self.doing = Doing::Ended;
        (self.ended_ns, self.end) = (Some(time_ns), how);
    }

    fn start_run(&mut self, time_ns: u64) {
        // tokio-console takes it for running if its last run began after the last one ended.
        let began_ns = self.run_ended_ns.map_or(time_ns, |ended_ns| time_ns.max(ended_ns + 1));
        self.doing = Doing::Running;
        self.runs += 1;
        self.first_run_ns.get_or_insert(began_ns);
        self.run_started_ns = Some(began_ns);
    }

    fn end_run(&mut self, time_ns: u64) {
        if matches!(self.doing, Doing::Running | Doing::InCall) {
            let ran_ns = time_ns - self.since_ns;
            self.busy_ns += ran_ns;
            self.busy.add(ran_ns);
            self.run_ended_ns = self.run_started_ns.map(|began_ns| time_ns.max(began_ns));
        }
    }

    fn become_ready(&mut self, time_ns: u64) {
        // Likewise, it is scheduled if it was woken after its last run began.
        let since_ns = self.run_started_ns.map_or(time_ns, |began_ns| time_ns.max(began_ns + 1));
        self.doing = Doing::Ready;
        self.ready_since_ns = Some(since_ns);
    }

    fn end_ready(&mut self, time_ns: u64) {
        if self.doing == Doing::Ready {
            let waited_ns = time_ns - self.since_ns;
            self.ready_ns += waited_ns;
            self.ready.add(waited_ns);
        }
    }

    /// What clients are told of it that can change.
    pub(crate) fn to_describe(&self) -> (Doing, Option<u8>) {
        let doing = match self.doing {
            Doing::InCall | Doing::Ended => self.doing,
            _ => Doing::Waiting,
        };
        (doing, self.wait_reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn story(steps: &[(u64, Step)]) -> Goroutine {
        let appearance =
            Appearance { is_new: true, state: State::Runnable, ..Appearance::default() };
        let mut goroutine = Goroutine::new(appearance, 100, 1);
        for (time_ns, step) in steps {
            goroutine.note(7, step, *time_ns);
        }
        goroutine
    }

    #[test]
    fn each_nanosecond_counts_once() {
        let woken = Step::Wakes { how: Wake::Ready, by: 3 };
        let steps = [
            (110, Step::Starts),
            (130, Step::Waits(4)),
            (200, woken),
            (205, Step::Starts),
            (206, Step::CallStarts),
            (300, Step::CallStops),
            (305, Step::Stops(Stop::Yield)),
            (405, Step::Starts),
            (406, Step::Ends(End::Returned)),
        ];
        let goroutine = story(&steps);
        assert_eq!((goroutine.busy_ns, goroutine.ready_ns), (20 + 100 + 1, 10 + 5 + 100));
        assert_eq!((goroutine.created_ns, goroutine.ended_ns), (100, Some(406)));
        assert_eq!((goroutine.runs, goroutine.wakes, goroutine.self_wakes), (3, 2, 1));
        assert_eq!(goroutine.wait_reason, Some(4));
        // In the middle of its second run.
        let goroutine = story(&steps[..5]);
        assert_eq!((goroutine.busy_ns, goroutine.doing), (20, Doing::InCall));
        assert!(goroutine.run_started_ns > goroutine.run_ended_ns);
    }

    /// Clocks are coarse on some machines, and those of two processors differ.
    #[test]
    fn its_state_shows_in_its_times_even_if_they_are_equal() {
        let steps = [
            (100, Step::Starts),
            (100, Step::Waits(0)),
            (99, Step::Wakes { how: Wake::Ready, by: 0 }),
            (98, Step::Starts),
        ];
        let running = story(&steps);
        assert!(running.run_started_ns > running.run_ended_ns);
        let ready = story(&steps[..3]);
        assert!(ready.ready_since_ns > ready.run_started_ns);
        assert!(ready.run_started_ns <= ready.run_ended_ns);
        assert_eq!(running.busy_ns + running.ready_ns, 0);
    }

    /// A goroutine of `after_func` begins to live when its time has come.
    #[test]
    fn an_unborn_goroutine_has_no_age() {
        let made = Appearance { is_new: true, state: State::Unborn, ..Appearance::default() };
        let mut goroutine = Goroutine::new(made, 100, 1);
        assert_eq!(goroutine.doing, Doing::Unborn);
        goroutine.note(7, &Step::Wakes { how: Wake::TimedOut, by: 0 }, 900);
        assert_eq!((goroutine.created_ns, goroutine.wakes), (900, 0));
        assert_eq!(goroutine.doing, Doing::Ready);
    }

    #[test]
    fn time_between_recordings_is_idle() {
        let mut goroutine = story(&[(110, Step::Starts)]);
        let seen = Appearance { state: State::Running, ..Appearance::default() };
        goroutine.resume(&seen, 500, 2);
        goroutine.note(7, &Step::Waits(1), 520);
        assert_eq!((goroutine.busy_ns, goroutine.recording), (20, 2));
    }
}
