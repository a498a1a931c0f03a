//! Functions that run when a context is cancelled.

use super::node::Node;
use crate::current;
use crate::goroutine::{self, Beginning};
use crate::sched::Sched;
use crate::sync::Mutex;
use crate::sys::thread;
use std::fmt;
use std::panic::{AssertUnwindSafe, Location, RefUnwindSafe, UnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

type Body = Box<dyn FnOnce() + Send>;

/// A function that waits for a context. The thread that takes the body decides whether it runs.
pub(super) struct Func {
    body: Mutex<Option<Body>>,
    /// The runtime of the goroutine that registered it. A context may outlive the runtime, and must
    /// not keep its memory and its descriptors.
    home: Option<Weak<Sched>>,
    /// Where it was registered: that is said of its goroutine. None if it runs on the goroutine or
    /// thread that cancels: a function of this crate that does not wait, panic or call user code.
    site: Option<&'static Location<'static>>,
}

impl Func {
    fn new(body: Body, site: Option<&'static Location<'static>>) -> Self {
        let home = current::with_sched(|sched| Arc::downgrade(&sched.life.share()));
        Self { body: Mutex::new(Some(body)), home, site }
    }

    fn take(&self) -> Option<Body> {
        self.body.lock_shielded().take()
    }

    /// Takes it in order to start it: from now on it cannot be stopped. None if it was stopped
    /// before.
    pub(super) fn take_due(func: Arc<Self>) -> Option<Due> {
        let body = func.take()?;
        Some(Due { func, body })
    }
}

/// A function that is to be started.
pub(super) struct Due {
    func: Arc<Func>,
    body: Body,
}

impl Due {
    /// Runs it on its own goroutine or thread; on the calling thread, if the system refuses one.
    pub(super) fn start(self) {
        let Self { func, body } = self;
        let Some(site) = func.site else { return body() };
        match &func.home {
            // A runtime that has shut down runs nothing: the body is dropped.
            Some(home) => {
                if let Some(home) = home.upgrade() {
                    let anywhere = Beginning::Anywhere;
                    // SAFETY: everything is `'static`.
                    drop(unsafe { goroutine::spawn_on(&home, body, site, anywhere, None) });
                }
            }
            None if current::goroutine().is_some() => {
                drop(goroutine::spawn_here(body, site, None));
            }
            None => {
                if let Err(body) = thread::spawn_roomy("heist-after-func", body) {
                    // The system refuses a thread: it runs here rather than never.
                    if let Err(payload) = catch_unwind(AssertUnwindSafe(body)) {
                        // The panic was reported, as on a thread. The payload is leaked because its
                        // destructor may panic.
                        std::mem::forget(payload);
                    }
                }
            }
        }
    }
}

/// A function that runs when a [`Context`](super::Context) is cancelled; see
/// [`Context::after_func`](super::Context::after_func).
pub struct ContextFunc {
    func: Arc<Func>,
    /// Where it is registered.
    place: Option<(Arc<Node>, u64)>,
}

// The function runs on its own goroutine or thread, or never.
impl UnwindSafe for ContextFunc {}
impl RefUnwindSafe for ContextFunc {}

impl ContextFunc {
    pub(super) fn new(
        node: Option<Arc<Node>>,
        body: Body,
        site: Option<&'static Location<'static>>,
    ) -> Self {
        let func = Arc::new(Func::new(body, site));
        let place = node.and_then(|node| {
            let id = node.add_func(Arc::clone(&func))?;
            Some((node, id))
        });
        Self { func, place }
    }

    /// Keeps the function from running. True if that was in time: then it never runs. False if it
    /// runs, has run, or was stopped before.
    pub fn stop(&self) -> bool {
        let body = self.func.take();
        if let Some((node, id)) = &self.place {
            node.remove(*id);
        }
        body.is_some()
    }
}

impl fmt::Debug for ContextFunc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContextFunc").finish_non_exhaustive()
    }
}
