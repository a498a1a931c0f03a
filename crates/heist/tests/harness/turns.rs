//! Turns: a test that the others of its process would disturb, or that would disturb them, runs
//! alone.

#![allow(dead_code, reason = "every test program uses its own part of this")]

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static TURN: RwLock<()> = RwLock::new(());

/// No other test that takes a turn runs while the guard lives.
pub fn alone() -> RwLockWriteGuard<'static, ()> {
    // A test that failed in its turn says nothing about this one.
    TURN.write().unwrap_or_else(PoisonError::into_inner)
}

/// No test that runs [`alone`] runs while the guard lives.
pub fn with_others() -> RwLockReadGuard<'static, ()> {
    TURN.read().unwrap_or_else(PoisonError::into_inner)
}
