//! A future that is polled and dropped inside the context.

use crate::context::Shared;
use pin_project_lite::pin_project;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

pin_project! {
    /// A future that is polled and dropped inside a tokio context.
    ///
    /// Made by [`TokioContext::wrap`](crate::TokioContext::wrap).
    #[must_use = "futures do nothing unless they are polled"]
    pub struct InTokio<F> {
        shared: Arc<Shared>,
        // None only while it is dropped.
        #[pin]
        future: Option<F>,
    }

    impl<F> PinnedDrop for InTokio<F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            // The count falls although a destructor panics.
            let _counted = Counted(this.shared);
            this.shared.enter(|| this.future.set(None));
        }
    }
}

impl<F> InTokio<F> {
    pub(crate) fn new(shared: Arc<Shared>, future: F) -> Self {
        shared.n_wrapped.fetch_add(1, Ordering::Relaxed);
        Self { shared, future: Some(future) }
    }
}

impl<F: Future> Future for InTokio<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        this.shared.n_polls.fetch_add(1, Ordering::Relaxed);
        let future = this.future.as_pin_mut().expect("it is dropped last");
        this.shared.enter(|| future.poll(cx))
    }
}

impl<F> fmt::Debug for InTokio<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InTokio").finish_non_exhaustive()
    }
}

struct Counted<'a>(&'a Shared);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.n_wrapped.fetch_sub(1, Ordering::Relaxed);
    }
}
