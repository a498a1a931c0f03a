//! The goroutine records of the process: where they come from and where they rest.
//!
//! Records are carved from mapped slabs that are never unmapped: handles and dumps may look at
//! any record at any time. The list of slabs only grows, so it is read without a lock.
//!
//! # Ordering
//! A slab is linked in with Release after its records are initialised; walkers load with Acquire.
//!
//! GO: proc.go gfput, gfget, allgadd.

use super::G;
use crate::sys::lock::Lock;
use crate::sys::memory;
use heist_core::list::List;
use heist_core::lock_rank::Rank;
use heist_core::policy;
use heist_core::sync::{AtomicPtr, Ordering};
use std::ptr::{NonNull, null_mut};

/// A slab is this many bytes: 1 MiB holds 4095 records.
const SLAB_BYTES: usize = 1 << 20;

/// What stands at the start of a slab, padded to a record.
#[repr(C, align(64))]
struct SlabHeader {
    next: *mut SlabHeader,
    _pad: [u8; 248],
}

const PER_SLAB: usize = (SLAB_BYTES - size_of::<SlabHeader>()) / size_of::<G>();

/// All slabs, newest first.
static SLABS: AtomicPtr<SlabHeader> = AtomicPtr::new(null_mut());

struct Shared {
    free: List<G>,
    /// Records of the newest slab that were never used: touching them all at once would make a
    /// small program pay for a large one.
    fresh: *mut G,
    n_fresh: usize,
}

// SAFETY: `fresh` points into a slab that only the holder of the lock carves.
unsafe impl Send for Shared {}

static SHARED: Lock<Shared> = Lock::new(
    Rank::FreeGs,
    Shared {
        free: List::new(),
        fresh: null_mut(),
        n_fresh: 0,
    },
);

/// Moves free records into `local` until it holds [`policy::FREE_G_KEEP`]. At least one, unless
/// the system has no memory left.
pub(crate) fn refill(local: &mut List<G>) -> std::io::Result<()> {
    let mut shared = SHARED.lock();
    while local.len() < policy::FREE_G_KEEP {
        let gp = match shared.free.pop_front() {
            Some(gp) => gp,
            None => match carve(&mut shared) {
                Ok(gp) => gp,
                Err(_) if !local.is_empty() => break,
                Err(error) => return Err(error),
            },
        };
        // SAFETY: a free record is valid and in no list now.
        unsafe { local.push_back(gp) };
    }
    Ok(())
}

/// Takes one free record, for a thread without a P.
pub(crate) fn take_one() -> std::io::Result<NonNull<G>> {
    let mut shared = SHARED.lock();
    match shared.free.pop_front() {
        Some(gp) => Ok(gp),
        None => carve(&mut shared),
    }
}

/// Gives one record back, from a thread without a P.
pub(crate) fn give_one(gp: NonNull<G>) {
    // SAFETY: the caller recycles the record, so it is valid and in no list.
    unsafe { SHARED.lock().free.push_front(gp) };
}

/// Gives back what `local` holds beyond [`policy::FREE_G_KEEP`] less one, as Go does.
pub(crate) fn spill(local: &mut List<G>, keep: u32) {
    let mut surplus = local.split_front(local.len().saturating_sub(keep));
    SHARED.lock().free.append(&mut surplus);
}

fn carve(shared: &mut Shared) -> std::io::Result<NonNull<G>> {
    if shared.n_fresh == 0 {
        let slab = memory::map(SLAB_BYTES)?.cast::<SlabHeader>();
        // SAFETY: the header starts the slab and the records follow it, all inside the mapping.
        unsafe {
            shared.fresh = slab.as_ptr().add(1).cast();
            (*slab.as_ptr()).next = SLABS.load(Ordering::Relaxed);
        }
        shared.n_fresh = PER_SLAB;
        SLABS.store(slab.as_ptr(), Ordering::Release);
    }
    let gp = shared.fresh;
    shared.n_fresh -= 1;
    // SAFETY: `gp` is inside the slab, properly aligned, and never used before. Readers of all
    // records skip it as long as it is zero (status Dead) or dead.
    unsafe {
        gp.write(G::new_dead());
        shared.fresh = gp.add(1);
        Ok(NonNull::new_unchecked(gp))
    }
}

/// Calls `look` with every record of the process, dead ones included.
pub(crate) fn for_each(mut look: impl FnMut(&G)) {
    let mut slab = SLABS.load(Ordering::Acquire);
    while !slab.is_null() {
        for i in 0..PER_SLAB {
            // SAFETY: slabs are never unmapped, and mapped memory is zero until used, which reads
            // as a dead record: status and ids are plain integers, cells are not touched by
            // lookers unless the record is alive.
            look(unsafe { &*slab.add(1).cast::<G>().add(i) });
        }
        // SAFETY: as above; `next` was written before the slab was published.
        slab = unsafe { (*slab).next };
    }
}
