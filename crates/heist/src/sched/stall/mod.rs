//! Keeping the program from stalling: taking the P from goroutines that block or compute for too
//! long.
//!
//! sysmon watches every P (`sysmon`, woken by its `bell`). It takes the P of an M that blocks
//! (`retake`). It asks a goroutine that computes to yield, then forces it (`preempt`, `signal`). A
//! goroutine that comes back without a P gets one, or is frozen with its thread until it does
//! (`blocking`, `freeze`, `leave`).

pub(crate) mod blocking;
mod freeze;
pub(crate) mod leave;
mod preempt;
mod retake;
pub(crate) mod signal;
pub(crate) mod sysmon;

pub(crate) use blocking::regain_p;
pub(crate) use freeze::freeze;
pub(crate) use retake::{handoff_p, heavy_fence};
pub(super) use sysmon::overdue::{is_unattended, watch_waiter};

use heist_core::block_predictor::BlockPredictor;
use heist_core::sync::AtomicU32;
use sysmon::bell::Bell;

/// The state that sysmon shares with the threads that it watches.
pub(crate) struct Stall {
    bell: Bell,
    predictor: BlockPredictor,
    /// Whether all Ms execute full fences when they enter the runtime. Written under the scheduler
    /// lock.
    full_fences: AtomicU32,
}

impl Stall {
    /// `full_fences`: the system has no asymmetric fences.
    pub(super) fn new(full_fences: bool) -> Self {
        Self {
            bell: Bell::new(),
            predictor: BlockPredictor::new(),
            full_fences: AtomicU32::new(full_fences.into()),
        }
    }

    /// The way to wake sysmon.
    #[inline]
    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }

    /// The prediction of which kinds of goroutines block.
    #[inline]
    pub(crate) fn predictor(&self) -> &BlockPredictor {
        &self.predictor
    }
}
