//! Texts in buffers: they follow the record that they belong to, in records of their own.
//!
//! The scheduler cannot allocate, and the text of a record may be gone when the collector reads it.
//! So the bytes themselves are written; the collector turns them into numbers of strings.

use super::recorder::Lines;
use heist_trace::record::{Kind, Record, TEXT_BYTES};

/// The longest text that is kept; the rest is cut off.
pub(super) const TEXT_MAX: usize = 1024;

/// The part of a text that is kept.
fn kept(text: &str) -> &str {
    let mut end = text.len().min(TEXT_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// How many records the bytes of a text take.
pub(super) fn lines(text: &str) -> usize {
    kept(text).len().div_ceil(TEXT_BYTES)
}

/// Writes a record with a text.
pub(super) fn push(lines: &mut Lines<'_>, now: u64, kind: Kind, detail: u8, text: &str) {
    let text = kept(text).as_bytes();
    lines.push(Record::new(now, kind, detail, text.len() as u64, 0));
    for piece in text.chunks(TEXT_BYTES) {
        lines.push(Record::text(piece));
    }
}
