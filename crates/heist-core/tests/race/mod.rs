//! A race of two sides in a model, run once with each side first.

#![allow(dead_code, reason = "every model uses its own part of this")]

use loom::thread;

/// Which side of a race loom tries first.
///
/// Loom goes back only to the last access of an atomic, so a load before a CAS in one thread hides
/// the CAS from the loads of the other. Starting from the other side finds those orders.
#[derive(Clone, Copy, Debug)]
pub enum Starts {
    Left,
    Right,
}

/// Runs both and returns their results.
pub fn race<L, R>(
    starts: Starts,
    left: impl FnOnce() -> L + 'static,
    right: impl FnOnce() -> R + 'static,
) -> (L, R)
where
    L: 'static,
    R: 'static,
{
    match starts {
        Starts::Left => {
            let right = thread::spawn(right);
            (left(), right.join().unwrap())
        }
        Starts::Right => {
            let left = thread::spawn(left);
            let right = right();
            (left.join().unwrap(), right)
        }
    }
}

/// Runs `model` from both sides.
pub fn check(model: impl Fn(Starts) + Clone + Send + Sync + 'static) {
    for starts in [Starts::Left, Starts::Right] {
        let model = model.clone();
        loom::model(move || model(starts));
    }
}
