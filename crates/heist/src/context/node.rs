//! The tree of contexts that can be cancelled.
//!
//! A node knows its parent and keeps it alive; a parent knows its children without keeping them
//! alive, so that a context that is no longer used leaves the tree by itself. No child watches its
//! parent: the goroutine that cancels the parent walks down the tree.
//!
//! # Publication
//! A node is cancelled under its lock: error and cause are stored, `phase` says `ENDING`, the
//! channel is closed, `phase` says `ENDED`. A goroutine that was woken by the channel therefore
//! sees an error. One that sees an error and not `ENDED` waits for the lock, and then the channel
//! is closed. So error, cause and channel are always seen together.
//!
//! # Walks
//! The goroutine that ends a node takes its children, so it has to end them too. This is a walk.
//! Another canceller that comes meanwhile finds the node ended, and the nodes below it perhaps not
//! yet. It must not return before they have ended, so it waits for the walk: a mutex that the
//! walker holds, and that is stored in every node with children that the walk ended.
//!
//! No two walks wait for each other. A walk that ends nodes waits only for walks that began below
//! it: it reaches a node through the one above, which it ended itself. A walk that finds its first
//! node ended ends nothing, so no other walk waits for it. No user code runs while the walk's mutex
//! is held: functions are taken and not started, and every reference that may be the last one is
//! kept until the walk is over. So a function, or a destructor, that cancels the same tree again
//! does not wait for itself.
//!
//! # Ordering
//! `phase` is stored with Release after the data that it announces, and read with Acquire.
//!
//! GO: context.go cancelCtx, propagateCancel, timerCtx.

use super::deadlines::{self, Ticket};
use super::error::{Cause, ContextError};
use super::func::{Due, Func};
use crate::chan::{self, Receiver, Sender};
use crate::sync::Mutex;
use crate::time::{AfterFunc, try_at};
use std::any::Any;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

const LIVE: u8 = 0;
const ENDING: u8 = 1;
const ENDED: u8 = 2;

struct Ended {
    error: ContextError,
    cause: Option<Cause>,
}

enum Child {
    Node(Weak<Node>),
    Func(Arc<Func>),
}

/// The data that the lock of a node protects.
struct State {
    children: BTreeMap<u64, Child>,
    n_children: u64,
    /// Made at the first call of `done`.
    done: Option<(Sender<Infallible>, Receiver<Infallible>)>,
    timer: Option<Timer>,
    /// The walk that ended this node and ends the nodes that were below it. None if there were
    /// none.
    walk: Option<Arc<Walk>>,
}

/// Held by the goroutine that ends everything below a node, until that is done.
type Walk = Mutex<()>;

/// The objects that a walk found and keeps until its end, when user code may run.
#[derive(Default)]
struct Found {
    functions: Vec<Due>,
    timers: Vec<Timer>,
    /// Other walks, below this one.
    walks: Vec<Arc<Walk>>,
    nodes: Vec<Arc<Node>>,
}

/// The keeper of the deadline.
enum Timer {
    /// The runtime on which the deadline was set.
    Runtime(AfterFunc),
    /// The thread for deadlines without a runtime, or whose runtime has ended.
    Thread(Ticket),
}

impl Timer {
    fn stop(self) {
        match self {
            Self::Runtime(timer) => {
                // Returns false if this timer ended the node.
                timer.stop();
            }
            Self::Thread(ticket) => ticket.cancel(),
        }
    }
}

/// The end of a node by its deadline.
pub(super) struct Expiry {
    node: Weak<Node>,
    cause: Option<Cause>,
}

impl Expiry {
    pub(super) fn expire(self) {
        if let Some(node) = self.node.upgrade() {
            Node::cancel(&node, ContextError::DeadlineExceeded, self.cause);
        }
    }
}

/// An expiry that a runtime keeps. If the runtime ends before the deadline, the thread takes over.
struct OnRuntime {
    deadline: Instant,
    expiry: Option<Expiry>,
}

impl Drop for OnRuntime {
    fn drop(&mut self) {
        if let Some(expiry) = self.expiry.take()
            && let Some(node) = expiry.node.upgrade()
            && node.ended.get().is_none()
        {
            node.set_timer(Timer::Thread(deadlines::keep(self.deadline, expiry)));
        }
    }
}

pub(super) struct Node {
    parent: Option<Arc<Node>>,
    /// Its number among the parent's children.
    id: OnceLock<u64>,
    deadline: Option<Instant>,
    phase: AtomicU8,
    ended: OnceLock<Ended>,
    state: Mutex<State>,
}

impl Node {
    /// A node below `parent`. `cause` is the cause if the deadline ends the node.
    pub(super) fn new(
        parent: Option<Arc<Self>>,
        deadline: Option<Instant>,
        cause: Option<Cause>,
    ) -> Arc<Self> {
        let inherited = parent.as_ref().and_then(|parent| parent.deadline);
        // A deadline that is not earlier than the parent's needs no timer: the parent's ends this
        // node too.
        let own = deadline.filter(|own| inherited.is_none_or(|inherited| *own < inherited));
        let node = Arc::new(Self {
            parent: parent.clone(),
            id: OnceLock::new(),
            deadline: own.or(inherited),
            phase: AtomicU8::new(LIVE),
            ended: OnceLock::new(),
            state: Mutex::new(State {
                children: BTreeMap::new(),
                n_children: 0,
                done: None,
                timer: None,
                walk: None,
            }),
        });
        if let Some(parent) = parent {
            match parent.add(Child::Node(Arc::downgrade(&node))) {
                Some(id) => {
                    // It is set only here.
                    let _ = node.id.set(id);
                }
                None => node.follow(&parent),
            }
        }
        if let Some(deadline) = own {
            Self::watch(&node, deadline, cause);
        }
        node
    }

    /// Cancels the node at `deadline`.
    fn watch(node: &Arc<Self>, deadline: Instant, cause: Option<Cause>) {
        let expiry = Expiry { node: Arc::downgrade(node), cause };
        if deadline <= Instant::now() {
            return expiry.expire();
        }
        let mut kept = OnRuntime { deadline, expiry: Some(expiry) };
        let timer = try_at(deadline, move || {
            if let Some(expiry) = kept.expiry.take() {
                expiry.expire();
            }
        });
        // Without a runtime the closure is dropped, which hands the expiry to the thread.
        if let Some(timer) = timer {
            node.set_timer(Timer::Runtime(timer));
        }
    }

    /// Stores the keeper of the deadline, unless the node has ended.
    fn set_timer(&self, timer: Timer) {
        let mut state = self.state.lock_shielded();
        let spare = if self.ended.get().is_some() {
            Some(timer)
        } else if state.timer.is_some() && matches!(timer, Timer::Runtime(_)) {
            // The runtime has ended meanwhile, and the thread has taken over.
            Some(timer)
        } else {
            state.timer.replace(timer)
        };
        drop(state);
        if let Some(spare) = spare {
            spare.stop();
        }
    }

    /// Adds a child to the list, unless the node has ended.
    fn add(&self, child: Child) -> Option<u64> {
        let mut state = self.state.lock_shielded();
        if self.ended.get().is_some() {
            return None;
        }
        state.n_children += 1;
        let id = state.n_children;
        state.children.insert(id, child);
        Some(id)
    }

    /// Registers a function, or starts it if the node is cancelled already.
    pub(super) fn add_func(&self, func: Arc<Func>) -> Option<u64> {
        let id = self.add(Child::Func(Arc::clone(&func)));
        if id.is_none() {
            Func::take_due(func).into_iter().for_each(Due::start);
        }
        id
    }

    /// Removes a child from the list.
    pub(super) fn remove(&self, id: u64) {
        let child = self.state.lock_shielded().children.remove(&id);
        // Dropped without the lock: it may hold a user's closure.
        drop(child);
    }

    /// Ends this node in the same way as `parent`, which has ended.
    fn follow(self: &Arc<Self>, parent: &Self) {
        if let Some(ended) = parent.ended.get() {
            Self::cancel(self, ended.error, ended.cause.clone());
        }
    }

    /// Cancels a node and everything below it. The first canceller determines how and why. When
    /// this returns, everything below has ended, by this call or by another.
    pub(super) fn cancel(node: &Arc<Self>, error: ContextError, cause: Option<Cause>) {
        let walk = Arc::new(Walk::new(()));
        let held = walk.lock_shielded();
        let mut found = Found::default();
        let mut below = vec![Arc::clone(node)];
        while let Some(node) = below.pop() {
            for child in node.end(error, &cause, &walk, &mut found).into_values() {
                match child {
                    Child::Node(child) => below.extend(child.upgrade()),
                    Child::Func(func) => found.functions.extend(Func::take_due(func)),
                }
            }
            found.nodes.push(node);
        }
        for other in &found.walks {
            drop(other.lock_shielded());
        }
        drop(held);
        // From here on user code may run.
        let panicked = start_all(found.functions);
        found.timers.into_iter().for_each(Timer::stop);
        node.leave_parent();
        if let Some(payload) = panicked {
            resume_unwind(payload);
        }
    }

    /// Ends this node, and returns its children. If it has ended already, there are none, but
    /// perhaps a walk over those that it had, which is added to `found`.
    fn end(
        &self,
        error: ContextError,
        cause: &Option<Cause>,
        walk: &Arc<Walk>,
        found: &mut Found,
    ) -> BTreeMap<u64, Child> {
        let mut state = self.state.lock_shielded();
        if self.ended.set(Ended { error, cause: cause.clone() }).is_err() {
            found.walks.extend(state.walk.clone());
            return BTreeMap::new();
        }
        self.phase.store(ENDING, Ordering::Release);
        if let Some((sender, _)) = &state.done {
            sender.close();
        }
        self.phase.store(ENDED, Ordering::Release);
        let children = std::mem::take(&mut state.children);
        if !children.is_empty() {
            state.walk = Some(Arc::clone(walk));
        }
        found.timers.extend(state.timer.take());
        children
    }

    fn leave_parent(&self) {
        if let (Some(parent), Some(id)) = (&self.parent, self.id.get()) {
            parent.remove(*id);
        }
    }

    /// Leaves the tree, and returns the reference to the parent.
    fn detach(&mut self) -> Option<Arc<Self>> {
        if let Some(timer) = self.state.get_mut().timer.take() {
            timer.stop();
        }
        self.leave_parent();
        self.parent.take()
    }

    pub(super) fn done(&self) -> Receiver<Infallible> {
        if deadlines::are_unwatched() {
            deadlines::start_or_expire();
        }
        let mut state = self.state.lock_shielded();
        let ended = self.ended.get().is_some();
        let (_, receiver) = state.done.get_or_insert_with(|| {
            let (sender, receiver) = chan::signal();
            if ended {
                sender.close();
            }
            (sender, receiver)
        });
        receiver.clone()
    }

    /// Waits until the channel is closed. May return early while no thread watches the deadlines.
    pub(super) fn wait(&self) {
        /// The time between two attempts to start the thread.
        const PAUSE: Duration = Duration::from_millis(10);
        let done = self.done();
        if deadlines::are_unwatched() {
            let _ = done.recv_timeout(PAUSE);
        } else {
            let Err(_closed) = done.recv();
        }
    }

    #[inline]
    pub(super) fn err(&self) -> Option<ContextError> {
        Some(self.ended()?.error)
    }

    pub(super) fn cause(&self) -> Option<Cause> {
        let ended = self.ended()?;
        Some(ended.cause.clone().unwrap_or_else(|| ended.error.into()))
    }

    #[inline]
    fn ended(&self) -> Option<&Ended> {
        match self.phase.load(Ordering::Acquire) {
            LIVE if !deadlines::are_unwatched() => return None,
            LIVE => deadlines::start_or_expire(),
            // The channel is being closed.
            ENDING => drop(self.state.lock_shielded()),
            _ => {}
        }
        self.ended.get()
    }

    pub(super) fn n_children(&self) -> usize {
        self.state.lock_shielded().children.len()
    }

    pub(super) const fn deadline(&self) -> Option<Instant> {
        self.deadline
    }
}

/// Starts every function, even if the destructor of one that cannot be started panics. The first
/// such panic is returned, for the caller to resume.
fn start_all(functions: Vec<Due>) -> Option<Box<dyn Any + Send>> {
    let mut first = None;
    for due in functions {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| due.start())) {
            match &first {
                None => first = Some(payload),
                // Leaked: its destructor may panic as well.
                Some(_) => std::mem::forget(payload),
            }
        }
    }
    first
}

impl Drop for Node {
    fn drop(&mut self) {
        // One after the other, not recursively: a chain may be too long for the stack.
        let mut parent = self.detach();
        while let Some(mut last) = parent.and_then(Arc::into_inner) {
            parent = last.detach();
        }
    }
}
