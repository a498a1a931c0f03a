//! The items that the expansion of `select!` names. Not part of the API.

pub use super::select::case::{RecvCase, SendCase};
pub use super::select::macros::{
    Choice, Inside, choose, choose_now, choose_within, message, place, try_once, try_recv, try_send,
};
