//! Channels and select.

#[path = "../harness/capacities.rs"]
mod capacities;
#[path = "../harness/matrix/mod.rs"]
mod matrix;

mod close;
mod ends;
mod many;
mod messages;
mod model;
mod operations;
mod power_series;
mod select;
mod select_dynamic;
mod select_lent;
mod select_model;
mod select_without_unsafe;
