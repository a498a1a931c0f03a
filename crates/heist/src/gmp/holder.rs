//! `Holder`: the evidence that the calling thread holds a P.

use super::p::Local;
use super::{G, M, P};
use heist_core::run_queue::Owner;
use std::marker::PhantomData;
use std::ops::Deref;

/// The M of the calling thread, which is in the runtime and holds a P.
///
/// A function that takes a holder uses the P as its owner. A function that may give the P away
/// takes the M, and the caller has no use for its holder until the M has a P again.
#[derive(Clone, Copy)]
pub(crate) struct Holder<'m> {
    m: &'m M,
    _not_send: PhantomData<*mut ()>,
}

impl<'m> Holder<'m> {
    /// # Safety
    /// `m` is the M of the calling thread. Whenever the holder is used, the M is in the runtime and
    /// has a P.
    #[inline]
    pub(crate) const unsafe fn new(m: &'m M) -> Self {
        Self { m, _not_send: PhantomData }
    }

    /// The M, also for functions that may give its P away.
    #[inline]
    pub(crate) const fn m(self) -> &'m M {
        self.m
    }

    /// The P, for its owner.
    #[inline]
    pub(crate) fn p(self) -> HeldP<'m> {
        HeldP { pp: self.m.p(), _not_send: PhantomData }
    }
}

impl Deref for Holder<'_> {
    type Target = M;

    #[inline]
    fn deref(&self) -> &M {
        self.m
    }
}

/// A P that the calling thread holds.
#[derive(Clone, Copy)]
pub(crate) struct HeldP<'m> {
    pp: &'m P,
    _not_send: PhantomData<*mut ()>,
}

impl<'m> HeldP<'m> {
    /// The owner's half of its queue.
    #[inline]
    pub(crate) fn owner(self) -> Owner<'m, G> {
        // SAFETY: the calling thread holds the P.
        unsafe { self.pp.owner() }
    }

    /// Uses the owner's data. `with` does not come back here, which debug builds check.
    #[inline]
    pub(crate) fn with_local<R>(self, with: impl FnOnce(&mut Local) -> R) -> R {
        let _only = self.pp.begin_local_use();
        // SAFETY: the calling thread holds the P, and this is the only reference.
        with(unsafe { self.pp.local() })
    }
}

impl Deref for HeldP<'_> {
    type Target = P;

    #[inline]
    fn deref(&self) -> &P {
        self.pp
    }
}
