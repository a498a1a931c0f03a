//! What the expansion of `select!` names. Not part of the API.

pub use super::select::case::{RecvCase, SendCase};
pub use super::select::macros::{Choice, choose, choose_now, choose_within};
