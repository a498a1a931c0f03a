//! Detects a stalled P: its ring is not empty, and nothing is taken out of it.
//!
//! Its thread waits for a CPU that the kernel gave to another thread, or its goroutine computes. An
//! observer cannot see which, and need not: the goroutines in that ring wait either way.
//!
//! A check costs two loads and no clock. The head of a ring moves when a goroutine is taken from
//! it, by its owner or by a thief, so a head that has not moved since the last check, in a ring
//! that is not empty, shows that nothing was taken in between. One other P is suspected at a time:
//! it is checked twice, and if it made progress, the next one is suspected.

/// The P that is checked next, and the head of its ring at the last check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspect {
    id: u32,
    head: Option<u32>,
}

impl Suspect {
    /// No P was checked yet. `own` is the P of the observer.
    #[must_use]
    pub const fn new(own: u32) -> Self {
        Self { id: own, head: None }
    }

    /// Returns a P that stalled since the last check, and forgets its head; otherwise checks the
    /// next of `procs` Ps other than `own`. `head_of` is the head of the ring of a P, if the ring
    /// is not empty.
    pub fn look(
        &mut self,
        own: u32,
        procs: u32,
        head_of: impl Fn(u32) -> Option<u32>,
    ) -> Option<u32> {
        // There may be fewer Ps than at the last check.
        let seen = self.head.take().filter(|_| self.id < procs && self.id != own);
        if seen.is_some() && head_of(self.id) == seen {
            return Some(self.id);
        }
        self.id = after(self.id, procs);
        if self.id == own {
            self.id = after(own, procs);
        }
        if self.id != own {
            self.head = head_of(self.id);
        }
        None
    }
}

const fn after(id: u32, procs: u32) -> u32 {
    if id + 1 < procs { id + 1 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_stalled_p_is_found_at_the_second_check() {
        let mut suspect = Suspect::new(0);
        assert_eq!(suspect.look(0, 2, |_| Some(7)), None);
        assert_eq!(suspect.look(0, 2, |_| Some(7)), Some(1));
    }

    #[test]
    fn a_p_that_takes_a_goroutine_makes_progress() {
        let mut suspect = Suspect::new(0);
        for head in 0..100 {
            assert_eq!(suspect.look(0, 2, |_| Some(head)), None);
        }
    }

    #[test]
    fn an_empty_ring_is_not_stalled() {
        let mut suspect = Suspect::new(0);
        for _ in 0..4 {
            assert_eq!(suspect.look(0, 2, |_| None), None);
        }
        assert_eq!(suspect.look(0, 2, |_| Some(7)), None);
        assert_eq!(suspect.look(0, 2, |_| None), None);
    }

    /// A P that was returned is checked anew: if nothing can be stolen from it, it does not hide
    /// the others.
    #[test]
    fn a_stalled_p_is_returned_once() {
        let mut suspect = Suspect::new(0);
        let found: Vec<_> = (0..8).filter_map(|_| suspect.look(0, 3, |_| Some(7))).collect();
        assert_eq!(found, [1, 2, 1, 2]);
    }

    #[test]
    fn every_other_p_is_checked() {
        for procs in 1..=8 {
            for own in 0..procs {
                let seen = Cell::new(0u32);
                let mut suspect = Suspect::new(own);
                for _ in 0..2 * procs {
                    let found = suspect.look(own, procs, |id| {
                        assert!(id < procs && id != own);
                        seen.set(seen.get() | 1 << id);
                        None
                    });
                    assert_eq!(found, None);
                }
                assert_eq!(seen.get(), ((1 << procs) - 1) & !(1 << own));
            }
        }
    }

    #[test]
    fn a_removed_p_is_no_suspect() {
        let mut suspect = Suspect::new(0);
        for _ in 0..3 {
            let _ = suspect.look(0, 4, |_| None);
        }
        let mut suspect = Suspect { head: Some(7), ..suspect };
        assert_eq!(suspect.look(0, 2, |id| (id < 2).then_some(7)), None);
        assert_eq!(suspect.look(0, 1, |_| unreachable!("there is no other P")), None);
    }
}
