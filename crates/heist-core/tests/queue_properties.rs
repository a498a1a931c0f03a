//! Random operations on the queues, compared with plain deques. Failures print their seed and
//! shrink.
#![cfg(not(loom))]

mod jobs;

use heist_core::global_queue::{GlobalLen, GlobalQueue, Lane};
use heist_core::list::List;
use heist_core::policy::{GLOBAL_BATCH_MAX, RING_CAPACITY, Share};
use heist_core::run_queue::{Popped, RunNext, RunQueue, Slot, Stolen};
use jobs::{Job, id};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::ptr::NonNull;

/// The jobs of one history, numbered as they are made.
#[derive(Default)]
struct Arena(#[expect(clippy::vec_box, reason = "jobs must not move")] Vec<Box<Job>>);

impl Arena {
    fn make(&mut self) -> NonNull<Job> {
        let id = self.0.len() as u32;
        self.0.push(Box::new(Job::new(id)));
        NonNull::from(&**self.0.last().unwrap())
    }

    fn make_list(&mut self, n: u32) -> (List<Job>, Vec<u32>) {
        let mut list = List::new();
        let ids = (0..n).map(|_| {
            let gp = self.make();
            // SAFETY: the job is new and in no list.
            unsafe { list.push_back(gp) };
            id(gp)
        });
        let ids = ids.collect();
        (list, ids)
    }
}

/// A run queue as its description says.
#[derive(Clone, Debug, Default)]
struct Model {
    run_next: Option<u32>,
    ring: VecDeque<u32>,
}

impl Model {
    /// Returns the ids that overflow.
    fn push(&mut self, id: u32, slot: Slot) -> Vec<u32> {
        let tail = match slot {
            Slot::Tail => Some(id),
            Slot::Next => self.run_next.replace(id),
        };
        let Some(tail) = tail else { return Vec::new() };
        if self.ring.len() < 256 {
            self.ring.push_back(tail);
            return Vec::new();
        }
        self.ring.drain(..128).chain([tail]).collect()
    }

    /// The id, and whether it inherits.
    fn pop(&mut self) -> Option<(u32, bool)> {
        let next = self.run_next.take().map(|id| (id, true));
        next.or_else(|| self.ring.pop_front().map(|id| (id, false)))
    }

    fn steal_into(&mut self, thief: &mut Self, share: Share, run_next: RunNext) -> Option<u32> {
        let len = self.ring.len();
        let wanted = if share == Share::CeilHalf { len.div_ceil(2) } else { len / 2 };
        let n = wanted.min(256 - thief.ring.len());
        if n > 0 {
            thief.ring.extend(self.ring.drain(..n));
            return thief.ring.pop_back();
        }
        if len == 0 && run_next == RunNext::Take { self.run_next.take() } else { None }
    }

    fn len(&self) -> u32 {
        self.ring.len() as u32 + u32::from(self.run_next.is_some())
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Push(usize, Slot, u32),
    Pop(usize, u32),
    Steal(usize, Share, RunNext),
    PushBatch(usize, u32),
    Drain(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let slot = prop_oneof![Just(Slot::Next), Just(Slot::Tail)];
    let share = prop_oneof![Just(Share::CeilHalf), Just(Share::FloorHalf)];
    let run_next = prop_oneof![Just(RunNext::Leave), Just(RunNext::Take)];
    // Few or many: many reach the overflow.
    let n = || prop_oneof![1..4_u32, 1..300_u32];
    prop_oneof![
        4 => (0..2_usize, slot, n()).prop_map(|(at, slot, n)| Step::Push(at, slot, n)),
        3 => (0..2_usize, n()).prop_map(|(at, n)| Step::Pop(at, n)),
        4 => (0..2_usize, share, run_next).prop_map(|(at, s, r)| Step::Steal(at, s, r)),
        2 => (0..2_usize, n()).prop_map(|(at, n)| Step::PushBatch(at, n)),
        1 => (0..2_usize).prop_map(Step::Drain),
    ]
}

/// Two queues that steal from each other, and their models.
struct Pair {
    queues: [RunQueue<Job>; 2],
    models: [Model; 2],
    arena: Arena,
}

impl Pair {
    fn take(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Push(at, slot, n) => (0..n).try_for_each(|_| self.push(at, slot)),
            Step::Pop(at, n) => (0..n).try_for_each(|_| self.pop(at)),
            Step::Steal(victim, share, run_next) => self.steal(victim, share, run_next),
            Step::PushBatch(at, n) => {
                let (mut list, mut ids) = self.arena.make_list(n);
                // SAFETY: one thread.
                unsafe { self.queues[at].owner() }.push_batch(&mut list);
                let room = (RING_CAPACITY as usize - self.models[at].ring.len()).min(ids.len());
                let rest = ids.split_off(room);
                self.models[at].ring.extend(ids);
                prop_assert_eq!(list.map(id).collect::<Vec<_>>(), rest);
                Ok(())
            }
            Step::Drain(at) => {
                // SAFETY: one thread.
                let drained = unsafe { self.queues[at].owner() }.drain().map(id);
                let model = std::mem::take(&mut self.models[at]);
                let expected: Vec<u32> = model.run_next.into_iter().chain(model.ring).collect();
                prop_assert_eq!(drained.collect::<Vec<_>>(), expected);
                Ok(())
            }
        }
    }

    fn push(&mut self, at: usize, slot: Slot) -> Result<(), TestCaseError> {
        let gp = self.arena.make();
        let mut overflown = Vec::new();
        // SAFETY: one thread.
        let owner = unsafe { self.queues[at].owner() };
        owner.push(gp, slot, |batch| overflown.extend(batch.iter().map(|&gp| id(gp))));
        prop_assert_eq!(overflown, self.models[at].push(id(gp), slot));
        Ok(())
    }

    fn pop(&mut self, at: usize) -> Result<(), TestCaseError> {
        // SAFETY: one thread.
        let popped = unsafe { self.queues[at].owner() }.pop().map(|popped| match popped {
            Popped::Inherits(gp) => (id(gp), true),
            Popped::Fresh(gp) => (id(gp), false),
        });
        prop_assert_eq!(popped, self.models[at].pop());
        Ok(())
    }

    fn steal(
        &mut self,
        victim: usize,
        share: Share,
        run_next: RunNext,
    ) -> Result<(), TestCaseError> {
        let thief = 1 - victim;
        // SAFETY: one thread.
        let home = unsafe { self.queues[thief].owner() };
        let stolen = self.queues[victim].thief().steal_into(&home, share, run_next, || true);
        let [first, second] = &mut self.models;
        let (victim_model, thief_model) =
            if victim == 0 { (first, second) } else { (second, first) };
        let before = victim_model.len();
        let expected = victim_model.steal_into(thief_model, share, run_next);
        let (run, n) = match stolen {
            Stolen::Nothing => (None, 0),
            Stolen::Batch { run, n } => (Some(id(run)), n),
            Stolen::RunNext(gp) => (Some(id(gp)), 1),
        };
        prop_assert_eq!((run, n), (expected, before - victim_model.len()));
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
enum GlobalStep {
    Push,
    Append(u32),
    Prepend(u32),
    Pop,
    PopBatch(u32),
}

fn global_step() -> impl Strategy<Value = GlobalStep> {
    prop_oneof![
        2 => Just(GlobalStep::Push),
        1 => (0..300_u32).prop_map(GlobalStep::Append),
        1 => (0..20_u32).prop_map(GlobalStep::Prepend),
        2 => Just(GlobalStep::Pop),
        2 => (1..70_u32).prop_map(GlobalStep::PopBatch),
    ]
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// The lanes that count as queued work, the most urgent first.
const COUNTED: [Lane; 3] = [Lane::Latency, Lane::Urgent, Lane::Normal];

#[derive(Clone, Copy, Debug)]
enum LaneStep {
    Push(Lane, bool),
    Pop,
    PopUrgent,
    PopLane(Lane),
    PopStopped(Lane),
    PopBatch(u32),
}

fn lane() -> impl Strategy<Value = Lane> {
    prop_oneof![Just(Lane::Latency), Just(Lane::Urgent), Just(Lane::Normal), Just(Lane::Idle)]
}

fn lane_step() -> impl Strategy<Value = LaneStep> {
    prop_oneof![
        5 => (lane(), any::<bool>()).prop_map(|(lane, stopped)| LaneStep::Push(lane, stopped)),
        1 => Just(LaneStep::Pop),
        1 => Just(LaneStep::PopUrgent),
        1 => lane().prop_map(LaneStep::PopLane),
        1 => lane().prop_map(LaneStep::PopStopped),
        1 => (1..4_u32).prop_map(LaneStep::PopBatch),
    ]
}

/// What is in each lane, free ones and stopped ones apart.
#[derive(Default)]
struct LaneModel([[VecDeque<u32>; 2]; 4]);

impl LaneModel {
    fn list(&mut self, lane: Lane, is_stopped: bool) -> &mut VecDeque<u32> {
        &mut self.0[lane as usize][usize::from(is_stopped)]
    }

    fn n_of(&self, lane: Lane) -> usize {
        self.0[lane as usize].iter().map(VecDeque::len).sum()
    }

    fn n_counted(&self) -> usize {
        COUNTED.iter().map(|&lane| self.n_of(lane)).sum()
    }

    fn is_stopped(&self, id: u32) -> bool {
        self.0.iter().any(|lists| lists[1].contains(&id))
    }

    /// These came out, in this order: each was the first of a list of these lanes.
    fn takes(&mut self, ids: &[u32], lanes: &[Lane]) -> Result<(), TestCaseError> {
        for &id in ids {
            let mut lists = lanes.iter().flat_map(|&lane| [(lane, false), (lane, true)]);
            let first =
                lists.find(|&(lane, stopped)| self.list(lane, stopped).front() == Some(&id));
            let Some((lane, stopped)) = first else {
                return Err(TestCaseError::fail(format!("{id} was the first of no list")));
            };
            self.list(lane, stopped).pop_front();
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(config(128))]

    /// IN-01 to IN-09: two queues with wrapping indices that steal from each other equal two deques
    /// after every step.
    #[test]
    fn run_queues_are_deques(
        starts in [u32::MAX - 2000..=u32::MAX, u32::MAX - 2000..=u32::MAX],
        steps in vec(step(), 1..60),
    ) {
        let mut pair = Pair {
            queues: starts.map(RunQueue::starting_at),
            models: Default::default(),
            arena: Arena::default(),
        };
        for step in steps {
            pair.take(step)?;
            for (queue, model) in pair.queues.iter().zip(&pair.models) {
                prop_assert_eq!(queue.len(), model.len());
                prop_assert_eq!(queue.is_empty(), model.len() == 0);
            }
        }
        pair.take(Step::Drain(0))?;
        pair.take(Step::Drain(1))?;
    }

    /// Each goroutine leaves the lanes once. Free and stopped ones of a lane leave in their order,
    /// and a stopped one leaves alone. The idle lane is taken from only when it is asked for.
    #[test]
    fn lanes_lose_nothing(steps in vec(lane_step(), 1..200)) {
        let (mut queue, len) = (GlobalQueue::new(), GlobalLen::new());
        let mut model = LaneModel::default();
        let mut arena = Arena::default();
        for step in steps {
            match step {
                LaneStep::Push(lane, is_stopped) => {
                    let gp = arena.make();
                    // SAFETY: the job is new and in no list.
                    unsafe {
                        if is_stopped {
                            queue.push_frozen(&len, lane, gp);
                        } else {
                            queue.push(&len, lane, gp);
                        }
                    }
                    model.list(lane, is_stopped).push_back(id(gp));
                }
                LaneStep::Pop => {
                    let popped: Vec<u32> = queue.pop(&len).map(id).into_iter().collect();
                    prop_assert_eq!(popped.is_empty(), model.n_counted() == 0);
                    model.takes(&popped, &COUNTED)?;
                }
                LaneStep::PopUrgent => {
                    let popped: Vec<u32> = queue.pop_urgent(&len).map(id).into_iter().collect();
                    model.takes(&popped, &COUNTED[..2])?;
                }
                LaneStep::PopLane(lane) => {
                    let popped: Vec<u32> = queue.pop_lane(&len, lane).map(id).into_iter().collect();
                    prop_assert_eq!(popped.is_empty(), model.n_of(lane) == 0);
                    model.takes(&popped, &[lane])?;
                }
                LaneStep::PopStopped(lane) => {
                    let popped = queue.pop_frozen(&len, lane).map(id);
                    prop_assert_eq!(popped, model.list(lane, true).pop_front());
                }
                LaneStep::PopBatch(procs) => {
                    let batch: Vec<u32> = queue.pop_batch(&len, procs).map(id).collect();
                    prop_assert_eq!(batch.is_empty(), model.n_counted() == 0);
                    let n_stopped = batch.iter().filter(|&&id| model.is_stopped(id)).count();
                    prop_assert!(n_stopped == 0 || batch.len() == 1, "{:?}", batch);
                    model.takes(&batch, &COUNTED)?;
                }
            }
            prop_assert_eq!(queue.len() as usize, model.n_counted());
            prop_assert_eq!(len.get() as usize, model.n_counted());
            prop_assert_eq!(len.latency() as usize, model.n_of(Lane::Latency));
            prop_assert_eq!(queue.has_idle(), model.n_of(Lane::Idle) != 0);
            prop_assert_eq!(len.idle() as usize, model.n_of(Lane::Idle));
        }
    }

    /// IN-10, IN-11, IN-33: the global queue is a deque from which shares are taken.
    #[test]
    fn global_queue_is_a_deque(steps in vec(global_step(), 1..100)) {
        let (mut queue, len) = (GlobalQueue::new(), GlobalLen::new());
        let mut model = VecDeque::new();
        let mut arena = Arena::default();
        for step in steps {
            match step {
                GlobalStep::Push => {
                    let gp = arena.make();
                    // SAFETY: the job is new and in no list.
                    unsafe { queue.push(&len, Lane::Normal, gp) };
                    model.push_back(id(gp));
                }
                GlobalStep::Append(n) => {
                    let (mut list, ids) = arena.make_list(n);
                    queue.append(&len, Lane::Normal, &mut list);
                    model.extend(ids);
                    prop_assert!(list.is_empty());
                }
                GlobalStep::Prepend(n) => {
                    let (mut list, ids) = arena.make_list(n);
                    queue.prepend(&len, &mut list);
                    ids.into_iter().rev().for_each(|id| model.push_front(id));
                    prop_assert!(list.is_empty());
                }
                GlobalStep::Pop => {
                    prop_assert_eq!(queue.pop(&len).map(id), model.pop_front());
                }
                GlobalStep::PopBatch(procs) => {
                    let size = model.len();
                    let share = (size / procs as usize + 1).min(size).min(GLOBAL_BATCH_MAX as usize);
                    let expected: Vec<u32> = model.drain(..share).collect();
                    let batch: Vec<u32> = queue.pop_batch(&len, procs).map(id).collect();
                    prop_assert_eq!(batch, expected);
                }
            }
            prop_assert_eq!(queue.len() as usize, model.len());
            prop_assert_eq!(len.get(), queue.len());
            prop_assert_eq!(queue.is_empty(), model.is_empty());
        }
    }
}
