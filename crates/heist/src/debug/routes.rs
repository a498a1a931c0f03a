//! The paths of the server and what they answer.

use super::access::{self, Cost, Via};
use super::options::Options;
use super::request::Request;
use super::response::{HTML, JSON, Response, Status};
use super::watch::Watch;
use super::worker::Work;
use super::{goroutines, page, pprof, prometheus, rates, state, trace};
use crate::runtime::Handle;
use crate::sched::{Phase, Sched};

/// What answers are made from.
pub(super) struct Context {
    handle: Handle,
    pub(super) options: Options,
    pub(super) watch: Watch,
}

impl Context {
    pub(super) fn new(handle: Handle, options: Options) -> Self {
        Self { handle, options, watch: Watch::default() }
    }

    pub(super) const fn handle(&self) -> &Handle {
        &self.handle
    }

    pub(super) fn sched(&self) -> &Sched {
        self.handle.sched()
    }
}

/// An answer, or the work that makes it.
pub(super) enum Answer {
    Now(Response),
    Later(Work),
}

impl From<Response> for Answer {
    fn from(response: Response) -> Self {
        Self::Now(response)
    }
}

/// Makes an answer. An error is an answer as well.
type Handler = fn(&Context, &Request) -> Result<Answer, Response>;

/// One path.
pub(super) struct Route {
    pub(super) path: &'static str,
    pub(super) about: &'static str,
    cost: Cost,
    handler: Handler,
}

const fn free(path: &'static str, handler: Handler, about: &'static str) -> Route {
    Route { path, about, cost: Cost::Free, handler }
}

const fn costly(path: &'static str, handler: Handler, about: &'static str) -> Route {
    Route { path, about, cost: Cost::Token, handler }
}

/// All paths, in the order of the index.
#[rustfmt::skip]
pub(super) const ROUTES: &[Route] = &[
    free("/", |context, _| Ok(Response::new(HTML, page::index(context.sched())).into()),
        "this list"),
    free("/debug/sched", |_, _| Ok(Response::new(HTML, page::SCHED).into()),
        "the scheduler, live"),
    free("/debug/sched.json", |context, _| Ok(Response::new(JSON, state::sched_json(context)).into()),
        "the state of the scheduler as JSON"),
    costly("/debug/goroutines", goroutines::text,
        "all goroutines; debug=1 groups them, id= shows one"),
    free("/debug/goroutines.json", |context, request| Ok(goroutines::list(context, request)?.into()),
        "goroutines as JSON; state=, site=, id= and limit= choose"),
    free("/metrics", |context, request| Ok(prometheus::answer(context, request).into()),
        "all metrics, in the text format of Prometheus or as OpenMetrics"),
    free("/debug/pprof/", |context, _| Ok(Response::new(HTML, page::index(context.sched())).into()),
        "this list, where Go has it"),
    costly("/debug/pprof/goroutine", pprof::goroutines,
        "the stacks of all goroutines; debug=1 as text, debug=2 as a dump"),
    costly("/debug/pprof/goroutineleak", pprof::leaks,
        "goroutines that can never run again; halts the program for a moment"),
    costly("/debug/pprof/profile", pprof::cpu,
        "CPU time of the next seconds=, 30 if it is missing"),
    costly("/debug/pprof/block", pprof::block,
        "waits for channels and locks; seconds= collects for so long"),
    costly("/debug/pprof/mutex", pprof::mutex,
        "who keeps locks while others wait; seconds= collects for so long"),
    costly("/debug/pprof/threadcreate", pprof::threads,
        "threads that run goroutines"),
    costly("/debug/trace", trace::answer,
        "an execution trace of the next seconds=, for go tool trace; format=heist for heist trace"),
    costly("/debug/pprof/trace", trace::answer,
        "the same, where Go has it"),
    costly("/debug/rates", rates::answer,
        "how much each counter rises per second, over seconds="),
];

/// Answers a request.
pub(super) fn answer(context: &Context, request: &Request, via: Via) -> Answer {
    attempt(context, request, via).unwrap_or_else(Answer::Now)
}

fn attempt(context: &Context, request: &Request, via: Via) -> Result<Answer, Response> {
    access::check_origin(request, via, &context.options)?;
    let Some(route) = ROUTES.iter().find(|route| route.path == request.path) else {
        return Err(not_found(&request.path));
    };
    if context.sched().phase() == Phase::Stopped {
        return Err(Response::error(Status::Unavailable, "the runtime has ended"));
    }
    if route.cost == Cost::Token {
        access::check_token(request, via, &context.options)?;
    }
    (route.handler)(context, request)
}

fn not_found(path: &str) -> Response {
    let mut why = format!("there is no {path} here; there are:\n");
    for route in ROUTES {
        why.push_str(&format!("  {:<26} {}\n", route.path, route.about));
    }
    Response::error(Status::NotFound, why.trim_end())
}
