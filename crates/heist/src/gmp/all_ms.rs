//! The records of all Ms of a runtime.

use super::M;
use crate::sys::membarrier::is_asymmetric;
use crate::sys::memory::{self, PAGE_MAX_BYTES};
use heist_core::sync::{AtomicPtr, AtomicU32, Ordering, fence};
use std::ptr::{NonNull, null, null_mut};
use std::sync::{Mutex, PoisonError};

/// All records of a runtime, the newest first. None is ever removed.
#[doc(alias = "allm")]
pub(crate) struct AllMs {
    newest: AtomicPtr<M>,
    n_ids: AtomicU32,
    /// Only threads without a P take this lock.
    room: Mutex<Room>,
}

/// Room for more records, in pages that the runtime maps itself: making a thread must not use the
/// allocator, whose lock a preempted goroutine may hold.
struct Room {
    next: *mut M,
    n_left: usize,
}

/// Bytes mapped at once, a multiple of every page size.
const CHUNK_BYTES: usize = PAGE_MAX_BYTES;
const _: () = assert!(size_of::<M>() <= CHUNK_BYTES);

// SAFETY: it is memory that no other code uses.
unsafe impl Send for Room {}

impl Room {
    fn take(&mut self, m: &M) -> std::io::Result<NonNull<M>> {
        m.is_first_of_chunk.set(self.n_left == 0);
        if self.n_left == 0 {
            self.next = memory::map(CHUNK_BYTES)?.cast().as_ptr();
            self.n_left = CHUNK_BYTES / size_of::<M>();
        }
        let taken = self.next;
        self.next = taken.wrapping_add(1);
        self.n_left -= 1;
        NonNull::new(taken).ok_or_else(|| std::io::ErrorKind::OutOfMemory.into())
    }
}

impl AllMs {
    pub(crate) fn new() -> Self {
        let room = Mutex::new(Room { next: null_mut(), n_left: 0 });
        Self { newest: AtomicPtr::new(null_mut()), n_ids: AtomicU32::new(0), room }
    }

    /// A number for a record.
    pub(crate) fn next_id(&self) -> u32 {
        self.n_ids.fetch_add(1, Ordering::Relaxed)
    }

    /// Adds a record. An error if there is no memory for it.
    pub(crate) fn add(&self, m: M) -> std::io::Result<NonNull<M>> {
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        let place = room.take(&m)?;
        // SAFETY: it is aligned room for a record, used for nothing else from now on.
        let m = unsafe {
            place.write(m);
            &mut *place.as_ptr()
        };
        m.made_before.set(self.newest.load(Ordering::Relaxed));
        // ORDERING: Release pairs with `iter`: a thread that finds the record sees its contents.
        self.newest.store(m, Ordering::Release);
        drop(room);
        // ORDERING: pairs with the fence of `heavy_fence` in `sched::stall::retake`, which notes
        // that there is no asymmetric fence any more and then walks the list: one of the two sees
        // the other.
        fence(Ordering::SeqCst);
        if !is_asymmetric() {
            m.word.use_full_fences();
        }
        Ok(NonNull::from(m))
    }

    /// All records.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &M> {
        self.iter_from(null())
    }

    /// The records from `m` on; null means all.
    pub(crate) fn iter_from(&self, m: *const M) -> impl Iterator<Item = &M> {
        // ORDERING: see `add`.
        let first = if m.is_null() { self.newest.load(Ordering::Acquire) } else { m.cast_mut() };
        // SAFETY: records are freed with this list.
        let first = unsafe { first.as_ref() };
        // SAFETY: as above.
        std::iter::successors(first, |m| unsafe { m.made_before.get().as_ref() })
    }
}

impl Drop for AllMs {
    fn drop(&mut self) {
        let mut next = NonNull::new(self.newest.load(Ordering::Relaxed));
        while let Some(m) = next {
            // SAFETY: every thread that used it held a reference to the runtime, which is being
            // dropped. The first record of a chunk is its oldest, so it comes last here.
            unsafe {
                next = NonNull::new(m.as_ref().made_before.get().cast_mut());
                let is_first = m.as_ref().is_first_of_chunk.get();
                m.drop_in_place();
                if is_first {
                    memory::unmap(m.cast(), CHUNK_BYTES);
                }
            }
        }
    }
}
