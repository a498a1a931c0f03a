//! The queues of the scheduler: heist-core's own, behind numbers in place of pointers.
//!
//! A goroutine of the simulation is a number. Its token is what the real queues hold. All `unsafe`
//! code of the simulator that concerns goroutines is in this file; it is single-threaded, so there
//! is one owner of every ring at any time.

use heist_core::global_queue::{GlobalLen, GlobalQueue, Lane};
use heist_core::list::{Link, Linked, List};
use heist_core::policy::{self, Share, StealPolicy};
use heist_core::run_queue::{Owner, Popped, RunNext, RunQueue, Slot, Stolen};
use std::ptr::NonNull;

/// What a queue holds of a goroutine.
#[derive(Debug)]
struct Token {
    link: Link<Self>,
    id: u32,
}

// SAFETY: `link` returns the same field at every call, only lists use it, and tokens are boxed and
// freed only with all queues.
unsafe impl Linked for Token {
    fn link(&self) -> &Link<Self> {
        &self.link
    }
}

/// A part of the global queue with a lock of its own. The runtime has one.
#[derive(Debug)]
struct Shard {
    queue: GlobalQueue<Token>,
    len: GlobalLen,
}

/// The queues of all Ps and the global one.
#[derive(Debug)]
pub(crate) struct Queues {
    rings: Vec<RunQueue<Token>>,
    yielded: Vec<List<Token>>,
    shards: Vec<Shard>,
    tokens: Vec<NonNull<Token>>,
    procs: u32,
}

/// Goroutines taken from another P.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Theft {
    /// The one to run.
    pub(crate) run: u32,
    /// How many were taken.
    pub(crate) n: u32,
    /// Whether it was in `run_next`.
    pub(crate) was_next: bool,
}

impl Queues {
    pub(crate) fn new(procs: u32, n_shards: u32) -> Self {
        let shard = || Shard { queue: GlobalQueue::new(), len: GlobalLen::new() };
        Self {
            rings: (0..procs).map(|_| RunQueue::new()).collect(),
            yielded: (0..procs).map(|_| List::new()).collect(),
            shards: (0..n_shards.max(1)).map(|_| shard()).collect(),
            tokens: Vec::new(),
            procs,
        }
    }

    /// Makes the token of goroutine `id`, if there is none yet. Numbers are used one after another.
    pub(crate) fn admit(&mut self, id: u32) {
        if id as usize == self.tokens.len() {
            let token = Box::new(Token { link: Link::new(), id });
            self.tokens.push(NonNull::from(Box::leak(token)));
        }
    }

    fn token(&self, id: u32) -> NonNull<Token> {
        self.tokens[id as usize]
    }

    fn owner(&self, p: u32) -> Owner<'_, Token> {
        // SAFETY: one thread runs the simulation.
        unsafe { self.rings[p as usize].owner() }
    }

    /// Queues a goroutine at a P whose ring holds `limit` goroutines. Returns how many went to the
    /// global queue because the ring was full.
    pub(crate) fn push(&mut self, p: u32, id: u32, slot: Slot, limit: u32) -> u32 {
        let kicked = match slot {
            Slot::Tail => Some(self.token(id)),
            Slot::Next => self.owner(p).swap_next(self.token(id)),
        };
        let Some(kicked) = kicked else { return 0 };
        let mut moved = List::new();
        if limit < policy::RING_CAPACITY && self.ring_len(p) >= limit {
            self.take_oldest(p, limit / 2, &mut moved);
            append(&mut moved, kicked);
        } else {
            self.owner(p).push_tail(kicked, |batch| {
                batch.iter().for_each(|&token| append(&mut moved, token));
            });
        }
        let n = moved.len();
        if n != 0 {
            // The goroutines that yielded here come before those that overflow now.
            let mut all = std::mem::take(&mut self.yielded[p as usize]);
            all.append(&mut moved);
            let shard = self.shard_of(p);
            let Shard { queue, len } = &mut self.shards[shard];
            queue.append(len, Lane::Normal, &mut all);
        }
        n
    }

    /// Moves the oldest goroutines of a ring to a list. `run_next` stays.
    fn take_oldest(&self, p: u32, n: u32, to: &mut List<Token>) {
        let owner = self.owner(p);
        let mut next = None;
        while to.len() < n {
            match owner.pop() {
                Some(Popped::Inherits(token)) => next = Some(token),
                Some(Popped::Fresh(token)) => append(to, token),
                None => break,
            }
        }
        if let Some(token) = next {
            let kicked = owner.swap_next(token);
            assert!(kicked.is_none(), "run_next was just taken");
        }
    }

    /// Takes from the own queue. True: it inherits the slice of the last one.
    pub(crate) fn pop(&self, p: u32) -> Option<(u32, bool)> {
        let popped = self.owner(p).pop()?;
        Some((id_of(popped.goroutine()), matches!(popped, Popped::Inherits(_))))
    }

    /// Queues a goroutine that yielded at `p`.
    pub(crate) fn push_yielded(&mut self, p: u32, id: u32) {
        let token = self.token(id);
        append(&mut self.yielded[p as usize], token);
    }

    /// Takes the first of those that yielded at `p`.
    pub(crate) fn pop_yielded(&mut self, p: u32) -> Option<u32> {
        self.yielded[p as usize].pop_front().map(id_of)
    }

    pub(crate) fn yielded_len(&self, p: u32) -> u32 {
        self.yielded[p as usize].len()
    }

    /// Which shard of the global queue a P uses.
    pub(crate) fn shard_of(&self, p: u32) -> usize {
        p as usize % self.shards.len()
    }

    pub(crate) fn n_shards(&self) -> usize {
        self.shards.len()
    }

    /// The lengths of a shard.
    pub(crate) fn global(&self, shard: usize) -> &GlobalLen {
        &self.shards[shard].len
    }

    /// The length of the global queue.
    pub(crate) fn global_len(&self) -> u32 {
        self.shards.iter().map(|shard| shard.len.get()).sum()
    }

    /// Puts a goroutine into a lane of the global queue.
    pub(crate) fn push_global(&mut self, shard: usize, lane: Lane, id: u32) {
        let token = self.token(id);
        let Shard { queue, len } = &mut self.shards[shard];
        // SAFETY: tokens live as long as the queues, and a runnable goroutine is in one queue.
        unsafe { queue.push(len, lane, token) };
    }

    /// Takes one from the global queue.
    pub(crate) fn pop_global(&mut self, shard: usize) -> Option<u32> {
        let Shard { queue, len } = &mut self.shards[shard];
        queue.pop(len).map(id_of)
    }

    /// Takes one from the front part of the global queue.
    pub(crate) fn pop_urgent(&mut self, shard: usize) -> Option<u32> {
        let Shard { queue, len } = &mut self.shards[shard];
        queue.pop_urgent(len).map(id_of)
    }

    /// Takes one of the latency class.
    pub(crate) fn pop_latency(&mut self, shard: usize) -> Option<u32> {
        let Shard { queue, len } = &mut self.shards[shard];
        queue.pop_lane(len, Lane::Latency).map(id_of)
    }

    /// Takes a fair share of a shard for `p`, which runs the first: as `find::next_global`. Returns
    /// it and how many were taken.
    pub(crate) fn take_batch(&mut self, p: u32, shard: usize) -> Option<(u32, u32)> {
        let shards = self.shards.len() as u32;
        let procs = self.procs.div_ceil(shards);
        let mut yielded = std::mem::take(&mut self.yielded[p as usize]);
        let Shard { queue, len } = &mut self.shards[shard];
        let mut batch = if len.get() == 0 {
            let n = policy::global_batch(yielded.len(), procs);
            let batch = yielded.split_front(n);
            self.yielded[p as usize] = yielded;
            batch
        } else {
            queue.append(len, Lane::Normal, &mut yielded);
            queue.pop_batch(len, procs)
        };
        let n = batch.len();
        let first = batch.pop_front()?;
        self.owner(p).push_batch(&mut batch);
        assert!(batch.is_empty(), "a batch is at most half a ring, and this one was empty");
        Some((id_of(first), n))
    }

    /// Steals from a ring by the policy of heist-core.
    pub(crate) fn steal(
        &self,
        thief: u32,
        victim: u32,
        share: Share,
        run_next: RunNext,
        takes_next: bool,
    ) -> Option<Theft> {
        let own = self.owner(thief);
        let ring = &self.rings[victim as usize];
        match ring.thief().steal_into(&own, share, run_next, || takes_next) {
            Stolen::Nothing => None,
            Stolen::Batch { run, n } => Some(Theft { run: id_of(run), n, was_next: false }),
            Stolen::RunNext(run) => Some(Theft { run: id_of(run), n: 1, was_next: true }),
        }
    }

    /// Steals exactly the `n` oldest, or as many as there are: what no policy of heist-core does.
    pub(crate) fn steal_oldest(&self, thief: u32, victim: u32, n: u32) -> Option<Theft> {
        let mut taken = List::new();
        self.take_oldest(victim, n.min(policy::RING_CAPACITY / 2), &mut taken);
        let n = taken.len();
        let run = taken.pop_front()?;
        self.owner(thief).push_batch(&mut taken);
        assert!(taken.is_empty(), "a thief has an empty ring");
        Some(Theft { run: id_of(run), n, was_next: false })
    }

    /// Steals a share of those that yielded at another P.
    pub(crate) fn steal_yielded(&mut self, thief: u32, victim: u32, share: Share) -> Option<Theft> {
        let yielded = &mut self.yielded[victim as usize];
        let n = share.of(yielded.len()).min(policy::GLOBAL_BATCH_MAX);
        let mut batch = yielded.split_front(n);
        let run = batch.pop_front()?;
        self.owner(thief).push_batch(&mut batch);
        assert!(batch.is_empty(), "a thief has an empty ring");
        Some(Theft { run: id_of(run), n, was_next: false })
    }

    pub(crate) fn ring_len(&self, p: u32) -> u32 {
        self.rings[p as usize].ring_len()
    }

    pub(crate) fn ring_is_empty(&self, p: u32) -> bool {
        self.rings[p as usize].ring_is_empty()
    }

    pub(crate) fn has_next(&self, p: u32) -> bool {
        self.rings[p as usize].has_next()
    }

    /// Whether a P has nothing at all.
    pub(crate) fn is_empty(&self, p: u32) -> bool {
        self.rings[p as usize].is_empty() && self.yielded_len(p) == 0
    }

    /// Whether a thief with this policy could take something from a P.
    pub(crate) fn has_stealable(&self, p: u32, policy: &StealPolicy) -> bool {
        self.rings[p as usize].has_stealable(policy) || policy.share.of(self.yielded_len(p)) != 0
    }

    /// The same, not counting `run_next`.
    pub(crate) fn has_stealable_ring(&self, p: u32, share: Share) -> bool {
        share.of(self.ring_len(p)) != 0 || share.of(self.yielded_len(p)) != 0
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        for &token in &self.tokens {
            // SAFETY: it came from a box, and the queues that hold it are dropped with this.
            drop(unsafe { Box::from_raw(token.as_ptr()) });
        }
    }
}

fn append(list: &mut List<Token>, token: NonNull<Token>) {
    // SAFETY: tokens live as long as the queues, and the caller took this one out of its queue.
    unsafe { list.push_back(token) };
}

fn id_of(token: NonNull<Token>) -> u32 {
    // SAFETY: tokens live as long as the queues.
    unsafe { token.as_ref() }.id
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queues(n: u32) -> Queues {
        let mut queues = Queues::new(2, 1);
        (0..n).for_each(|id| queues.admit(id));
        queues
    }

    #[test]
    fn a_shorter_ring_overflows_earlier() {
        let mut queues = queues(10);
        let moved: u32 = (0..10).map(|id| queues.push(0, id, Slot::Tail, 8)).sum();
        assert_eq!((moved, queues.ring_len(0), queues.global_len()), (5, 5, 5));
        let order: Vec<_> = std::iter::from_fn(|| queues.pop_global(0)).collect();
        assert_eq!(order, [0, 1, 2, 3, 8]);
    }

    #[test]
    fn an_exact_theft_leaves_run_next() {
        let mut queues = queues(6);
        for id in 0..6 {
            queues.push(0, id, Slot::Next, 256);
        }
        let theft = queues.steal_oldest(1, 0, 3).unwrap();
        assert_eq!((theft.run, theft.n), (0, 3));
        assert_eq!((queues.ring_len(0), queues.ring_len(1)), (2, 2));
        assert_eq!(queues.pop(0), Some((5, true)));
    }
}
