//! Fields that any thread may read while their owner changes them.
//!
//! Reports and dumps read the records of running goroutines. A value that they read may be slightly
//! old, or that of the next goroutine in a recycled record, but it is always one that was stored.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering};

/// A number.
#[derive(Debug)]
pub(crate) struct ShownNumber(AtomicU64);

impl ShownNumber {
    pub(crate) const fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }

    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
}

/// An address that is not followed.
#[derive(Debug)]
pub(crate) struct ShownAddress(AtomicUsize);

impl ShownAddress {
    pub(crate) const fn new(value: usize) -> Self {
        Self(AtomicUsize::new(value))
    }

    #[inline]
    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set(&self, value: usize) {
        self.0.store(value, Ordering::Relaxed);
    }
}

/// A pointer to an object that outlives every reader.
#[derive(Debug)]
pub(crate) struct ShownPointer<T>(AtomicPtr<T>);

impl<T> ShownPointer<T> {
    pub(crate) const fn null() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }

    #[inline]
    pub(crate) fn get(&self) -> *const T {
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set(&self, value: *const T) {
        self.0.store(value.cast_mut(), Ordering::Relaxed);
    }

    /// Sets it and returns the previous value. For its owner.
    #[inline]
    pub(crate) fn replace(&self, value: *const T) -> *const T {
        let before = self.get();
        self.set(value);
        before
    }
}

/// A flag.
#[derive(Debug)]
pub(crate) struct ShownFlag(AtomicBool);

impl ShownFlag {
    pub(crate) const fn new(value: bool) -> Self {
        Self(AtomicBool::new(value))
    }

    #[inline]
    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set(&self, value: bool) {
        self.0.store(value, Ordering::Relaxed);
    }
}

/// A small number, such as a choice among a few.
#[derive(Debug)]
pub(crate) struct ShownByte(AtomicU8);

impl ShownByte {
    pub(crate) const fn new(value: u8) -> Self {
        Self(AtomicU8::new(value))
    }

    #[inline]
    pub(crate) fn get(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set(&self, value: u8) {
        self.0.store(value, Ordering::Relaxed);
    }
}
