//! `Desc`: the poller's record of a descriptor.
//!
//! A record that is never unmapped, because an event that was taken from the kernel before the
//! descriptor was closed may be delivered after that. The event names the record and the use that
//! it is for; an event for an earlier use is dropped. The words of the record contain the number of
//! the use, so that a use cannot end between the check and the delivery.

use crate::gmp::G;
use crate::sys::lock::Lock;
use crate::sys::memory;
use heist_core::list::{Link, Linked, List};
use heist_core::lock_rank::Rank;
use heist_core::readiness::{Readiness, USE_BITS};
use heist_core::sync::{AtomicU32, Ordering};
use std::io;
use std::ptr::NonNull;

/// A direction of a descriptor, and the goroutine that waits for it.
pub(crate) type Half = Readiness<G>;

/// A descriptor as the poller sees it.
#[repr(C, align(128))]
pub(crate) struct Desc {
    pub(crate) read: Half,
    pub(crate) write: Half,
    link: Link<Desc>,
    /// The number of the current use of the record.
    tag: AtomicU32,
}

// SAFETY: only the free list uses `link`, and not while the record is in use; the rest is atomic.
unsafe impl Sync for Desc {}
// SAFETY: as above.
unsafe impl Send for Desc {}

// SAFETY: only the free list uses `link`.
unsafe impl Linked for Desc {
    fn link(&self) -> &Link<Self> {
        &self.link
    }
}

/// Records mapped at a time.
const SLAB_RECORDS: usize = 512;

static FREE: Lock<List<Desc>> = Lock::new(Rank::PollDesc, List::new());

impl Desc {
    /// A record for a new descriptor.
    pub(crate) fn take() -> io::Result<&'static Self> {
        let mut free = FREE.lock();
        if free.is_empty() {
            carve(&mut free)?;
        }
        let Some(desc) = free.pop_front() else {
            heist_core::throw!("Desc::take: no record after carving some");
        };
        drop(free);
        // SAFETY: records are never unmapped.
        let desc = unsafe { desc.as_ref() };
        let tag = desc.tag.load(Ordering::Relaxed);
        desc.read.open(tag);
        desc.write.open(tag);
        Ok(desc)
    }

    /// Returns the record to the free list. No goroutine waits on it any more.
    pub(crate) fn give(&'static self) {
        if self.read.close().is_some() || self.write.close().is_some() {
            heist_core::throw!("Desc::give: a goroutine still waits");
        }
        // ORDERING: Release pairs with `Token::desc`; see there.
        self.tag.fetch_add(1, Ordering::Release);
        // SAFETY: it was in use until now, so it is in no list.
        unsafe { FREE.lock().push_front(NonNull::from(self)) };
    }
}

fn carve(free: &mut List<Desc>) -> io::Result<()> {
    let slab = memory::map(SLAB_RECORDS * size_of::<Desc>())?.cast::<Desc>();
    for i in 0..SLAB_RECORDS {
        // SAFETY: inside the new mapping, which is aligned to a page.
        let record = unsafe { slab.add(i) };
        let desc = Desc {
            read: Readiness::new(),
            write: Readiness::new(),
            link: Link::new(),
            tag: AtomicU32::new(0),
        };
        // SAFETY: as above, and no other thread has seen it.
        unsafe {
            record.write(desc);
            free.push_back(record);
        }
    }
    Ok(())
}

/// The data that an event carries: a record, and which use of it is meant.
///
/// An address has 48 bits, of which a record's lowest 7 are zero; the tag takes the other 23.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token(u64);

const ADDRESS_BITS: u32 = 48;
const ALIGN_BITS: u32 = align_of::<Desc>().trailing_zeros();
const TAG_BITS: u32 = 64 - (ADDRESS_BITS - ALIGN_BITS);
const TAG_MASK: u32 = (1 << TAG_BITS) - 1;

impl Token {
    /// The poller's timer. No record is at address zero, whatever the tag.
    pub(crate) const TIMER: Self = Self(0);
    /// The poller's waker.
    pub(crate) const WAKER: Self = Self(1);

    /// Names the present use of a record.
    pub(crate) fn of(desc: &'static Desc) -> Self {
        let address = std::ptr::from_ref(desc).expose_provenance() as u64;
        if address >> ADDRESS_BITS != 0 {
            heist_core::throw!("Token::of: an address of more than {ADDRESS_BITS} bits");
        }
        let tag = desc.tag.load(Ordering::Relaxed) & TAG_MASK;
        Self(address >> ALIGN_BITS << TAG_BITS | u64::from(tag))
    }

    fn address(self) -> *const Desc {
        std::ptr::with_exposed_provenance((self.0 >> TAG_BITS << ALIGN_BITS) as usize)
    }

    /// Which use of the record is meant.
    pub(crate) const fn tag(self) -> u32 {
        self.0 as u32 & TAG_MASK
    }

    /// Prefetches the record.
    pub(crate) fn prefetch(self) {
        memory::prefetch_for_write(self.address().cast());
    }

    /// The record, if it is still in the use that was meant.
    pub(crate) fn desc(self) -> Option<&'static Desc> {
        // SAFETY: a token is made of a record, and records are never unmapped.
        let desc = unsafe { self.address().as_ref()? };
        // ORDERING: Acquire pairs with `Desc::give`: an event of this use is not delivered to the
        // state of the one before.
        let tag = desc.tag.load(Ordering::Acquire) & TAG_MASK;
        (tag == self.tag()).then_some(desc)
    }
}

impl From<Token> for mio::Token {
    fn from(token: Token) -> Self {
        Self(token.0 as usize)
    }
}

impl From<mio::Token> for Token {
    fn from(token: mio::Token) -> Self {
        Self(token.0 as u64)
    }
}

const _: () = assert!(size_of::<usize>() == 8, "a token is 64 bits");
const _: () = assert!(TAG_BITS == USE_BITS, "a tag is the number of a use");
