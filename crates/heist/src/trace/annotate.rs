//! The program's own events: tasks, regions and messages.

use super::emit;
use super::recorder::is_on;
use crate::current::{self, InRuntime};
use heist_core::sync::{AtomicU64, Ordering};
use heist_trace::record::Kind;
use std::fmt;
use std::marker::PhantomData;

/// A piece of work of the program, such as a request. It may involve many goroutines.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().procs(1).build() }.unwrap();
/// # rt.run(|| {
/// use heist::trace::Task;
///
/// let task = Task::new("request");
/// let part = task.child("query");
/// heist::go(move || part.region("parse", || part.log("rows", "17"))).join().unwrap();
/// # });
/// ```
pub struct Task {
    number: u64,
}

impl Task {
    /// Begins a task.
    pub fn new(kind: &str) -> Self {
        Self::begin(kind, 0)
    }

    /// Begins a task that is a part of this one.
    pub fn child(&self, kind: &str) -> Self {
        Self::begin(kind, self.number)
    }

    fn begin(kind: &str, parent: u64) -> Self {
        static N_TASKS: AtomicU64 = AtomicU64::new(0);
        let number = N_TASKS.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(rt) = enter() {
            emit::task_start(rt.m(), number, kind, parent);
        }
        Self { number }
    }

    /// Runs `f` in a region of this task.
    pub fn region<T>(&self, name: &str, f: impl FnOnce() -> T) -> T {
        let _region = Region::enter(name, self.number);
        f()
    }

    /// Writes a message that belongs to this task.
    pub fn log(&self, category: &str, message: &str) {
        write_log(category, message, self.number);
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if let Some(rt) = enter() {
            emit::annotation(rt.m(), Kind::TaskStop, "", self.number);
        }
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("number", &self.number).finish()
    }
}

/// Enters the runtime, if an event would be recorded.
fn enter() -> Option<InRuntime> {
    is_on().then(current::enter).flatten()
}

/// A part of what a goroutine does; it ends when this is dropped.
///
/// Regions of a goroutine nest. A region that is leaked never ends. Names and messages are cut off
/// after 1024 bytes.
pub struct Region<'a> {
    name: &'a str,
    task: u64,
    /// It belongs to the goroutine that entered it.
    _not_send: PhantomData<*mut ()>,
}

impl<'a> Region<'a> {
    fn enter(name: &'a str, task: u64) -> Self {
        if let Some(rt) = enter() {
            emit::annotation(rt.m(), Kind::RegionStart, name, task);
        }
        Self { name, task, _not_send: PhantomData }
    }
}

impl Drop for Region<'_> {
    fn drop(&mut self) {
        if let Some(rt) = enter() {
            emit::annotation(rt.m(), Kind::RegionStop, self.name, self.task);
        }
    }
}

impl fmt::Debug for Region<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Runs `f` in a region of the calling goroutine. On a plain thread this only calls `f`.
///
/// # Examples
/// ```
/// assert_eq!(heist::trace::region("sum", || 1 + 1), 2);
/// ```
pub fn region<T>(name: &str, f: impl FnOnce() -> T) -> T {
    let _region = Region::enter(name, 0);
    f()
}

/// Enters a region of the calling goroutine, which ends when the result is dropped.
///
/// # Examples
/// ```
/// let region = heist::trace::enter_region("load");
/// drop(region);
/// ```
#[must_use = "a region that is dropped ends"]
pub fn enter_region(name: &str) -> Region<'_> {
    Region::enter(name, 0)
}

/// Writes a message. On a plain thread it is lost.
///
/// # Examples
/// ```
/// heist::trace::log("cache", "miss");
/// ```
pub fn log(category: &str, message: &str) {
    write_log(category, message, 0);
}

fn write_log(category: &str, message: &str, task: u64) {
    if let Some(rt) = enter() {
        emit::log(rt.m(), category, message, task);
    }
}
