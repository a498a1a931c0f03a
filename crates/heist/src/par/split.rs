//! What a loop runs over: items that can be split in two.

use std::fmt;
use std::ops::Range;

/// Items that can be split in two parts, for the functions of [`par`](crate::par).
///
/// Slices, shared and mutable, ranges of integers, and [`chunks`] of slices are such items.
#[expect(clippy::len_without_is_empty, reason = "nobody asks")]
pub trait Split: Send + Sized {
    /// One of the items.
    type Item;

    /// How many items there are.
    fn len(&self) -> usize;

    /// Splits the items in the first `n`, which is at most their number, and the others.
    #[must_use]
    fn split_at(self, n: usize) -> (Self, Self);

    /// Calls `f` with each item in order, and with what the last call returned.
    fn fold<R>(self, first: R, f: &impl Fn(R, Self::Item) -> R) -> R;
}

/// What the functions of [`par`](crate::par) run over: a [`Split`], or a vector, whose items are
/// moved.
pub trait IntoSplit {
    /// One of the items.
    type Item;
    /// The items, ready to be split.
    type Split: Split<Item = Self::Item>;

    /// Makes them ready to be split.
    fn into_split(self) -> Self::Split;
}

impl<S: Split> IntoSplit for S {
    type Item = S::Item;
    type Split = Self;

    fn into_split(self) -> Self {
        self
    }
}

impl<'a, T: Sync> Split for &'a [T] {
    type Item = &'a T;

    fn len(&self) -> usize {
        <[T]>::len(self)
    }

    fn split_at(self, n: usize) -> (Self, Self) {
        <[T]>::split_at(self, n)
    }

    fn fold<R>(self, first: R, f: &impl Fn(R, &'a T) -> R) -> R {
        self.iter().fold(first, f)
    }
}

impl<'a, T: Send> Split for &'a mut [T] {
    type Item = &'a mut T;

    fn len(&self) -> usize {
        <[T]>::len(self)
    }

    fn split_at(self, n: usize) -> (Self, Self) {
        self.split_at_mut(n)
    }

    fn fold<R>(self, first: R, f: &impl Fn(R, &'a mut T) -> R) -> R {
        self.iter_mut().fold(first, f)
    }
}

macro_rules! ranges {
    ($($int:ty)+) => { $(
        impl Split for Range<$int> {
            type Item = $int;

            fn len(&self) -> usize {
                if self.is_empty() { 0 } else { self.end.abs_diff(self.start) as usize }
            }

            fn split_at(self, n: usize) -> (Self, Self) {
                // In two's complement the sum is right, though `n` may not fit.
                let middle = self.start.wrapping_add(n as $int);
                (self.start..middle, middle..self.end)
            }

            fn fold<R>(self, first: R, f: &impl Fn(R, $int) -> R) -> R {
                Iterator::fold(self, first, f)
            }
        }
    )+ };
}

ranges!(u8 i8 u16 i16 u32 i32 usize isize u64 i64);

/// The items of a vector, which are moved out.
pub struct VecItems<T> {
    /// The last item comes first, so that a part at the front can be taken without moving the rest.
    backwards: Vec<T>,
}

impl<T> fmt::Debug for VecItems<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VecItems").field("len", &self.backwards.len()).finish()
    }
}

impl<T: Send> IntoSplit for Vec<T> {
    type Item = T;
    type Split = VecItems<T>;

    fn into_split(mut self) -> VecItems<T> {
        self.reverse();
        VecItems { backwards: self }
    }
}

impl<T: Send> Split for VecItems<T> {
    type Item = T;

    fn len(&self) -> usize {
        self.backwards.len()
    }

    fn split_at(mut self, n: usize) -> (Self, Self) {
        let first = self.backwards.split_off(self.backwards.len() - n);
        (Self { backwards: first }, self)
    }

    fn fold<R>(self, first: R, f: &impl Fn(R, T) -> R) -> R {
        self.backwards.into_iter().rev().fold(first, f)
    }
}

/// The items of a slice in pieces of `size`; the last one may be smaller.
///
/// # Panics
/// If `size` is zero.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// use heist::par::{chunks, map};
/// let sums = map(chunks(&[1, 2, 3, 4, 5], 2), |piece| piece.iter().sum::<i32>());
/// assert_eq!(sums, [3, 7, 5]);
/// # });
/// ```
#[must_use]
pub fn chunks<T>(items: &[T], size: usize) -> Chunks<'_, T> {
    assert!(size != 0, "par::chunks: the size of a piece is zero");
    Chunks { items, size }
}

/// The items of a mutable slice in pieces of `size`; the last one may be smaller.
///
/// # Panics
/// If `size` is zero.
#[must_use]
pub fn chunks_mut<T>(items: &mut [T], size: usize) -> ChunksMut<'_, T> {
    assert!(size != 0, "par::chunks_mut: the size of a piece is zero");
    ChunksMut { items, size }
}

/// Pieces of a slice; see [`chunks`].
#[derive(Clone, Copy, Debug)]
pub struct Chunks<'a, T> {
    items: &'a [T],
    size: usize,
}

impl<'a, T: Sync> Split for Chunks<'a, T> {
    type Item = &'a [T];

    fn len(&self) -> usize {
        self.items.len().div_ceil(self.size)
    }

    fn split_at(self, n: usize) -> (Self, Self) {
        let (left, right) = self.items.split_at(n.saturating_mul(self.size).min(self.items.len()));
        (Self { items: left, ..self }, Self { items: right, ..self })
    }

    fn fold<R>(self, first: R, f: &impl Fn(R, &'a [T]) -> R) -> R {
        self.items.chunks(self.size).fold(first, f)
    }
}

/// Pieces of a mutable slice; see [`chunks_mut`].
#[derive(Debug)]
pub struct ChunksMut<'a, T> {
    items: &'a mut [T],
    size: usize,
}

impl<'a, T: Send> Split for ChunksMut<'a, T> {
    type Item = &'a mut [T];

    fn len(&self) -> usize {
        self.items.len().div_ceil(self.size)
    }

    fn split_at(self, n: usize) -> (Self, Self) {
        let size = self.size;
        let (left, right) = self.items.split_at_mut(n.saturating_mul(size).min(self.items.len()));
        (Self { items: left, size }, Self { items: right, size })
    }

    fn fold<R>(self, first: R, f: &impl Fn(R, &'a mut [T]) -> R) -> R {
        self.items.chunks_mut(self.size).fold(first, f)
    }
}

/// The end of the last piece may lie beyond the largest number.
#[test]
fn the_longest_slices_are_split() {
    let size = usize::MAX / 2 + 1;
    let mut items = [(); usize::MAX];
    let (left, right) = chunks(&items, size).split_at(2);
    assert_eq!((left.len(), right.len()), (2, 0));
    let (left, right) = chunks_mut(&mut items, size).split_at(2);
    assert_eq!((left.len(), right.len()), (2, 0));
}
