//! Tests of the intrusive lists: order and links, for every way to insert and remove.
#![cfg(not(loom))]

use heist_core::list::{DoubleLink, DoubleList, DoublyLinked, Link, Linked, List};
use std::ptr::NonNull;

struct Node {
    id: u32,
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

fn nodes(n: u32) -> Box<[Node]> {
    let node = |id| Node { id, link: Link::new(), double_link: DoubleLink::new() };
    (0..n).map(node).collect()
}

fn id(node: NonNull<Node>) -> u32 {
    // SAFETY: each test keeps its nodes until the end.
    unsafe { node.as_ref() }.id
}

fn list(nodes: &[Node]) -> List<Node> {
    let mut list = List::new();
    for node in nodes {
        // SAFETY: the node is in no list and outlives this one.
        unsafe { list.push_back(NonNull::from(node)) };
    }
    list
}

fn ids(list: &mut List<Node>) -> Vec<u32> {
    let n = list.len();
    let ids: Vec<u32> = list.by_ref().map(id).collect();
    assert_eq!(ids.len(), n as usize, "the length was wrong");
    assert!(list.is_empty() && list.front().is_none());
    ids
}

fn double_list(nodes: &[Node]) -> DoubleList<Node> {
    let mut list = DoubleList::new();
    for node in nodes {
        // SAFETY: the node is in no list and outlives this one.
        unsafe { list.push(NonNull::from(node)) };
    }
    list
}

fn pop_all(list: &mut DoubleList<Node>) -> Vec<u32> {
    std::iter::from_fn(|| list.pop()).map(id).collect()
}

/// RQ-08: elements pushed at the back come out in order; elements pushed at the front come first.
#[test]
fn list_keeps_order() {
    let nodes = nodes(4);
    let mut list = list(&nodes[1..3]);
    // SAFETY: both are in no list.
    unsafe {
        list.push_front(NonNull::from(&nodes[0]));
        list.push_back(NonNull::from(&nodes[3]));
    }
    assert_eq!(list.front().map(id), Some(0));
    assert_eq!(ids(&mut list), [0, 1, 2, 3]);
}

/// RQ-08: a list that was emptied can be used again, from either end.
#[test]
fn emptied_list_can_be_filled_again() {
    let nodes = nodes(2);
    let mut list = list(&nodes[..1]);
    assert_eq!(list.pop_front().map(id), Some(0));
    assert_eq!(list.pop_front(), None);
    // SAFETY: the nodes are in no list any more.
    unsafe {
        list.push_front(NonNull::from(&nodes[0]));
        list.push_back(NonNull::from(&nodes[1]));
    }
    assert_eq!(ids(&mut list), [0, 1]);
}

/// RQ-08, IN-33: lists can be joined at either end in order, empty ones included.
#[test]
fn lists_join_in_order() {
    let nodes = nodes(6);
    for split in 0..=6 {
        let (mut front, mut back) = (list(&nodes[..split]), list(&nodes[split..]));
        front.append(&mut back);
        assert_eq!((back.len(), back.front()), (0, None));
        assert_eq!(ids(&mut front), [0, 1, 2, 3, 4, 5]);

        let (mut front, mut back) = (list(&nodes[..split]), list(&nodes[split..]));
        back.prepend(&mut front);
        assert_eq!((front.len(), front.front()), (0, None));
        assert_eq!(ids(&mut back), [0, 1, 2, 3, 4, 5]);
    }
}

/// RQ-08: a list can be extended after another was appended.
#[test]
fn joined_list_can_be_extended() {
    let nodes = nodes(4);
    let (mut front, mut back) = (list(&nodes[..1]), list(&nodes[1..3]));
    back.prepend(&mut front);
    // SAFETY: the node is in no list.
    unsafe { back.push_back(NonNull::from(&nodes[3])) };
    assert_eq!(ids(&mut back), [0, 1, 2, 3]);
}

/// RQ-08: the front splits off in order; a request for more than there is takes all.
#[test]
fn front_splits_off() {
    let nodes = nodes(5);
    for n in 0..8 {
        let mut rest = list(&nodes);
        let mut front = rest.split_front(n);
        assert_eq!(ids(&mut front), (0..n.min(5)).collect::<Vec<_>>());
        assert_eq!(ids(&mut rest), (n.min(5)..5).collect::<Vec<_>>());
    }
}

/// RQ-08: a double list is last in first out, and its elements know whether they are in it.
#[test]
fn double_list_is_a_stack() {
    let nodes = nodes(3);
    let mut list = double_list(&nodes);
    assert!(nodes.iter().all(|node| node.double_link.is_listed()));
    assert_eq!(list.len(), 3);
    assert_eq!(pop_all(&mut list), [2, 1, 0]);
    assert_eq!((list.is_empty(), list.len()), (true, 0));
    assert!(!nodes.iter().any(|node| node.double_link.is_listed()));
}

/// RQ-08: head, middle and tail can be taken out, in any order, and put back on top.
#[test]
fn any_element_can_be_removed() {
    let nodes = nodes(3);
    for removed in 0..3 {
        let mut list = double_list(&nodes);
        // SAFETY: the node is in this list.
        unsafe { list.remove(NonNull::from(&nodes[removed])) };
        assert_eq!(list.len(), 2);
        let mut left = vec![2, 1, 0];
        left.retain(|&id| id != removed as u32);
        // SAFETY: the node is in no list now.
        unsafe { list.push(NonNull::from(&nodes[removed])) };
        left.insert(0, removed as u32);
        assert_eq!(pop_all(&mut list), left);
    }
}

/// RQ-08: all can be removed one by one, in every order.
#[test]
fn all_elements_can_be_removed_in_any_order() {
    let nodes = nodes(3);
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut list = double_list(&nodes);
        for at in order {
            // SAFETY: the node is in this list.
            unsafe { list.remove(NonNull::from(&nodes[at])) };
        }
        assert!(list.is_empty() && list.pop().is_none());
    }
}

/// A double list refuses an element that is in a list already.
#[test]
#[should_panic(expected = "throw: DoubleList::push: the element is in a list already")]
fn double_push_throws() {
    let nodes = nodes(1);
    let mut list = double_list(&nodes);
    // SAFETY: broken on purpose; the list notices before it changes a link.
    unsafe { list.push(NonNull::from(&nodes[0])) };
}

/// A double list refuses to remove an element that is in no list.
#[test]
#[should_panic(expected = "throw: DoubleList::remove: the element is in no list")]
fn remove_of_an_unlisted_element_throws() {
    let nodes = nodes(2);
    let mut list = double_list(&nodes[..1]);
    // SAFETY: the node is in no list, which `remove` must notice.
    unsafe { list.remove(NonNull::from(&nodes[1])) };
}
