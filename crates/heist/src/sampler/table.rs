//! A table of stacks with counts, to which any number of threads add without waiting.
//!
//! # The protocol of a slot
//! A slot is empty, then one thread writes the stack into it, then it is ready, for good. Threads
//! add to the counts of a ready slot only. A thread that meets a slot which is being written goes
//! on to the next one, so a stack may have two slots; the reader adds them up.

use crate::sys::memory;
use crate::sys::walk::Frames;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Frames that are kept of a stack, the innermost ones.
pub(crate) const DEPTH: usize = 64;
/// Different stacks that there is room for.
const SLOTS: usize = 1 << 13;
/// Slots that are looked at for one stack.
const PROBES: usize = 64;
/// Bytes of a name that are kept.
const NAME_BYTES: usize = 32;
const NAME_WORDS: usize = NAME_BYTES / 8;

const EMPTY: u32 = 0;
const WRITING: u32 = 1;
const READY: u32 = 2;

/// Counts are kept in parts of one, because a sample may stand for a fraction of an event.
pub(crate) const PARTS: u64 = 1 << 10;

/// What is known about a sample besides its stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Tag {
    /// The address of the place where its goroutine was spawned, or zero.
    pub(crate) site: usize,
    /// The class of its goroutine: `normal`, `latency`, `idle`.
    pub(crate) class: usize,
    name: [u64; NAME_WORDS],
}

impl Tag {
    pub(crate) fn new(site: usize, class: usize) -> Self {
        Self { site, class, ..Self::default() }
    }

    /// Adds the name of a goroutine, or as much of it as there is room for.
    pub(crate) fn named(mut self, name: &str) -> Self {
        let mut bytes = [0; NAME_BYTES];
        let len = name.floor_char_boundary(NAME_BYTES);
        bytes[..len].copy_from_slice(&name.as_bytes()[..len]);
        for (word, bytes) in self.name.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        }
        self
    }

    /// The name of the goroutine; empty if it has none.
    pub(crate) fn name(&self) -> String {
        let bytes: Vec<u8> = self.name.iter().flat_map(|word| word.to_le_bytes()).collect();
        let len = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    }
}

/// A stack and its counts. All zero is an empty one.
struct Slot {
    state: AtomicU32,
    n: AtomicU32,
    hash: AtomicU64,
    count: AtomicU64,
    value: AtomicU64,
    site: AtomicUsize,
    class: AtomicUsize,
    name: [AtomicU64; NAME_WORDS],
    frames: [AtomicUsize; DEPTH],
}

/// A row of the table.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) tag: Tag,
    /// The innermost first.
    pub(crate) frames: Vec<usize>,
    /// In [`PARTS`].
    pub(crate) count: u64,
    pub(crate) value: u64,
}

/// The table. Pages that are not used cost no memory.
pub(crate) struct Table {
    slots: NonNull<Slot>,
    lost: AtomicU64,
}

// SAFETY: the slots are atomics, and belong to the table.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

const BYTES: usize = SLOTS * size_of::<Slot>();

impl Table {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self { slots: memory::map(BYTES)?.cast(), lost: AtomicU64::new(0) })
    }

    const fn slots(&self) -> &[Slot] {
        // SAFETY: mapped by `new`, and zeroes are empty slots.
        unsafe { std::slice::from_raw_parts(self.slots.as_ptr(), SLOTS) }
    }

    /// Counts a sample.
    pub(crate) fn add(&self, tag: &Tag, frames: &Frames, count: u64, value: u64) {
        let all = frames.addresses();
        let frames = &all[..all.len().min(DEPTH)];
        let mut hasher = DefaultHasher::new();
        (tag, frames).hash(&mut hasher);
        let hash = hasher.finish();
        for n in 0..PROBES {
            let slot = &self.slots()[(hash as usize).wrapping_add(n) % SLOTS];
            // ORDERING: Acquire pairs with the Release in `write`.
            let state = slot.state.load(Ordering::Acquire);
            let is_mine = match state {
                EMPTY => slot.write(tag, frames, hash),
                READY => slot.hash.load(Ordering::Relaxed) == hash && slot.is(tag, frames),
                _ => false,
            };
            if is_mine {
                slot.count.fetch_add(count, Ordering::Relaxed);
                slot.value.fetch_add(value, Ordering::Relaxed);
                return;
            }
        }
        self.lose();
    }

    /// Counts a sample that could not be kept.
    pub(crate) fn lose(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// All stacks with their counts so far.
    pub(crate) fn rows(&self) -> Vec<Row> {
        // ORDERING: Acquire: see `write`.
        let ready = |slot: &&Slot| slot.state.load(Ordering::Acquire) == READY;
        self.slots().iter().filter(ready).map(Slot::row).collect()
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and nobody uses it any more.
        unsafe { memory::unmap(self.slots.cast(), BYTES) };
    }
}

impl Slot {
    /// Writes a stack into an empty slot. False if another thread was faster.
    fn write(&self, tag: &Tag, frames: &[usize], hash: u64) -> bool {
        let relaxed = Ordering::Relaxed;
        if self.state.compare_exchange(EMPTY, WRITING, relaxed, relaxed).is_err() {
            return false;
        }
        self.n.store(frames.len() as u32, relaxed);
        self.hash.store(hash, relaxed);
        self.site.store(tag.site, relaxed);
        self.class.store(tag.class, relaxed);
        self.name.iter().zip(tag.name).for_each(|(place, word)| place.store(word, relaxed));
        self.frames.iter().zip(frames).for_each(|(place, &frame)| place.store(frame, relaxed));
        // ORDERING: Release pairs with the Acquire in `add` and `rows`.
        self.state.store(READY, Ordering::Release);
        true
    }

    fn tag(&self) -> Tag {
        let name = self.name.each_ref().map(|word| word.load(Ordering::Relaxed));
        let (site, class) = (self.site.load(Ordering::Relaxed), self.class.load(Ordering::Relaxed));
        Tag { site, class, name }
    }

    fn frames(&self) -> impl Iterator<Item = usize> {
        let n = self.n.load(Ordering::Relaxed) as usize;
        self.frames.iter().take(n).map(|frame| frame.load(Ordering::Relaxed))
    }

    fn is(&self, tag: &Tag, frames: &[usize]) -> bool {
        self.tag() == *tag && self.frames().eq(frames.iter().copied())
    }

    fn row(&self) -> Row {
        let (count, value) =
            (self.count.load(Ordering::Relaxed), self.value.load(Ordering::Relaxed));
        Row { tag: self.tag(), frames: self.frames().collect(), count, value }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_count_the_same_stacks_together() {
        let table = Table::new().expect("there is memory");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for n in 0..10_000_u64 {
                        let tag =
                            Tag::default().named(&format!("a long name of a goroutine {}", n % 7));
                        table.add(&tag, &Frames::NONE, 1, n % 7);
                    }
                });
            }
        });
        let rows = table.rows();
        assert_eq!(rows.iter().map(|row| row.count).sum::<u64>() + table.lost(), 40_000);
        let of = |n: u64| rows.iter().filter(move |row| row.tag.name().ends_with(&n.to_string()));
        for n in 0..7 {
            let (count, value): (u64, u64) =
                of(n).fold((0, 0), |sum, row| (sum.0 + row.count, sum.1 + row.value));
            assert_eq!(value, count * n);
            assert!(count >= 4 * 1428, "{n}: {count}");
        }
    }

    #[test]
    fn a_name_is_cut_at_a_character() {
        let long = "\u{e9}".repeat(40);
        assert_eq!(Tag::default().named(&long).name(), "\u{e9}".repeat(16));
        assert_eq!(Tag::default().named("x").name(), "x");
        assert_eq!(Tag::default().name(), "");
    }
}
