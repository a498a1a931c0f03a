//! A goroutine goes on on another thread than the one that ran it last.

use crate::gmp::{G, M};

/// Makes the thread-locals that a goroutine uses those of this M's thread, on which it goes on. See
/// `coro::relocation`.
#[cold]
#[inline(never)]
pub(super) fn move_here(m: &M, gp: &G) {
    let mut n_words = 0;
    // SAFETY: the goroutine was found, so it is this M's to run and suspended, and it has started.
    unsafe { gp.coro.move_to(m.thread.get(), |_| n_words += 1) };
    let stats = &m.p().stats;
    stats.moves.bump();
    stats.relocated_words.add(n_words);
}
