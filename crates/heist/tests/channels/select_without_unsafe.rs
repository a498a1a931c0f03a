//! `select!` in a module that forbids unsafe code.
#![forbid(unsafe_code)]

use heist::{chan, select, select_biased};
use std::time::Duration;

/// The macros expand to calls that a user must not make by hand; code that forbids `unsafe` may use
/// them.
#[test]
fn select_is_allowed_where_unsafe_code_is_forbidden() {
    let (tx, rx) = chan::bounded(1);
    let never = chan::never::<u8>();
    select! {
        send(tx, 7) -> sent => sent.unwrap(),
        recv(never) -> _ => unreachable!(),
    }
    let got = select_biased! {
        recv(rx) -> message => message.unwrap(),
        default(Duration::from_secs(3600)) => 0,
    };
    assert_eq!(got, 7);
}
