//! Intrusive lists: a goroutine or a thread is its own list node, so queueing allocates nothing.
//!
//! [`List`] is singly linked, for run queues and free lists. [`DoubleList`] also removes a given
//! element in constant time, for idle threads and for waiters that may give up.
//!
//! # Invariants
//! - An element is in at most one list through a given link.
//! - Lists hand out and take `NonNull`; they own nothing and free nothing.
//!
//! GO: proc.go gQueue, gList; list.go, list_manual.go.

use crate::sync::{Ordering, UnseenPtr};
use std::cell::Cell;
use std::ptr::NonNull;

/// The link that makes a type a node of a [`List`].
///
/// An element that is in no list may keep a number in it. Others may read it while the element is
/// put into a list, and must then detect by themselves that they did not read a number. So the link
/// is atomic, though every access is a plain one.
#[derive(Debug)]
pub struct Link<T>(UnseenPtr<T>);

impl<T> Link<T> {
    /// A link that is in no list.
    #[must_use]
    pub const fn new() -> Self {
        Self(UnseenPtr::new(std::ptr::null_mut()))
    }

    #[inline]
    fn get(&self) -> Option<NonNull<T>> {
        NonNull::new(self.0.load(Ordering::Relaxed))
    }

    #[inline]
    fn set(&self, next: Option<NonNull<T>>) {
        self.0.store(next.map_or(std::ptr::null_mut(), NonNull::as_ptr), Ordering::Relaxed);
    }

    /// Stores a number. The element is in no list, and entering one overwrites the number.
    #[inline]
    pub fn set_number(&self, number: u64) {
        self.0.store(std::ptr::without_provenance_mut(number as usize), Ordering::Relaxed);
    }

    /// The number, if the element is in no list and was in none since it was set.
    #[inline]
    #[must_use]
    pub fn number(&self) -> u64 {
        self.0.load(Ordering::Relaxed).addr() as u64
    }
}

impl<T> Default for Link<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// A type that carries a [`Link`].
///
/// # Safety
/// `link` must return the same field at every call, and while an element is in a list nothing else
/// may use that field. Elements must stay at their address while they are in a list.
pub unsafe trait Linked: Sized {
    /// The link of this element.
    fn link(&self) -> &Link<Self>;
}

/// A FIFO of linked elements that also takes at the front.
#[derive(Debug)]
#[doc(alias = "gQueue")]
pub struct List<T: Linked> {
    head: Option<NonNull<T>>,
    tail: Option<NonNull<T>>,
    len: u32,
}

// SAFETY: a list is a set of pointers to elements it has sole use of; moving it to another thread
// moves that use. Elements themselves must be allowed to move between threads.
unsafe impl<T: Linked + Send> Send for List<T> {}

impl<T: Linked> List<T> {
    /// An empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self { head: None, tail: None, len: 0 }
    }

    /// How many elements there are.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.head.is_none()
    }

    /// The first element, which stays in the list.
    #[must_use]
    pub const fn front(&self) -> Option<NonNull<T>> {
        self.head
    }

    /// Takes the list apart without touching its elements. Returns its two ends, between which the
    /// others are linked, or None if it is empty.
    pub fn into_ends(mut self) -> Option<(NonNull<T>, NonNull<T>)> {
        self.head.take().zip(self.tail.take())
    }

    /// Puts a list together again.
    ///
    /// # Safety
    /// `ends` came from [`List::into_ends`] of a list of `len` elements that was not changed since.
    #[must_use]
    pub const unsafe fn from_ends(ends: (NonNull<T>, NonNull<T>), len: u32) -> Self {
        Self { head: Some(ends.0), tail: Some(ends.1), len }
    }

    /// Appends an element.
    ///
    /// # Safety
    /// `element` is valid, in no list, and stays valid while it is in this one.
    pub unsafe fn push_back(&mut self, element: NonNull<T>) {
        // SAFETY: valid by the caller's promise.
        unsafe { element.as_ref() }.link().set(None);
        match self.tail.replace(element) {
            // SAFETY: elements of the list are valid.
            Some(tail) => unsafe { tail.as_ref() }.link().set(Some(element)),
            None => self.head = Some(element),
        }
        self.len += 1;
    }

    /// Puts an element in front.
    ///
    /// # Safety
    /// As for [`List::push_back`].
    pub unsafe fn push_front(&mut self, element: NonNull<T>) {
        // SAFETY: valid by the caller's promise.
        unsafe { element.as_ref() }.link().set(self.head);
        self.head = Some(element);
        if self.tail.is_none() {
            self.tail = Some(element);
        }
        self.len += 1;
    }

    /// Takes the first element.
    pub fn pop_front(&mut self) -> Option<NonNull<T>> {
        let element = self.head?;
        // SAFETY: elements of the list are valid. The link is left as it is: it has no meaning
        // outside a list, and not writing it saves the cache line of an element that is only moved.
        self.head = unsafe { element.as_ref() }.link().get();
        if self.head.is_none() {
            self.tail = None;
        }
        self.len -= 1;
        Some(element)
    }

    /// Appends all of `other`.
    pub fn append(&mut self, other: &mut Self) {
        let Some(first) = other.head.take() else {
            return;
        };
        match self.tail {
            // SAFETY: elements of the list are valid.
            Some(tail) => unsafe { tail.as_ref() }.link().set(Some(first)),
            None => self.head = Some(first),
        }
        self.tail = other.tail.take();
        self.len += std::mem::take(&mut other.len);
    }

    /// Moves all of `other` in front of the first element, keeping its order.
    pub fn prepend(&mut self, other: &mut Self) {
        other.append(self);
        std::mem::swap(self, other);
    }

    /// The elements in order, which stay in the list.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        // SAFETY: elements of the list are valid, and their links do not change while it is
        // borrowed.
        let as_ref = |element: NonNull<T>| unsafe { &*element.as_ptr() };
        std::iter::successors(self.head, move |&element| as_ref(element).link().get()).map(as_ref)
    }

    /// Takes out the first element that `wanted` accepts, among the first `limit`.
    pub fn take_first(&mut self, limit: u32, wanted: impl Fn(&T) -> bool) -> Option<NonNull<T>> {
        let mut before: Option<NonNull<T>> = None;
        let mut at = self.head;
        for _ in 0..limit {
            let element = at?;
            // SAFETY: elements of the list are valid.
            let here = unsafe { element.as_ref() };
            let next = here.link().get();
            if wanted(here) {
                match before {
                    // SAFETY: as above.
                    Some(before) => unsafe { before.as_ref() }.link().set(next),
                    None => self.head = next,
                }
                if next.is_none() {
                    self.tail = before;
                }
                self.len -= 1;
                return Some(element);
            }
            before = Some(element);
            at = next;
        }
        None
    }

    /// Takes the first `n` elements, or all if there are fewer.
    #[must_use]
    pub fn split_front(&mut self, n: u32) -> Self {
        if n >= self.len {
            return std::mem::take(self);
        }
        let Some(mut last) = self.head.filter(|_| n > 0) else { return Self::new() };
        for _ in 1..n {
            // SAFETY: elements of the list are valid, and there are more than `n`.
            let Some(next) = (unsafe { last.as_ref() }).link().get() else {
                crate::throw!("List::split_front: {} counted, fewer found", self.len);
            };
            last = next;
        }
        // SAFETY: as above.
        let link = unsafe { last.as_ref() }.link();
        let rest = link.get();
        link.set(None);
        let front = Self { head: self.head, tail: Some(last), len: n };
        self.head = rest;
        self.len -= n;
        front
    }
}

impl<T: Linked> Default for List<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Linked> Iterator for List<T> {
    type Item = NonNull<T>;

    fn next(&mut self) -> Option<NonNull<T>> {
        self.pop_front()
    }
}

/// The links that make a type a node of a [`DoubleList`].
#[derive(Debug)]
pub struct DoubleLink<T> {
    next: Cell<Option<NonNull<T>>>,
    prev: Cell<Option<NonNull<T>>>,
    listed: Cell<bool>,
}

impl<T> DoubleLink<T> {
    /// Links that are in no list.
    #[must_use]
    pub const fn new() -> Self {
        Self { next: Cell::new(None), prev: Cell::new(None), listed: Cell::new(false) }
    }

    /// The next element of its list. The caller holds what protects the list.
    #[must_use]
    pub fn next(&self) -> Option<NonNull<T>> {
        self.next.get()
    }

    /// Whether the element is in a list.
    #[must_use]
    pub fn is_listed(&self) -> bool {
        self.listed.get()
    }
}

impl<T> Default for DoubleLink<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// A type that carries a [`DoubleLink`].
///
/// # Safety
/// As for [`Linked`].
pub unsafe trait DoublyLinked: Sized {
    /// The links of this element.
    fn double_link(&self) -> &DoubleLink<Self>;
}

/// Linked elements that enter and leave at both ends. A given one can be taken out in constant
/// time.
#[derive(Debug)]
#[doc(alias = "listHead")]
pub struct DoubleList<T: DoublyLinked> {
    head: Option<NonNull<T>>,
    tail: Option<NonNull<T>>,
    len: u32,
}

// SAFETY: as for `List`.
unsafe impl<T: DoublyLinked + Send> Send for DoubleList<T> {}

impl<T: DoublyLinked> DoubleList<T> {
    /// An empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self { head: None, tail: None, len: 0 }
    }

    /// How many elements there are.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.head.is_none()
    }

    /// The first element, which stays in the list.
    #[must_use]
    pub const fn front(&self) -> Option<NonNull<T>> {
        self.head
    }

    /// Puts an element in front.
    ///
    /// # Safety
    /// `element` is valid, in no list, and stays valid while it is in this one.
    pub unsafe fn push(&mut self, element: NonNull<T>) {
        // SAFETY: valid by the caller's promise.
        let link = unsafe { element.as_ref() }.double_link();
        if link.listed.replace(true) {
            crate::throw!("DoubleList::push: the element is in a list already");
        }
        link.prev.set(None);
        link.next.set(self.head);
        match self.head.replace(element) {
            // SAFETY: elements of the list are valid.
            Some(head) => unsafe { head.as_ref() }.double_link().prev.set(Some(element)),
            None => self.tail = Some(element),
        }
        self.len += 1;
    }

    /// Appends an element.
    ///
    /// # Safety
    /// As for [`DoubleList::push`].
    pub unsafe fn push_back(&mut self, element: NonNull<T>) {
        // SAFETY: valid by the caller's promise.
        let link = unsafe { element.as_ref() }.double_link();
        if link.listed.replace(true) {
            crate::throw!("DoubleList::push_back: the element is in a list already");
        }
        link.next.set(None);
        link.prev.set(self.tail);
        match self.tail.replace(element) {
            // SAFETY: elements of the list are valid.
            Some(tail) => unsafe { tail.as_ref() }.double_link().next.set(Some(element)),
            None => self.head = Some(element),
        }
        self.len += 1;
    }

    /// Takes the first element.
    pub fn pop(&mut self) -> Option<NonNull<T>> {
        let element = self.head?;
        // SAFETY: it is the head of this list.
        unsafe { self.remove(element) };
        Some(element)
    }

    /// Takes `element` out, wherever it is.
    ///
    /// # Safety
    /// If `element` is in a list, it is in this one.
    pub unsafe fn remove(&mut self, element: NonNull<T>) {
        // SAFETY: valid by the caller's promise.
        let link = unsafe { element.as_ref() }.double_link();
        if !link.listed.replace(false) {
            crate::throw!("DoubleList::remove: the element is in no list");
        }
        let (prev, next) = (link.prev.take(), link.next.take());
        match prev {
            // SAFETY: neighbours of an element of the list are elements of the list.
            Some(prev) => unsafe { prev.as_ref() }.double_link().next.set(next),
            None => self.head = next,
        }
        match next {
            // SAFETY: as above.
            Some(next) => unsafe { next.as_ref() }.double_link().prev.set(prev),
            None => self.tail = prev,
        }
        self.len -= 1;
    }
}

impl<T: DoublyLinked> Default for DoubleList<T> {
    fn default() -> Self {
        Self::new()
    }
}
