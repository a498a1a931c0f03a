//! The three structs of the model: goroutine `G`, thread `M`, processor `P`.
//!
//! They hold state and check it; they never schedule.

pub(crate) mod all_ms;
pub(crate) mod capture;
pub(crate) mod debugger;
pub(crate) mod described;
pub(crate) mod extras;
pub(crate) mod flags;
pub(crate) mod fork;
pub(crate) mod g;
pub(crate) mod holder;
pub(crate) mod m;
pub(crate) mod meter;
pub(crate) mod p;
pub(crate) mod pool;
pub(crate) mod proc_table;
pub(crate) mod shown;
pub(crate) mod task;
pub(crate) mod yielded;

pub(crate) use g::G;
pub(crate) use holder::Holder;
pub(crate) use m::M;
pub(crate) use p::P;
