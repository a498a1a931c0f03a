//! What tokio-console asks for.
//!
//! Each answer is a stream that makes its next message when the connection can take it, from what
//! is known then. So there are no queues.

use crate::client::Client;
use crate::describe;
use crate::shared::Shared;
use console_api::instrument::instrument_server::Instrument;
use console_api::instrument::{
    InstrumentRequest, PauseRequest, PauseResponse, ResumeRequest, ResumeResponse, State,
    StateRequest, TaskDetailsRequest, Temporality, Update,
};
use console_api::tasks::TaskDetails;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status};

/// The most clients that watch at a time.
const CLIENTS_MAX: usize = 16;

pub(crate) struct Service {
    shared: Arc<Shared>,
}

impl Service {
    pub(crate) const fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }
}

/// While it lives, somebody watches.
struct Watcher(Arc<Shared>);

impl Watcher {
    fn new(shared: &Arc<Shared>) -> Result<Self, Status> {
        if shared.enter(CLIENTS_MAX) {
            Ok(Self(Arc::clone(shared)))
        } else {
            Err(Status::resource_exhausted("too many clients watch"))
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// The updates of one client.
pub(crate) struct Updates {
    watcher: Watcher,
    bell: WatchStream<u64>,
    client: Client,
}

impl Stream for Updates {
    type Item = Result<Update, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let Self { watcher: Watcher(shared), client, .. } = &mut *self;
            if !shared.is_paused()
                && let Some(update) = client.next(&shared.book())
            {
                return Poll::Ready(Some(Ok(update)));
            }
            if std::task::ready!(Pin::new(&mut self.bell).poll_next(cx)).is_none() {
                return Poll::Ready(None);
            }
        }
    }
}

/// The details of one goroutine, until it is forgotten or has ended.
pub(crate) struct Details {
    shared: Arc<Shared>,
    bell: WatchStream<u64>,
    id: u64,
    /// The version that was sent.
    sent: Option<u64>,
    has_ended: bool,
}

impl Details {
    /// The next message, None if nothing has changed, or that there will be none.
    fn newest(&mut self) -> Result<Option<TaskDetails>, ()> {
        if self.shared.is_paused() {
            return Ok(None);
        }
        let book = self.shared.book();
        if self.has_ended {
            return Err(());
        }
        let goroutine = book.goroutine(self.id).ok_or(())?;
        if self.sent == Some(goroutine.changed) {
            return Ok(None);
        }
        self.sent = Some(goroutine.changed);
        self.has_ended = goroutine.ended_ns.is_some();
        Ok(Some(describe::details(&book, self.id, goroutine)))
    }
}

impl Stream for Details {
    type Item = Result<TaskDetails, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match self.newest() {
                Err(()) => return Poll::Ready(None),
                Ok(Some(details)) => return Poll::Ready(Some(Ok(details))),
                Ok(None) => {}
            }
            if std::task::ready!(Pin::new(&mut self.bell).poll_next(cx)).is_none() {
                return Poll::Ready(None);
            }
        }
    }
}

impl Drop for Details {
    fn drop(&mut self) {
        self.shared.book().unwatch(self.id);
    }
}

type Boxed<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Instrument for Service {
    type WatchUpdatesStream = Updates;
    type WatchTaskDetailsStream = Details;
    type WatchStateStream = Boxed<State>;

    async fn watch_updates(
        &self,
        _: Request<InstrumentRequest>,
    ) -> Result<Response<Updates>, Status> {
        let watcher = Watcher::new(&self.shared)?;
        let bell = WatchStream::new(self.shared.bell());
        Ok(Response::new(Updates { watcher, bell, client: Client::default() }))
    }

    async fn watch_task_details(
        &self,
        request: Request<TaskDetailsRequest>,
    ) -> Result<Response<Details>, Status> {
        let Some(id) = request.into_inner().id else {
            return Err(Status::invalid_argument("which task?"));
        };
        let mut book = self.shared.book();
        if book.goroutine(id.id).is_none() {
            return Err(Status::not_found("there is no such task"));
        }
        book.watch(id.id);
        let (shared, bell) = (Arc::clone(&self.shared), WatchStream::new(self.shared.bell()));
        Ok(Response::new(Details { shared, bell, id: id.id, sent: None, has_ended: false }))
    }

    async fn watch_state(
        &self,
        _: Request<StateRequest>,
    ) -> Result<Response<Self::WatchStateStream>, Status> {
        let states = WatchStream::new(self.shared.temporality());
        let states = states.map(|temporality| Ok(State { temporality: temporality.into() }));
        Ok(Response::new(Box::pin(states)))
    }

    async fn pause(&self, _: Request<PauseRequest>) -> Result<Response<PauseResponse>, Status> {
        self.shared.set_temporality(Temporality::Paused);
        Ok(Response::new(PauseResponse {}))
    }

    async fn resume(&self, _: Request<ResumeRequest>) -> Result<Response<ResumeResponse>, Status> {
        self.shared.set_temporality(Temporality::Live);
        Ok(Response::new(ResumeResponse {}))
    }
}
