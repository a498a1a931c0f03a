//! The pointer of a goroutine record to its extras, which other threads may follow.
//!
//! A record owns a share of its extras until it drops it. A dump wants to read a name meanwhile. So
//! the pointer is taken out while the pool of records is held ([`pool::hold`]), and a reader holds
//! the pool while it follows the pointer. A goroutine without extras pays nothing for that.
//!
//! # Ordering
//! The pointer is stored with Release and loaded with Acquire: a thread that finds the extras sees
//! their contents.

use super::g::Extras;
use super::pool;
use heist_core::sync::{AtomicPtr, Ordering};
use std::ptr::null_mut;

/// A share of an `Arc`, or null.
pub(crate) struct ExtrasPointer(AtomicPtr<Extras>);

impl ExtrasPointer {
    pub(crate) fn null() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }

    /// The extras. They may be used by the goroutine's owner.
    #[inline]
    pub(crate) fn get(&self) -> *const Extras {
        self.0.load(Ordering::Acquire)
    }

    /// Sets the extras of a record that has none.
    #[inline]
    pub(crate) fn set(&self, extras: *const Extras) {
        self.0.store(extras.cast_mut(), Ordering::Release);
    }

    /// Takes the share out. No other thread follows it any more. The caller cannot be preempted.
    pub(crate) fn take(&self) -> *const Extras {
        pool::hold(|| self.0.swap(null_mut(), Ordering::AcqRel))
    }

    /// The beginning of the name, for any thread that cannot be preempted. In a record that was
    /// recycled it may be the name of the next goroutine.
    pub(crate) fn name(&self) -> Option<ShortName> {
        if self.get().is_null() {
            return None;
        }
        pool::hold(|| {
            // SAFETY: null, or extras whose share is taken out only while the pool is held.
            let name = unsafe { self.get().as_ref() }?.name.as_deref()?;
            Some(ShortName::new(name))
        })
    }
}

/// The most bytes of a name that are shown.
const SHOWN_MAX: usize = 64;

/// The beginning of a name, without an allocation.
pub(crate) struct ShortName {
    bytes: [u8; SHOWN_MAX],
    len: usize,
}

impl ShortName {
    fn new(name: &str) -> Self {
        let len = name.floor_char_boundary(SHOWN_MAX);
        let mut bytes = [0; SHOWN_MAX];
        bytes[..len].copy_from_slice(&name.as_bytes()[..len]);
        Self { bytes, len }
    }

    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }
}

#[test]
fn a_long_name_is_cut_between_characters() {
    let name = format!("{}é", "a".repeat(SHOWN_MAX - 1));
    assert_eq!(ShortName::new(&name).as_str(), "a".repeat(SHOWN_MAX - 1));
    assert_eq!(ShortName::new("short").as_str(), "short");
}
