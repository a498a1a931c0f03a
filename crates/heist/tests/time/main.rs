//! Sleeping, timers and tickers.

#[path = "../harness/child.rs"]
mod child;
#[path = "../harness/matrix/mod.rs"]
mod matrix;

mod sleep;
mod timeout;
mod timer_channels;
