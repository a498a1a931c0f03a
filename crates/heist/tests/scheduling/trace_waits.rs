//! Execution traces: what each goroutine waited for, and how it came back from a blocking call.

use crate::matrix;
use crate::trace::{Bytes, examined};

use heist::goroutine::GoroutineId;
use heist::net::TcpListener;
use heist::sync::{Barrier, Condvar, Mutex, RwLock, Semaphore, WaitGroup};
use heist::trace::Recording;
use heist::{Handle, Runtime, chan, dump_goroutines, go};
use heist_trace::file::Trace;
use heist_trace::go as to_go;
use heist_trace::model::{Event, Machine, Visitor, replay};
use heist_trace::record::{Freeze, Kind, Take, Wake};
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// An event of one goroutine.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Waits(String),
    Woken(u8),
    Calls,
    /// Its P was taken from its M.
    Robbed(u8),
    /// The call is over; whether the P was gone.
    Returns(u8),
    Frozen(u8),
    Starts,
}

/// What a goroutine did, in order.
struct Story<'a> {
    trace: &'a Trace,
    id: u64,
    steps: Vec<Step>,
}

impl Visitor for Story<'_> {
    fn before(&mut self, event: &Event, machine: &Machine) {
        let here = machine.m(event.writer).is_some_and(|m| m.g == self.id);
        let step = match event.kind {
            Kind::GoBlock if here => {
                let reason = &self.trace.header.wait_reasons[usize::from(event.detail)];
                Step::Waits(reason.clone())
            }
            Kind::GoUnblock if event.subject == self.id => Step::Woken(event.detail),
            Kind::CallStart if here => Step::Calls,
            Kind::CallStop if here => Step::Returns(event.detail),
            Kind::GoFreeze if here => Step::Frozen(event.detail),
            Kind::GoStart if event.subject == self.id => Step::Starts,
            Kind::ProcTake if machine.m(event.extra.victim).is_some_and(|m| m.g == self.id) => {
                Step::Robbed(event.detail)
            }
            _ => return,
        };
        self.steps.push(step);
    }
}

fn story(trace: &Trace, id: GoroutineId) -> Vec<Step> {
    let id = id.to_string().parse().expect("a number");
    let mut story = Story { trace, id, steps: Vec::new() };
    replay(trace, &mut story);
    story.steps
}

/// One P, which nobody loses because its slice is over.
fn whole_slices() -> Runtime {
    matrix::start(Runtime::builder().procs(1).quantum(Duration::from_secs(600)))
}

/// Records until `f` has returned.
#[track_caller]
fn recorded<T>(f: impl FnOnce() -> T) -> (T, Trace) {
    let bytes = Bytes::default();
    let recording = Recording::start(bytes.clone()).expect("it starts");
    let result = f();
    recording.stop().expect("it is written");
    (result, examined(&bytes.get()))
}

/// MT-20, MT-21: a trace has the reason of each kind of wait, also of one for the poller, and what
/// ended it.
#[test]
fn every_kind_of_wait_has_its_reason() {
    matrix::plain(2).run(|| {
        let ((_full, rx), (tx, _rest)) = (chan::bounded::<u8>(0), chan::bounded(0));
        let (mutex, cond, rw) = (Mutex::new(()), Condvar::new(), RwLock::new(()));
        let (gate, semaphore, barrier) = (WaitGroup::new(), Semaphore::new(1), Barrier::new(2));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        gate.add(1);
        let (_held, _written, _permit) = (mutex.lock(), rw.write(), semaphore.acquire(1));
        let hour = Duration::from_secs(3600);
        let waits: [(&str, &(dyn Fn() + Sync)); 13] = [
            ("chan receive", &|| _ = rx.recv()),
            ("chan send", &|| _ = tx.send(1)),
            ("select", &|| heist::select! { recv(rx) -> _ => {} }),
            ("sync.Mutex.Lock", &|| drop(mutex.lock())),
            ("sync.Cond.Wait", &|| drop(cond.wait(Mutex::new(()).lock()))),
            ("sync.RWMutex.RLock", &|| drop(rw.read())),
            ("sync.RWMutex.Lock", &|| drop(rw.write())),
            ("semacquire", &|| drop(semaphore.acquire(1))),
            ("sync.WaitGroup.Wait", &|| gate.wait()),
            ("barrier wait", &|| _ = barrier.wait()),
            ("sleep", &|| heist::time::sleep(hour)),
            ("goroutine join", &|| drop(go(move || heist::time::sleep(hour)).join())),
            ("IO wait", &|| drop(listener.accept())),
        ];
        let (ids, trace) = recorded(|| {
            heist::scope(|scope| {
                waits.map(|(reason, wait)| {
                    let waiting = scope.go(wait);
                    let header = format!("goroutine {} [{reason}]:", waiting.id());
                    matrix::yield_until(reason, || dump_goroutines().contains(&header));
                    let id = waiting.id();
                    waiting.cancel();
                    assert!(waiting.join().is_err(), "{reason}");
                    id
                })
            })
        });
        for ((reason, _), id) in waits.iter().zip(ids) {
            let steps = story(&trace, id);
            let ended = [Step::Waits((*reason).to_owned()), Step::Woken(Wake::Cancelled as u8)];
            assert!(steps.windows(2).any(|two| two == ended), "{reason}: {steps:?}");
        }
    });
}

/// MT-21: the wait for a pipe is one for the poller, which ends it.
#[test]
fn a_wait_for_a_pipe_ends_by_the_poller() {
    matrix::plain(1).run(|| {
        let (id, trace) = recorded(|| {
            let (mut reader, mut writer) = heist::net::pipe().expect("a pipe");
            let reads = go(move || reader.read_exact(&mut [0]).expect("a byte"));
            let id = reads.id();
            let header = format!("goroutine {id} [IO wait]:");
            matrix::yield_until("it reads", || dump_goroutines().contains(&header));
            writer.write_all(&[1]).expect("room");
            reads.join().expect("it returns");
            id
        });
        let steps = story(&trace, id);
        let ended = [Step::Waits("IO wait".to_owned()), Step::Woken(Wake::Network as u8)];
        assert!(steps.windows(2).any(|two| two == ended), "{steps:?}");
    });
}

/// A goroutine in an announced call, whose P was taken.
struct InCall {
    call: heist::JoinHandle<()>,
    writer: std::io::PipeWriter,
    returned: Arc<AtomicBool>,
}

impl InCall {
    /// There is one P: when this returns, the call has lost it to the calling goroutine.
    fn begin(after: impl FnOnce() + Send + 'static) -> Self {
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let returned = Arc::new(AtomicBool::new(false));
        let begun = Arc::new(AtomicBool::new(false));
        let call = {
            let (returned, begun) = (Arc::clone(&returned), Arc::clone(&begun));
            go(move || {
                heist::blocking(|| {
                    begun.store(true, Ordering::Relaxed);
                    reader.read_exact(&mut [0]).expect("a byte");
                    returned.store(true, Ordering::Relaxed);
                });
                after();
            })
        };
        matrix::yield_until("it calls", || begun.load(Ordering::Relaxed));
        Self { call, writer, returned }
    }

    fn id(&self) -> GoroutineId {
        self.call.id()
    }

    /// Ends the call while the calling goroutine computes with the only P.
    fn end_without_a_p(mut self) {
        self.writer.write_all(&[1]).expect("room");
        let is_queued = || Handle::current().is_some_and(|handle| runnable(&handle) == Some(1));
        // It has ended already if the system took the CPU away from this thread for so long that
        // sysmon gave the P to the call.
        while !(self.returned.load(Ordering::Relaxed) && (is_queued() || self.call.is_finished())) {
            std::hint::spin_loop();
        }
        self.call.join().expect("it returns");
    }
}

fn runnable(handle: &Handle) -> Option<u64> {
    handle.metrics().get("/sched/goroutines/runnable:goroutines")
}

/// A goroutine that begins a call, and loses its P.
fn begun_and_robbed() -> [Step; 3] {
    [Step::Starts, Step::Calls, Step::Robbed(Take::Announced as u8)]
}

/// The end of a call that had lost its P: the goroutine waited for another, or got it at once.
#[track_caller]
fn returns_without_a_p(steps: &[Step]) {
    let waits = [Step::Returns(1), Step::Frozen(Freeze::NoP as u8), Step::Starts];
    assert!(steps == waits || steps == [Step::Returns(1)], "{steps:?}");
}

/// The conversion for Go depends on nothing but the trace.
#[track_caller]
fn converts_to_the_same(trace: &Trace) {
    let convert = || to_go::convert(trace, Vec::new(), |_| ()).expect("it is converted").0;
    assert_eq!(convert(), convert());
}

/// MT-22: a call that lost its P, and finds none when it returns.
#[test]
fn a_call_loses_its_p_and_waits_for_one() {
    whole_slices().run(|| {
        let (id, trace) = recorded(|| {
            let call = InCall::begin(|| ());
            let id = call.id();
            call.end_without_a_p();
            id
        });
        let steps = story(&trace, id);
        assert_eq!(steps[..3], begun_and_robbed(), "{steps:?}");
        returns_without_a_p(&steps[3..]);
        converts_to_the_same(&trace);
    });
}

/// MT-22: a call that lost its P, and takes an idle one when it returns.
#[test]
fn a_call_loses_its_p_and_takes_an_idle_one() {
    let rt = whole_slices();
    let handle = rt.handle().clone();
    rt.run(|| {
        let (id, trace) = recorded(|| {
            let (tx, rx) = chan::bounded(1);
            let InCall { call, mut writer, .. } = InCall::begin(move || _ = tx.send(()));
            // The P is idle when this goroutine waits.
            let writes = std::thread::spawn(move || {
                matrix::eventually("the other one waits", || {
                    handle.dump_goroutines().contains("goroutine 1 [chan receive")
                        && handle.metrics().get("/heist/procs/idle:threads") == Some(1)
                });
                writer.write_all(&[1]).expect("room");
            });
            assert_eq!(rx.recv(), Ok(()));
            let id = call.id();
            call.join().expect("it returns");
            heist::blocking(|| writes.join().expect("it returns"));
            id
        });
        let steps = story(&trace, id);
        assert_eq!(steps[..3], begun_and_robbed(), "{steps:?}");
        assert_eq!(steps[3], Step::Returns(1), "{steps:?}");
        assert!(!steps.iter().any(|step| matches!(step, Step::Frozen(_))), "{steps:?}");
        converts_to_the_same(&trace);
    });
}

/// MT-22: a call that began and lost its P in one trace, and ends in the next.
#[test]
fn a_call_goes_on_from_one_trace_to_the_next() {
    whole_slices().run(|| {
        let (call, first) = recorded(|| InCall::begin(|| ()));
        let id = call.id();
        let ((), second) = recorded(|| call.end_without_a_p());
        assert_eq!(story(&first, id), begun_and_robbed());
        returns_without_a_p(&story(&second, id));
        converts_to_the_same(&first);
        converts_to_the_same(&second);
    });
}
