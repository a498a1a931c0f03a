//! Random operations on the lists, compared with vectors. Failures print their seed and shrink.
#![cfg(not(loom))]

use heist_core::list::{DoubleLink, DoubleList, DoublyLinked, Link, Linked, List};
use proptest::collection::vec;
use proptest::prelude::*;
use std::ptr::NonNull;

struct Node {
    id: usize,
    link: Link<Self>,
    double_link: DoubleLink<Self>,
}

// SAFETY: the link is one field, and nodes stay in their box.
unsafe impl Linked for Node {
    fn link(&self) -> &Link<Self> {
        &self.link
    }
}

// SAFETY: as above.
unsafe impl DoublyLinked for Node {
    fn double_link(&self) -> &DoubleLink<Self> {
        &self.double_link
    }
}

const N_NODES: usize = 24;

fn nodes() -> Box<[Node]> {
    let node = |id| Node { id, link: Link::new(), double_link: DoubleLink::new() };
    (0..N_NODES).map(node).collect()
}

fn id(node: NonNull<Node>) -> usize {
    // SAFETY: the nodes live as long as the history.
    unsafe { node.as_ref() }.id
}

/// An operation on two lists; nodes that are in no list are kept beside them.
#[derive(Clone, Copy, Debug)]
enum Step {
    PushBack(usize),
    PushFront(usize),
    PopFront(usize),
    Append(usize),
    Prepend(usize),
    /// The first elements of one list, this many, replace the other, which must be empty.
    SplitFront(usize, u32),
}

fn step() -> impl Strategy<Value = Step> {
    let at = 0..2_usize;
    prop_oneof![
        4 => at.clone().prop_map(Step::PushBack),
        4 => at.clone().prop_map(Step::PushFront),
        3 => at.clone().prop_map(Step::PopFront),
        1 => at.clone().prop_map(Step::Append),
        1 => at.clone().prop_map(Step::Prepend),
        2 => (at, 0..10_u32).prop_map(|(at, n)| Step::SplitFront(at, n)),
    ]
}

#[derive(Clone, Copy, Debug)]
enum DoubleStep {
    Push(usize),
    PushBack(usize),
    Pop,
    Remove(usize),
}

fn double_step() -> impl Strategy<Value = DoubleStep> {
    prop_oneof![
        2 => (0..N_NODES).prop_map(DoubleStep::Push),
        2 => (0..N_NODES).prop_map(DoubleStep::PushBack),
        1 => Just(DoubleStep::Pop),
        3 => (0..N_NODES).prop_map(DoubleStep::Remove),
    ]
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    /// RQ-08: two lists that exchange their elements behave as two vectors.
    #[test]
    fn lists_are_vectors(steps in vec(step(), 1..200)) {
        let nodes = nodes();
        let mut unlisted: Vec<usize> = (0..N_NODES).collect();
        let mut lists = [List::new(), List::new()];
        let mut models = [Vec::new(), Vec::new()];
        for step in steps {
            match step {
                Step::PushBack(at) => if let Some(node) = unlisted.pop() {
                    // SAFETY: the node is in no list.
                    unsafe { lists[at].push_back(NonNull::from(&nodes[node])) };
                    models[at].push(node);
                },
                Step::PushFront(at) => if let Some(node) = unlisted.pop() {
                    // SAFETY: the node is in no list.
                    unsafe { lists[at].push_front(NonNull::from(&nodes[node])) };
                    models[at].insert(0, node);
                },
                Step::PopFront(at) => {
                    let expected = (!models[at].is_empty()).then(|| models[at].remove(0));
                    prop_assert_eq!(lists[at].pop_front().map(id), expected);
                    unlisted.extend(expected);
                }
                Step::Append(to) => {
                    let mut other = std::mem::take(&mut lists[1 - to]);
                    lists[to].append(&mut other);
                    prop_assert!(other.is_empty());
                    let other = std::mem::take(&mut models[1 - to]);
                    models[to].extend(other);
                }
                Step::Prepend(to) => {
                    let mut other = std::mem::take(&mut lists[1 - to]);
                    lists[to].prepend(&mut other);
                    prop_assert!(other.is_empty());
                    let other = std::mem::take(&mut models[1 - to]);
                    models[to].splice(..0, other);
                }
                Step::SplitFront(at, n) => if models[1 - at].is_empty() {
                    lists[1 - at] = lists[at].split_front(n);
                    let n = models[at].len().min(n as usize);
                    models[1 - at] = models[at].drain(..n).collect();
                },
            }
            for (list, model) in lists.iter().zip(&models) {
                prop_assert_eq!(list.len() as usize, model.len());
                prop_assert_eq!(list.is_empty(), model.is_empty());
                prop_assert_eq!(list.front().map(id), model.first().copied());
            }
        }
        for (list, model) in lists.into_iter().zip(models) {
            prop_assert_eq!(list.map(id).collect::<Vec<_>>(), model);
        }
    }

    /// RQ-08: a double list has two ends, and elements can be taken from its middle.
    #[test]
    fn double_list_is_a_vector(steps in vec(double_step(), 1..200)) {
        let nodes = nodes();
        let mut list = DoubleList::new();
        let mut model = Vec::new();
        for step in steps {
            match step {
                DoubleStep::Push(node) => if !model.contains(&node) {
                    // SAFETY: the node is in no list.
                    unsafe { list.push(NonNull::from(&nodes[node])) };
                    model.push(node);
                },
                DoubleStep::PushBack(node) => if !model.contains(&node) {
                    // SAFETY: the node is in no list.
                    unsafe { list.push_back(NonNull::from(&nodes[node])) };
                    model.insert(0, node);
                },
                DoubleStep::Pop => prop_assert_eq!(list.pop().map(id), model.pop()),
                DoubleStep::Remove(node) => if model.contains(&node) {
                    // SAFETY: the node is in this list.
                    unsafe { list.remove(NonNull::from(&nodes[node])) };
                    model.retain(|&other| other != node);
                },
            }
            prop_assert_eq!(list.len() as usize, model.len());
            prop_assert_eq!(list.is_empty(), model.is_empty());
            prop_assert_eq!(list.front().map(id), model.last().copied());
            for node in &nodes {
                prop_assert_eq!(node.double_link.is_listed(), model.contains(&node.id));
            }
        }
        model.reverse();
        prop_assert_eq!(std::iter::from_fn(|| list.pop()).map(id).collect::<Vec<_>>(), model);
    }
}
