//! Buffers of records, the pages in which they are filled, and rows of full ones.

use heist_trace::record::{Context, Record};
use std::ptr::{NonNull, null_mut};

/// Bytes of a buffer.
pub(crate) const BUFFER_BYTES: usize = 64 << 10;
/// Records of a buffer.
pub(crate) const CAPACITY: usize = (BUFFER_BYTES - 128) / size_of::<Record>();

/// A buffer of records. Zeroes are a valid one.
#[repr(C, align(64))]
pub(crate) struct Buffer {
    pub(crate) next: *mut Buffer,
    pub(crate) generation: u32,
    pub(crate) n: u32,
    pub(crate) context: Context,
    pub(crate) records: [Record; CAPACITY],
}

const _: () = assert!(size_of::<Buffer>() <= BUFFER_BYTES);

impl Buffer {
    pub(crate) fn records(&self) -> &[Record] {
        &self.records[..self.n as usize]
    }
}

/// A buffer that the collector owns.
pub(crate) struct Full(pub(super) NonNull<Buffer>);

// SAFETY: the owner of this is the only one that uses the buffer.
unsafe impl Send for Full {}

impl std::ops::Deref for Full {
    type Target = Buffer;

    fn deref(&self) -> &Buffer {
        // SAFETY: it is owned, and mapped until the recorder is dropped.
        unsafe { self.0.as_ref() }
    }
}

/// The buffer that a writer fills, and its place in it.
pub(crate) struct Page {
    pub(crate) buffer: *mut Buffer,
    pub(crate) n: usize,
    /// Buffers that the writer has begun.
    pub(crate) sequence: u32,
    /// Records that were lost since the last buffer.
    pub(crate) dropped: u64,
}

impl Page {
    pub(crate) const fn new() -> Self {
        Self { buffer: null_mut(), n: 0, sequence: 0, dropped: 0 }
    }

    pub(crate) fn has_room(&self, n: usize) -> bool {
        !self.buffer.is_null() && self.n + n <= CAPACITY
    }

    /// Writes a group of records.
    ///
    /// # Safety
    /// The page has a buffer with room for them, and is the caller's.
    pub(crate) unsafe fn write(&mut self, fill: impl FnOnce(&mut Lines<'_>)) {
        // SAFETY: by the caller's promise nobody else uses the records.
        let room = unsafe { &mut (&mut (*self.buffer).records)[self.n..] };
        let mut lines = Lines { room, n: 0 };
        fill(&mut lines);
        self.n += lines.n;
    }
}

/// Room for a group of records.
pub(crate) struct Lines<'a> {
    pub(crate) room: &'a mut [Record],
    pub(crate) n: usize,
}

impl Lines<'_> {
    /// Whether the group is the first in its buffer.
    pub(crate) const fn is_first(&self) -> bool {
        self.room.len() == CAPACITY && self.n == 0
    }

    pub(crate) fn push(&mut self, record: Record) {
        if let Some(place) = self.room.get_mut(self.n) {
            *place = record;
            self.n += 1;
        }
    }
}

/// Buffers in a row, first in, first out.
pub(crate) struct Row {
    pub(crate) first: *mut Buffer,
    pub(crate) last: *mut Buffer,
}

impl Row {
    pub(crate) const fn new() -> Self {
        Self { first: null_mut(), last: null_mut() }
    }

    /// # Safety
    /// The buffer is valid, the caller's, and in no row.
    pub(super) unsafe fn push(&mut self, buffer: *mut Buffer) {
        // SAFETY: by the caller's promise; a row has only valid buffers.
        unsafe {
            (*buffer).next = null_mut();
            match self.last.as_mut() {
                Some(last) => last.next = buffer,
                None => self.first = buffer,
            }
        }
        self.last = buffer;
    }

    pub(crate) fn pop(&mut self) -> Option<NonNull<Buffer>> {
        let buffer = NonNull::new(self.first)?;
        // SAFETY: a row has only valid buffers.
        self.first = unsafe { buffer.as_ref() }.next;
        if self.first.is_null() {
            self.last = null_mut();
        }
        Some(buffer)
    }
}
