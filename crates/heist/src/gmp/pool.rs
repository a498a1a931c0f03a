//! The pool of goroutine records of the process.
//!
//! Records are carved from mapped slabs that are never unmapped: handles and dumps may read any
//! record at any time. The list of slabs only grows, so it is read without a lock.
//!
//! # Ordering
//! A slab is linked in with Release after its header is written, and its count of records grows
//! with Release after a record is initialised; walkers load both with Acquire.
//!
//! GO: proc.go gfput, gfget, allgadd.

use super::G;
use crate::sys::lock::Lock;
use crate::sys::memory;
use heist_core::list::List;
use heist_core::lock_rank::Rank;
use heist_core::policy;
use heist_core::sync::{AtomicPtr, AtomicUsize, Ordering};
use std::mem::offset_of;
use std::ptr::{NonNull, null, null_mut};

/// A slab is this many bytes: 1 MiB holds 5460 records.
const SLAB_BYTES: usize = 1 << 20;

/// The header at the start of a slab, padded to the size of a record.
#[repr(C, align(64))]
struct SlabHeader {
    next: *mut SlabHeader,
    /// The number of records that were ever used.
    carved: AtomicUsize,
    _pad: [u8; 176],
}

/// The number of records that are read under one hold of the lock.
const LOOKS_HELD: usize = 128;

const PER_SLAB: usize = (SLAB_BYTES - size_of::<SlabHeader>()) / size_of::<G>();

/// All slabs, newest first.
static SLABS: AtomicPtr<SlabHeader> = AtomicPtr::new(null_mut());

/// For debuggers: where the list of slabs begins, where a slab has its next one and its number of
/// records, and where the records are.
pub(super) const SLABS_AT: *const () = (&raw const SLABS).cast();
pub(super) const SLAB_NEXT: usize = offset_of!(SlabHeader, next);
pub(super) const SLAB_CARVED: usize = offset_of!(SlabHeader, carved);
pub(super) const SLAB_FIRST: usize = size_of::<SlabHeader>();

/// Free records move between a P and the shared pool as chains, so that moving them touches only
/// the first record of a chain. A dead record's `parent_id` is the length of its chain, its
/// `bound_m` the last record of it, and its `sched` the first record of the next chain.
struct Chains {
    first: *mut G,
}

impl Chains {
    fn push(&mut self, chain: List<G>) {
        let len = chain.len();
        let Some((head, tail)) = chain.into_ends() else { return };
        // SAFETY: records are never unmapped, and this one is dead and in no other list.
        let g = unsafe { head.as_ref() };
        g.parent_id.set(len.into());
        g.bound_m.set(tail.as_ptr().cast());
        g.sched.set(self.first.cast());
        self.first = head.as_ptr();
    }

    fn pop(&mut self) -> Option<List<G>> {
        let head = NonNull::new(self.first)?;
        // SAFETY: as above; it was put here by `push`.
        let g = unsafe { head.as_ref() };
        self.first = g.sched.get().cast_mut().cast();
        let tail = NonNull::new(g.bound_m.replace(null()).cast_mut().cast())?;
        // SAFETY: the chain was one list of this length, and its links have not changed.
        Some(unsafe { List::from_ends((head, tail), g.parent_id.get() as u32) })
    }
}

struct Shared {
    free: Chains,
    /// The newest slab, whose records are initialised when they are first used: touching them all
    /// at once would make a small program pay for a large one.
    newest: *mut SlabHeader,
    n_fresh: usize,
}

// SAFETY: only the holder of the lock carves records from the slab `newest`, and only it uses the
// dead records of the chains.
unsafe impl Send for Shared {}

static SHARED: Lock<Shared> = Lock::new(
    Rank::FreeGs,
    Shared { free: Chains { first: null_mut() }, newest: null_mut(), n_fresh: 0 },
);

/// Gives `local`, which is empty, a chain of free records, or new ones. At least one, unless the
/// system has no memory left.
pub(crate) fn refill(local: &mut List<G>) -> std::io::Result<()> {
    let mut shared = SHARED.lock();
    if let Some(mut chain) = shared.free.pop() {
        local.append(&mut chain);
        return Ok(());
    }
    while local.len() < policy::FREE_G_KEEP {
        match carve(&mut shared) {
            // SAFETY: a new record is valid and in no list.
            Ok(gp) => unsafe { local.push_back(gp) },
            Err(_) if !local.is_empty() => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Takes one free record, for a thread without a P.
pub(crate) fn take_one() -> std::io::Result<NonNull<G>> {
    let mut shared = SHARED.lock();
    let Some(mut chain) = shared.free.pop() else { return carve(&mut shared) };
    let gp = chain.pop_front();
    shared.free.push(chain);
    gp.map_or_else(|| carve(&mut shared), Ok)
}

/// Returns one record, from a thread without a P.
pub(crate) fn give_one(gp: NonNull<G>) {
    let mut chain = List::new();
    // SAFETY: the caller recycles the record, so it is valid and in no list.
    unsafe { chain.push_back(gp) };
    SHARED.lock().free.push(chain);
}

/// Returns the records that `local` holds beyond `keep`.
pub(crate) fn spill(local: &mut List<G>, keep: u32) {
    let surplus = local.split_front(local.len().saturating_sub(keep));
    if !surplus.is_empty() {
        SHARED.lock().free.push(surplus);
    }
}

fn carve(shared: &mut Shared) -> std::io::Result<NonNull<G>> {
    if shared.n_fresh == 0 {
        let slab = memory::map(SLAB_BYTES)?.cast::<SlabHeader>();
        // SAFETY: the header starts the slab; zeroes are a valid one.
        unsafe { (*slab.as_ptr()).next = SLABS.load(Ordering::Relaxed) };
        shared.newest = slab.as_ptr();
        shared.n_fresh = PER_SLAB;
        SLABS.store(slab.as_ptr(), Ordering::Release);
    }
    let n = PER_SLAB - shared.n_fresh;
    shared.n_fresh -= 1;
    // SAFETY: the records follow the header inside the mapping, aligned; this one was never used.
    unsafe {
        let gp = shared.newest.add(1).cast::<G>().add(n);
        gp.write(G::new_dead());
        (*shared.newest).carved.store(n + 1, Ordering::Release);
        Ok(NonNull::new_unchecked(gp))
    }
}

/// Calls `look` while no record moves from one runtime to another: a record that belongs to a
/// runtime, alive or on the free list of a P, stays with it. A record changes its runtime only
/// through the shared pool.
pub(crate) fn hold<T>(look: impl FnOnce() -> T) -> T {
    let _shared = SHARED.lock();
    look()
}

/// As [`for_each`], with a [`hold`] around the calls of `look`; a number of consecutive calls share
/// one.
pub(crate) fn for_each_held(mut look: impl FnMut(&G)) {
    let mut held = None;
    let mut n = 0_usize;
    for_each(|gp| {
        if n.is_multiple_of(LOOKS_HELD) {
            // Released, so that other threads can take the lock in between.
            held = None;
        }
        n += 1;
        let _ = held.get_or_insert_with(|| SHARED.lock());
        look(gp);
    });
}

/// Calls `look` with every record that was ever used, dead ones included.
pub(crate) fn for_each(mut look: impl FnMut(&G)) {
    let mut slab = SLABS.load(Ordering::Acquire);
    // SAFETY: slabs are never unmapped, and all data that is read was written before it was
    // published.
    while let Some(header) = unsafe { slab.as_ref() } {
        for i in 0..header.carved.load(Ordering::Acquire) {
            // SAFETY: as above.
            look(unsafe { &*slab.add(1).cast::<G>().add(i) });
        }
        slab = header.next;
    }
}

/// Calls `look` with the addresses of each slab.
pub(crate) fn for_each_slab(mut look: impl FnMut(std::ops::Range<usize>)) {
    let mut slab = SLABS.load(Ordering::Acquire);
    // SAFETY: as in `for_each`.
    while let Some(header) = unsafe { slab.as_ref() } {
        look(slab.addr()..slab.addr() + SLAB_BYTES);
        slab = header.next;
    }
}

/// A record moves from one runtime to another through the shared pool, so that a holder of the pool
/// does not see it change: it does not go onto the free list of a P, though its handle is released
/// there.
#[test]
fn a_record_changes_its_runtime_through_the_shared_pool() {
    // SAFETY: the goroutines keep nothing across a park that is bound to a thread.
    let start = || unsafe { crate::Runtime::builder().procs(1).build() }.expect("it starts");
    let (home, other) = (start(), start());
    for _ in 0..100 {
        let handle = home.handle().spawn(|| ());
        let gp = handle.record();
        // The goroutine has ended and left its stack: the handle is the last to release the record.
        while crate::sched::life::n_live(home.sched()) != 0 {
            std::thread::yield_now();
        }
        other.run(move || {
            handle.join().expect("it returned");
            let rt = crate::current::enter().expect("a goroutine");
            let front = rt.holder().p().with_local(|local| local.free_gs.front());
            let kept = front.is_some_and(|front| front.addr().get() == gp);
            drop(rt);
            assert!(!kept, "the record is on the list of another runtime");
        });
    }
}
