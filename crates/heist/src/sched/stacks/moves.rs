//! Continuing a goroutine on another thread than the one that ran it last.

use crate::gmp::{G, M};
use heist_core::m_word;

/// Makes the thread-locals that a goroutine uses those of this M's thread, on which it continues.
/// See `coro::relocation`.
#[cold]
#[inline(never)]
pub(crate) fn move_here(m: &M, gp: &G) {
    let mut n_words = 0;
    let noted = if m.sched().config.tls_report { &m.moved[..] } else { &[] };
    let found = |at| {
        if let Some(place) = noted.get(n_words as usize) {
            place.set(at);
            m.word.call_attention(m_word::MOVED);
        }
        n_words += 1;
    };
    // SAFETY: the M found the goroutine, so the goroutine is this M's to run, and it is suspended;
    // it has started.
    unsafe { gp.coro.move_to(m.thread.get(), found) };
    let stats = &m.p().stats;
    stats.moves.bump();
    stats.relocated_words.add(n_words);
}
