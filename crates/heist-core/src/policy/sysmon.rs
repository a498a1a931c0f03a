//! The decisions of sysmon: how long it naps, which P it takes, when a slice is over, and what
//! happens to a P that is handed off.
//!
//! Nothing here reads a clock or a P: observations are arguments, decisions are results. So every
//! rule is tested against everything that can be observed.
//!
//! GO: proc.go sysmon, retake, handoffp.

use super::{
    BLOCKED_LATELY_NS, PROGRESS_SLICE_NS, PROGRESS_VALID_NS, SYSCALL_MAX_NS, SYSMON_IDLE_ROUNDS,
    SYSMON_NAP_MAX_NS, SYSMON_NAP_NS, SYSMON_NAP_PROGRESS_NS, SYSMON_NAP_WANTED_NS,
};
use crate::m_word::{Place, Stamp};

/// The naps between two rounds: 20 us; after fifty rounds with nothing to do, twice as long each
/// time, up to 10 ms; but at most 1 ms while goroutines wait.
#[derive(Clone, Copy, Debug)]
pub struct Naps {
    /// Rounds in a row that had nothing to do.
    quiet_rounds: u32,
    nap_ns: u64,
}

impl Naps {
    /// The naps of a sysmon that has just started or was woken again.
    #[must_use]
    pub const fn new() -> Self {
        Self { quiet_rounds: 0, nap_ns: SYSMON_NAP_NS }
    }

    /// A round is over; `acted`: a P was taken in it.
    pub const fn after_round(&mut self, acted: bool) {
        self.quiet_rounds = if acted { 0 } else { self.quiet_rounds.saturating_add(1) };
    }

    /// How long to nap now; `wanted`: goroutines wait for a P.
    #[must_use]
    pub fn next_ns(&mut self, wanted: bool) -> u64 {
        if self.quiet_rounds == 0 {
            self.nap_ns = SYSMON_NAP_NS;
        } else if self.quiet_rounds > SYSMON_IDLE_ROUNDS {
            self.nap_ns = (2 * self.nap_ns).min(SYSMON_NAP_MAX_NS);
        }
        if wanted { self.nap_ns.min(SYSMON_NAP_WANTED_NS) } else { self.nap_ns }
    }
}

impl Default for Naps {
    fn default() -> Self {
        Self::new()
    }
}

/// The plan that a round makes for the nap after it.
#[derive(Clone, Copy, Debug)]
pub struct Agenda {
    next_ns: u64,
    suspects: bool,
}

/// The state of the program, as far as it affects a nap.
#[derive(Clone, Copy, Debug)]
pub struct Mood {
    /// Every P is idle: a short pause of a busy program is not worth a wake-up at its end.
    pub idle: bool,
    /// Some P makes progress: the program is left alone.
    pub makes_progress: bool,
}

impl Agenda {
    /// The plan of a round that saw nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { next_ns: u64::MAX, suspects: false }
    }

    /// Plans a round at `ns`: then the slice of a goroutine that others wait for is over.
    pub fn look_at(&mut self, ns: u64) {
        self.next_ns = self.next_ns.min(ns);
    }

    /// Notes that a goroutine runs while others wait. It may be in an unannounced blocking call.
    pub const fn suspect(&mut self) {
        self.suspects = true;
    }

    /// Until when to nap now. The plan is cleared: the next round may see nothing at all, and a
    /// moment that has passed would end every later nap at once.
    #[must_use]
    pub fn nap_until(&mut self, naps: &mut Naps, now_ns: u64, mood: Mood) -> u64 {
        let Self { next_ns, suspects } = std::mem::take(self);
        let nap_ns = if mood.idle { SYSMON_NAP_MAX_NS } else { naps.next_ns(suspects) };
        let nap_ns = if mood.makes_progress { nap_ns.min(SYSMON_NAP_PROGRESS_NS) } else { nap_ns };
        now_ns.saturating_add(nap_ns).min(next_ns)
    }
}

impl Default for Agenda {
    fn default() -> Self {
        Self::new()
    }
}

/// A P that an M holds, at one check.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// The time of the check.
    pub now_ns: u64,
    /// Its tick.
    pub tick: u32,
    /// When a preempted goroutine last began a slice on it, and the word of its M at that moment.
    /// Only preempted goroutines record this.
    pub began_ns: u64,
    /// See `began_ns`.
    pub began: Stamp,
    /// The word of its M.
    pub stamp: Stamp,
    /// How long a slice of the goroutine on it is.
    pub slice_ns: u64,
}

/// The demand for a P by other goroutines, at one check.
#[derive(Clone, Copy, Debug)]
pub struct Demand {
    /// Goroutines wait in the queue of this very P.
    pub here: bool,
    /// Goroutines wait that this P could run, here or in the global queue.
    pub anywhere: bool,
    /// Other Ps are idle, or other Ms look for work.
    pub others_free: bool,
    /// Goroutines wait in the queue of another P, or are of the idle class. Nobody gives way to
    /// them here, but to a goroutine that sleeps the P is of no use.
    pub elsewhere: bool,
}

/// The decision about a P.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// Leave it: a slice has begun on it since the last check.
    New {
        /// When the slice is over.
        ends_ns: u64,
    },
    /// Leave it.
    Leave,
    /// Its M is in an announced blocking call: take it.
    Take,
    /// It runs user code while others wait.
    Busy {
        /// The word of its M has not changed since the last check. If the M used no CPU time
        /// either, it is in an unannounced blocking call.
        unmoved: bool,
        /// When the slice is over.
        ends_ns: u64,
    },
    /// It has run user code for long, and goroutines wait only elsewhere: it is left alone unless
    /// it is in an unannounced blocking call.
    Unhurried {
        /// As for `Busy`.
        unmoved: bool,
    },
}

/// The data about a P that sysmon keeps between two checks.
#[derive(Clone, Copy, Debug)]
#[doc(alias = "sysmontick")]
pub struct Watch {
    /// The tick; None if no M held the P.
    tick: Option<u32>,
    /// When this tick was first seen, or the slice began if that is known.
    since_ns: u64,
    /// The time of the last check.
    looked_ns: u64,
    /// The M's word at the last check.
    stamp: Stamp,
    /// The blocking call that was first seen at `call_ns`.
    call: Stamp,
    call_ns: u64,
}

impl Watch {
    /// The record of a P that no M holds: the next holder begins a slice, even if the tick is the
    /// same.
    pub const NEW: Self = Self {
        tick: None,
        since_ns: 0,
        looked_ns: 0,
        stamp: Stamp::NONE,
        call: Stamp::NONE,
        call_ns: 0,
    };

    /// When the slice that was last seen began.
    #[must_use]
    pub const fn since_ns(&self) -> u64 {
        self.since_ns
    }

    /// Whether there was more than one slice on this P since the last check, and they were short on
    /// average. Called before the next check.
    #[must_use]
    pub fn makes_progress(&self, now_ns: u64, tick: u32) -> bool {
        let slices = self.tick.map_or(0, |seen| tick.wrapping_sub(seen));
        slices > 1 && u64::from(slices) * PROGRESS_SLICE_NS >= now_ns.saturating_sub(self.looked_ns)
    }

    /// Checks a P that is held.
    ///
    /// A slice is over when the tick has been the same for its length; that matters only if a
    /// goroutine waits. It began when it was first seen, unless it is the only one that began since
    /// the last check and its beginning was recorded: then it counts as seen at that moment.
    ///
    /// A blocking call keeps its P at the first check, unless the slice is over. After that its P
    /// is taken, unless nothing waits there, other Ps or Ms are free to take new work, and the call
    /// was first seen less than 10 ms ago.
    #[doc(alias = "retake")]
    pub fn look(&mut self, look: Look, demand: Demand) -> Verdict {
        let Look { now_ns, tick, began_ns, began, stamp, slice_ns } = look;
        let looked_ns = std::mem::replace(&mut self.looked_ns, now_ns);
        if self.tick != Some(tick) {
            let one = self.tick == Some(tick.wrapping_sub(1));
            let known = one && began_ns > looked_ns;
            let (since_ns, stamp) =
                if known { (began_ns.min(now_ns), began) } else { (now_ns, stamp) };
            let (tick, call, call_ns) = (Some(tick), stamp, since_ns);
            *self = Self { tick, since_ns, looked_ns: now_ns, stamp, call, call_ns };
            if !known {
                return Verdict::New { ends_ns: since_ns.saturating_add(slice_ns) };
            }
        }
        let unmoved = self.stamp == stamp;
        self.stamp = stamp;
        let ends_ns = self.since_ns.saturating_add(slice_ns);
        match stamp.place() {
            Place::Runtime => Verdict::Leave,
            Place::Blocked => self.look_at_call(now_ns, stamp, now_ns >= ends_ns, demand),
            Place::User if demand.anywhere => Verdict::Busy { unmoved, ends_ns },
            Place::User if demand.elsewhere && self.is_long(now_ns) => {
                Verdict::Unhurried { unmoved }
            }
            Place::User => Verdict::Leave,
        }
    }

    /// Whether the slice that was last seen is as long as a blocking call that nobody minds may be.
    const fn is_long(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.since_ns) >= SYSCALL_MAX_NS
    }

    /// Whether this slice is not the one that was last seen.
    #[must_use]
    pub fn is_new(&self, tick: u32) -> bool {
        self.tick != Some(tick)
    }

    /// Whether more than half of the slice that was last seen is over.
    #[must_use]
    pub const fn is_half_over(&self, now_ns: u64, slice_ns: u64) -> bool {
        now_ns.saturating_sub(self.since_ns) >= slice_ns / 2
    }

    fn look_at_call(
        &mut self,
        now_ns: u64,
        stamp: Stamp,
        slice_is_over: bool,
        demand: Demand,
    ) -> Verdict {
        if self.call != stamp && !slice_is_over {
            self.call = stamp;
            self.call_ns = now_ns;
            return Verdict::Leave;
        }
        let new = now_ns.saturating_sub(self.call_ns) < SYSCALL_MAX_NS;
        if !demand.here && demand.others_free && new { Verdict::Leave } else { Verdict::Take }
    }
}

/// Whether a program is left alone in which a P was last seen to make progress at `progress_ns`,
/// and a P was last taken from a blocking call at `taken_ns`.
#[must_use]
pub const fn makes_progress(now_ns: u64, progress_ns: u64, taken_ns: u64) -> bool {
    now_ns.saturating_sub(progress_ns) < PROGRESS_VALID_NS
        && now_ns.saturating_sub(taken_ns) >= BLOCKED_LATELY_NS
}

/// How late a timer may be before sysmon runs it. Where a goroutine would have to yield for it,
/// that is the bound for wake-ups. If a reserved P is idle, none has to: then the thread that waits
/// for the timer was merely not woken in time, for example by the kernel of a virtual machine whose
/// CPU sleeps.
#[must_use]
pub const fn timer_late_ns(wake_up_ns: u64, reserved_is_idle: bool) -> u64 {
    if reserved_is_idle { wake_up_ns / 4 } else { wake_up_ns }
}

/// A P that its M must give away.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    /// A search with this P would find a goroutine.
    pub has_work: bool,
    /// Other Ps are idle, or other Ms look for work; or no M may look for work with this P.
    pub others_free: bool,
    /// No other P is held, there is something to wait for in the poller, and no thread waits there.
    pub last_and_unattended: bool,
}

/// The use of a P that is handed off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum HandOff {
    /// It goes to an M that finds a goroutine, or that waits in the poller.
    Start,
    /// It goes to an M that looks for work.
    Spin,
    /// It becomes idle.
    Rest,
}

/// Decides the use of a P that is handed off: an M is started whenever a search with it would find
/// work, or no other M could find any, or no other M would see network events and timers.
#[doc(alias = "handoffp")]
pub const fn hand_off(offer: Offer) -> HandOff {
    if offer.has_work || offer.last_and_unattended {
        HandOff::Start
    } else if !offer.others_free {
        HandOff::Spin
    } else {
        HandOff::Rest
    }
}
