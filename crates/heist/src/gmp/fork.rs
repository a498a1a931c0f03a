//! The records of forks: a latent job, and the deque of a goroutine that forks.
//!
//! A [`Job`] is the head of the second half of a fork, in the frame of the goroutine that forked.
//! Its [`Deque`] is the goroutine's own from its first fork until it ends, whatever thread it runs
//! on, and whether it runs or is parked. Deques are never unmapped, like the records of goroutines:
//! a thief may look at one that serves another goroutine by now.
//!
//! # Where a thief finds a deque
//! At a P there is a list of deques ([`Forks`]). A deque is at most in one list, that of its
//! `home`. It is listed when its goroutine forks. It is taken out by any thread that holds the lock
//! of the list, once the goroutine has left its M (the deque is not active) and no job is left. A
//! goroutine whose deque is not active makes it active before it pushes, under the same lock. So a
//! deque with jobs is always listed, and a list does not fill up with deques of goroutines that
//! forked once.
//!
//! # Access to the fields
//! - `jobs`: the owner's half belongs to the goroutine `owner`, on whatever M it runs.
//! - `owner`: written when the deque gets its goroutine. It does not change while a job of the
//!   deque has not ended.
//! - `home`, `link`: under the lock of the list; `link` also under that of the pool.
//! - `state`: made `ACTIVE` under the lock of the list; changed back by the M that ran the
//!   goroutine.
//! - `n_silent`: the goroutine.
//! - `meter`: the goroutine; its owner in the sense of `status` reads it.

use super::g::Vtable;
use super::meter::Meter;
use super::{G, P};
use crate::sys::lock::Lock;
use crate::sys::membarrier::light_fence;
use crate::sys::memory;
use heist_core::fork_deque::{ForkDeque, Full, Seen};
use heist_core::fork_job::JobWord;
use heist_core::list::{DoubleLink, DoubleList, DoublyLinked};
use heist_core::lock_rank::Rank;
use heist_core::sync::{AtomicPtr, AtomicU32, Ordering};
use std::panic::Location;
use std::ptr::{NonNull, null_mut};

/// The head of a latent job.
#[repr(C)]
pub(crate) struct Job {
    /// What a goroutine does that is made of the job. Its payload is a [`Taken`].
    pub(crate) vtable: &'static Vtable,
    /// Where it was forked.
    pub(crate) site: &'static Location<'static>,
    pub(crate) word: JobWord,
}

/// What the record of a goroutine holds that was made of a job.
#[derive(Clone, Copy)]
pub(crate) struct Taken {
    pub(crate) job: NonNull<Job>,
    pub(crate) deque: &'static Deque,
}

/// The deque of a goroutine that forks.
#[repr(C, align(128))]
pub(crate) struct Deque {
    jobs: ForkDeque<Job>,
    owner: AtomicPtr<G>,
    home: AtomicPtr<P>,
    state: AtomicU32,
    /// How many jobs its goroutine has pushed in a row without waking an M although a P was idle.
    n_silent: AtomicU32,
    /// What measures its goroutine, if anything does: then it does not push without entering the
    /// runtime.
    meter: AtomicPtr<Meter<'static>>,
    link: DoubleLink<Deque>,
}

// SAFETY: see "Access to the fields" above.
unsafe impl Sync for Deque {}
// SAFETY: as above.
unsafe impl Send for Deque {}

// SAFETY: `link` is used by the list of a P and by the pool; no deque is in both.
unsafe impl DoublyLinked for Deque {
    fn double_link(&self) -> &DoubleLink<Self> {
        &self.link
    }
}

impl Deque {
    fn new() -> Self {
        Self {
            jobs: ForkDeque::new(),
            owner: AtomicPtr::new(null_mut()),
            home: AtomicPtr::new(null_mut()),
            state: AtomicU32::new(LEFT),
            n_silent: AtomicU32::new(0),
            meter: AtomicPtr::new(null_mut()),
            link: DoubleLink::new(),
        }
    }

    /// Pushes a job of the calling goroutine.
    ///
    /// # Safety
    /// The deque is that of the calling goroutine, and active. The job stays where it is until it
    /// was popped or has ended.
    #[inline(always)]
    pub(crate) unsafe fn push(&self, job: &Job) -> Result<(), Full> {
        // SAFETY: by the caller's promise.
        unsafe { self.jobs.owner() }.push(NonNull::from(job))
    }

    /// Pops `job`, which the calling goroutine pushed last. False if a thief has it.
    ///
    /// # Safety
    /// The deque is that of the calling goroutine.
    #[inline(always)]
    pub(crate) unsafe fn pop(&self, job: &Job) -> bool {
        // SAFETY: by the caller's promise.
        unsafe { self.jobs.owner() }.pop(NonNull::from(job), light_fence)
    }

    /// The oldest job, if there seems to be one.
    #[inline]
    pub(crate) fn look(&self) -> Option<Seen> {
        self.jobs.thief().look()
    }

    /// Takes the job that was seen. Between the look and this the caller has executed a heavy
    /// fence, or it is the deque's own goroutine.
    pub(crate) fn take(&self, seen: Seen) -> Option<NonNull<Job>> {
        self.jobs.thief().take(seen)
    }

    /// The goroutine whose jobs are in it. For the taker of one of them, which has not ended.
    pub(crate) fn owner(&self) -> &G {
        // SAFETY: a deque with jobs has an owner, and records are never unmapped.
        unsafe { &*self.owner.load(Ordering::Relaxed) }
    }

    /// Whether it is the deque of this goroutine.
    pub(crate) fn is_of(&self, gp: &G) -> bool {
        std::ptr::eq(self.owner.load(Ordering::Relaxed), gp)
    }

    /// The goroutine has left its M, because it parks or for another reason. From now on the deque
    /// may be taken out of its list.
    #[inline]
    pub(crate) fn deactivate(&self, parks: bool) {
        // ORDERING: Release pairs with `Forks::find`: a thread that sees this sees every push.
        self.state.store(if parks { PARKED } else { LEFT }, Ordering::Release);
    }

    /// How many jobs were pushed in a row without waking an M. For its goroutine.
    pub(crate) fn n_silent(&self) -> u32 {
        self.n_silent.load(Ordering::Relaxed)
    }

    /// Counts a job that was pushed without waking an M, or begins to count again. For its
    /// goroutine.
    pub(crate) fn count_silent(&self, silent: bool) {
        let n = if silent { self.n_silent() + 1 } else { 0 };
        self.n_silent.store(n, Ordering::Relaxed);
    }

    /// What measures its goroutine.
    ///
    /// # Safety
    /// The caller owns the goroutine, in the sense of its status, and uses the result no longer
    /// than that. The goroutine itself may use it in the strand that is measured.
    #[inline]
    pub(crate) unsafe fn meter<'a>(&self) -> Option<&'a Meter<'static>> {
        // SAFETY: by the caller's promise. The frame of the strand is not left before the meter is
        // taken out.
        unsafe { self.meter.load(Ordering::Relaxed).as_ref() }
    }

    /// Lets `meter` measure the calling goroutine, or nothing. Returns what did before.
    pub(crate) fn set_meter(&self, meter: *const Meter<'static>) -> *const Meter<'static> {
        self.meter.swap(meter.cast_mut(), Ordering::Relaxed)
    }

    /// Whether the deque of the calling goroutine is active.
    pub(crate) fn is_active(&self) -> bool {
        self.state.load(Ordering::Relaxed) == ACTIVE
    }

    /// Makes the deque of the calling goroutine active: listed at `here`, unless it is listed
    /// already. True if it was not. The caller is in the runtime.
    pub(crate) fn activate(&self, here: &P) -> bool {
        loop {
            let home = self.home.load(Ordering::Relaxed);
            // SAFETY: null, or a P of the goroutine's runtime, which lives.
            let listed = unsafe { home.as_ref() };
            let pp = listed.unwrap_or(here);
            let mut list = pp.forks.0.lock();
            if self.home.load(Ordering::Relaxed) != home {
                continue;
            }
            self.state.store(ACTIVE, Ordering::Relaxed);
            if listed.is_none() {
                // SAFETY: deques are never unmapped, and this one is in no list.
                unsafe { list.push(NonNull::from(self)) };
                self.home.store(std::ptr::from_ref(pp).cast_mut(), Ordering::Relaxed);
                pp.forks.0.beside().store(list.len(), Ordering::Relaxed);
            }
            return listed.is_none();
        }
    }

    /// Takes the deque of the calling goroutine, which is about to end, out of its list and gives
    /// it back. True if it was listed. The caller is in the runtime.
    pub(crate) fn give_back(&self) -> bool {
        self.deactivate(false);
        let was_listed = loop {
            let home = self.home.load(Ordering::Relaxed);
            // SAFETY: as in `activate`.
            let Some(pp) = (unsafe { home.as_ref() }) else { break false };
            let mut list = pp.forks.0.lock();
            if self.home.load(Ordering::Relaxed) == home {
                pp.forks.remove(&mut list, self);
                break true;
            }
        };
        self.owner.store(null_mut(), Ordering::Relaxed);
        // A strand may have been left unfinished, on a stack that another library leaked.
        self.meter.store(null_mut(), Ordering::Relaxed);
        // SAFETY: the goroutine has no forks left.
        unsafe { self.jobs.owner() }.hand_on();
        // SAFETY: deques are never unmapped, and this one is in no list.
        unsafe { POOL.lock().free.push(NonNull::from(self)) };
        was_listed
    }
}

/// The goroutine of a deque does not run, or has not forked since it runs.
const LEFT: u32 = 0;
/// As `LEFT`; when it ran last, it parked.
const PARKED: u32 = 1;
/// The goroutine runs and may push at any time.
const ACTIVE: u32 = 2;

/// Which deques a thief wants to find.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Any,
    /// Those of goroutines that are parked: nobody else comes for their jobs.
    Parked,
}

/// The deques that are listed at a P, with their number.
pub(crate) struct Forks(Lock<DoubleList<Deque>, AtomicU32>);

impl Forks {
    pub(crate) fn new() -> Self {
        Self(Lock::with_beside(Rank::Forks, DoubleList::new(), AtomicU32::new(0)))
    }

    /// How many there are.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.0.beside().load(Ordering::Relaxed)
    }

    fn remove(&self, list: &mut DoubleList<Deque>, deque: &Deque) {
        // SAFETY: it is in this list, which the caller has locked.
        unsafe { list.remove(NonNull::from(deque)) };
        deque.home.store(null_mut(), Ordering::Relaxed);
        self.0.beside().store(list.len(), Ordering::Relaxed);
    }

    /// A deque with a job, if there is one of those that are `wanted`. Takes out the deques that
    /// are of no use any more, and returns how many these were.
    pub(crate) fn find(&self, wanted: Wanted) -> (Option<(&'static Deque, Seen)>, u32) {
        if self.len() == 0 {
            return (None, 0);
        }
        let mut list = self.0.lock();
        let mut next = list.front();
        let mut n_removed = 0;
        while let Some(deque) = next {
            // SAFETY: deques are never unmapped.
            let deque: &'static Deque = unsafe { deque.as_ref() };
            // ORDERING: Acquire pairs with `deactivate`.
            let state = deque.state.load(Ordering::Acquire);
            let seen = deque.look();
            if let Some(seen) = seen
                && (wanted == Wanted::Any || state == PARKED)
            {
                return (Some((deque, seen)), n_removed);
            }
            next = deque.link.next();
            if state != ACTIVE && seen.is_none() {
                self.remove(&mut list, deque);
                n_removed += 1;
            }
        }
        (None, n_removed)
    }

    /// Moves all deques to `heir`. The caller has stopped the world.
    pub(crate) fn move_to(&self, heir: &P) {
        while let Some(deque) = {
            let mut list = self.0.lock();
            let first = list.pop();
            self.0.beside().store(list.len(), Ordering::Relaxed);
            first
        } {
            let mut list = heir.forks.0.lock();
            // SAFETY: deques are never unmapped, and this one is in no list.
            unsafe {
                list.push(deque);
                deque.as_ref().home.store(std::ptr::from_ref(heir).cast_mut(), Ordering::Relaxed);
            }
            heir.forks.0.beside().store(list.len(), Ordering::Relaxed);
        }
    }
}

/// Bytes mapped at once: 24 deques.
const SLAB_BYTES: usize = 64 << 10;

struct Pool {
    free: DoubleList<Deque>,
    /// Room for deques that were never used.
    next: *mut Deque,
    n_left: usize,
}

// SAFETY: the room is memory that no other code uses.
unsafe impl Send for Pool {}

static POOL: Lock<Pool> =
    Lock::new(Rank::Forks, Pool { free: DoubleList::new(), next: null_mut(), n_left: 0 });

/// A deque for `owner`, the calling goroutine. None if the system has no memory. The caller is in
/// the runtime.
pub(crate) fn take_deque(owner: &G) -> Option<&'static Deque> {
    let mut pool = POOL.lock();
    let deque = match pool.free.pop() {
        Some(deque) => deque,
        None => {
            if pool.n_left == 0 {
                pool.next = memory::map(SLAB_BYTES).ok()?.cast().as_ptr();
                pool.n_left = SLAB_BYTES / size_of::<Deque>();
            }
            let place = pool.next;
            pool.next = place.wrapping_add(1);
            pool.n_left -= 1;
            // SAFETY: it is aligned room for a deque, used for nothing else from now on.
            unsafe { place.write(Deque::new()) };
            NonNull::new(place)?
        }
    };
    drop(pool);
    // SAFETY: deques are never unmapped.
    let deque = unsafe { deque.as_ref() };
    deque.owner.store(std::ptr::from_ref(owner).cast_mut(), Ordering::Relaxed);
    Some(deque)
}
