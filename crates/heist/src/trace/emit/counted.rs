//! Counting the changes of the holder of a P.

use crate::gmp::P;

/// A change of the holder of a P. It is counted when it is dropped, also if its record was lost.
pub(super) struct Counted<'a>(&'a P);

impl<'a> Counted<'a> {
    pub(super) const fn new(pp: &'a P) -> Self {
        Self(pp)
    }

    /// The number of the change.
    pub(super) fn number(&self) -> u16 {
        self.0.holder_number().wrapping_add(1)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.count_holder();
    }
}
