//! Wakers: from anywhere, at any time, and after the end.

use crate::life::{Counted, counter};
use crate::matrix;

use heist::{Runtime, task};
use std::future::{Future, IntoFuture, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

/// A place for a waker, and a number of events.
#[derive(Clone, Default)]
struct Bell(Arc<(Mutex<Option<Waker>>, AtomicUsize)>);

impl Bell {
    /// Waits for the first `n` events.
    async fn heard(&self, n: usize) {
        poll_fn(|cx| {
            *self.0.0.lock().unwrap() = Some(cx.waker().clone());
            if self.0.1.load(Ordering::SeqCst) >= n { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    fn ring(&self) {
        self.0.1.fetch_add(1, Ordering::SeqCst);
        let waker = self.0.0.lock().unwrap().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The waker of the task that listens.
    fn waker(&self) -> Waker {
        loop {
            if let Some(waker) = &*self.0.0.lock().unwrap() {
                return waker.clone();
            }
            std::thread::yield_now();
        }
    }
}

fn runtime() -> Runtime {
    // SAFETY: the goroutines keep nothing across a park that is bound to a thread.
    unsafe { Runtime::builder().procs(2).build() }.unwrap()
}

#[test]
fn threads_goroutines_and_tasks_wake_a_task() {
    matrix::each(|_, rt| {
        let bell = Bell::default();
        let rounds = 300;
        let listens = bell.clone();
        let listener = rt.spawn_async(async move {
            for n in 1..=3 * rounds {
                listens.heard(n).await;
            }
        });
        let (a, b, c) = (bell.clone(), bell.clone(), bell);
        let goroutine = rt.handle().spawn(move || {
            for _ in 0..rounds {
                a.ring();
                heist::yield_now();
            }
        });
        let other = rt.spawn_async(async move {
            for _ in 0..rounds {
                b.ring();
                task::yield_now().await;
            }
        });
        for _ in 0..rounds {
            c.ring();
            std::thread::yield_now();
        }
        goroutine.join().unwrap();
        other.join().unwrap();
        listener.join().unwrap();
    });
}

#[test]
fn a_task_is_woken_by_another_runtime() {
    let (here, there) = (runtime(), runtime());
    let bell = Bell::default();
    let listens = bell.clone();
    let listener = here.spawn_async(async move {
        for n in 1..=500 {
            listens.heard(n).await;
        }
    });
    let ringer = there.spawn_async(async move {
        for _ in 0..500 {
            bell.ring();
            task::yield_now().await;
        }
    });
    ringer.join().unwrap();
    listener.join().unwrap();
}

#[test]
fn a_waker_outlives_its_task_and_its_runtime() {
    let bell = Bell::default();
    let ended = Bell::default();
    {
        let rt = runtime();
        let (waits, ends) = (bell.clone(), ended.clone());
        drop(rt.spawn_async(async move { waits.heard(1).await }));
        let task = rt.spawn_async(async move { ends.heard(1).await });
        let _keep = ended.waker();
        ended.ring();
        task.join().unwrap();
        *ended.0.0.lock().unwrap() = Some(_keep);
        // The first task still waits when the runtime ends.
        drop(bell.waker());
    }
    let wakers = [bell.waker(), ended.waker()];
    for waker in &wakers {
        waker.wake_by_ref();
        let clone = waker.clone();
        assert!(waker.will_wake(&clone));
        clone.wake();
    }
    // The last references are dropped by a thread that is not the runtime's.
    std::thread::spawn(move || drop((wakers, bell, ended))).join().unwrap();
    // Their records are used again.
    let rt = runtime();
    for i in 0..100 {
        assert_eq!(rt.spawn_async(async move { i }).join().unwrap(), i);
    }
}

#[test]
fn the_last_waker_may_be_dropped_anywhere() {
    matrix::each(|_, rt| {
        let drops = counter();
        for i in 0..300 {
            let bell = Bell::default();
            let listens = bell.clone();
            let held = Counted(Arc::clone(&drops));
            let task = rt.spawn_async(async move {
                let _held = held;
                listens.heard(1).await;
            });
            let last = bell.waker();
            bell.ring();
            match i % 3 {
                // After the join, on a plain thread.
                0 => {
                    task.join().unwrap();
                    drop(last);
                }
                // While the task ends.
                1 => {
                    drop(task);
                    drop(last);
                }
                // On a goroutine of the runtime.
                _ => {
                    let goroutine = rt.handle().spawn(move || drop(last));
                    task.join().unwrap();
                    goroutine.join().unwrap();
                }
            }
        }
        crate::life::await_drops(&drops, 300);
    });
}

#[test]
fn wakes_from_many_threads_are_not_lost() {
    matrix::each(|_, rt| {
        let bell = Bell::default();
        let (threads, rounds) = (4, 500);
        let listens = bell.clone();
        let task = rt.spawn_async(async move { listens.heard(threads * rounds).await });
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| (0..rounds).for_each(|_| bell.ring()));
            }
        });
        task.join().unwrap();
    });
}

/// The waker of another executor that joins a goroutine or a task, and panics.
struct Panics(AtomicUsize);

impl std::task::Wake for Panics {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic!("a waker panics");
    }
}

/// The goroutine that calls the waker of its joiner has ended, so no frame of the user's catches
/// the panic. It must not reach the scheduler.
#[test]
fn a_joiners_waker_may_panic() {
    matrix::run(|| {
        let panics = Arc::new(Panics(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&panics));
        let mut cx = Context::from_waker(&waker);
        let rounds = 20;
        for n in 1..=rounds {
            let (tx, rx) = heist::chan::bounded::<usize>(0);
            let receives = rx.clone();
            let mut task = pin!(heist::spawn(async move { receives.recv_async().await }));
            let mut goroutine = pin!(heist::go(move || rx.recv()).into_future());
            assert!(task.as_mut().poll(&mut cx).is_pending());
            assert!(goroutine.as_mut().poll(&mut cx).is_pending());
            tx.send(n).unwrap();
            tx.send(n).unwrap();
            while panics.0.load(Ordering::SeqCst) < 2 * n {
                heist::yield_now();
            }
            let Poll::Ready(result) = task.poll(&mut cx) else { panic!("the task has ended") };
            assert_eq!(result.unwrap(), Ok(n));
            let Poll::Ready(result) = goroutine.poll(&mut cx) else { panic!("it has ended") };
            assert_eq!(result.unwrap(), Ok(n));
        }
    });
}

/// The futures of a plain executor, by number.
type Futures = Arc<Mutex<Vec<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>>>;

/// The waker of a plain executor that gives up one of its futures, at once.
struct Drops(Futures, usize);

impl std::task::Wake for Drops {
    fn wake(self: Arc<Self>) {
        let future = self.0.lock().unwrap()[self.1].take();
        drop(future);
    }
}

/// Two futures wait for the same thing, for which a plain thread wakes them both. The waker of each
/// drops the other one, on that thread: this must not wait for the thread itself.
fn wakers_drop_each_others_futures<F>(make: impl Fn() -> F, happens: impl FnOnce())
where
    F: Future + Send + 'static,
{
    let futures = Futures::default();
    for n in 0..2 {
        let waker = Waker::from(Arc::new(Drops(Arc::clone(&futures), 1 - n)));
        let future = make();
        let mut future: Pin<Box<dyn Future<Output = ()> + Send>> =
            Box::pin(async move { drop(future.await) });
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        futures.lock().unwrap().push(Some(future));
    }
    happens();
    assert!(futures.lock().unwrap().iter().all(Option::is_none), "both were woken");
}

#[test]
fn a_thread_that_wakes_several_futures_ends_their_waits_first() {
    use heist::sync::{Condvar, RwLock, Semaphore, WaitGroup};
    let (tx, rx) = heist::chan::unbounded::<u8>();
    let receive = || {
        let rx = rx.clone();
        async move { assert!(rx.recv_async().await.is_err()) }
    };
    wakers_drop_each_others_futures(receive, || drop(tx));

    let (tx, rx) = heist::chan::bounded::<u8>(0);
    let send = || {
        let tx = tx.clone();
        async move { assert!(tx.send_async(1).await.is_err()) }
    };
    wakers_drop_each_others_futures(send, || drop(rx));

    let lock = Arc::new(RwLock::new(()));
    let guard = lock.write();
    let read = || {
        let lock = Arc::clone(&lock);
        async move { drop(lock.read_async().await) }
    };
    wakers_drop_each_others_futures(read, || drop(guard));

    let semaphore = Arc::new(Semaphore::new(2));
    let permits = semaphore.acquire(2);
    let acquire = || {
        let semaphore = Arc::clone(&semaphore);
        async move { drop(semaphore.acquire_async(1).await) }
    };
    wakers_drop_each_others_futures(acquire, || drop(permits));
    assert_eq!(semaphore.available(), 2);

    let shared = Arc::new((heist::sync::Mutex::new(()), Condvar::new()));
    let wait = || {
        let shared = Arc::clone(&shared);
        async move {
            let guard = shared.0.lock_async().await;
            drop(shared.1.wait_async(guard).await);
        }
    };
    wakers_drop_each_others_futures(wait, || assert_eq!(shared.1.notify_all(), 2));

    let group = WaitGroup::new();
    group.add(1);
    let finish = || {
        let group = group.clone();
        async move { group.wait_async().await }
    };
    wakers_drop_each_others_futures(finish, || group.done());
}

/// A waker that counts its calls, and whose clones can be made to panic.
struct Clones {
    n_calls: AtomicUsize,
    panics: AtomicBool,
}

impl Clones {
    /// Lives forever, so the wakers need no count.
    fn new() -> &'static Self {
        Box::leak(Box::new(Self { n_calls: AtomicUsize::new(0), panics: AtomicBool::new(false) }))
    }

    fn waker(&'static self) -> Waker {
        const fn of<'a>(data: *const ()) -> &'a Clones {
            // SAFETY: the data is the address of a leaked box.
            unsafe { &*data.cast::<Clones>() }
        }
        fn clone(data: *const ()) -> RawWaker {
            assert!(!of(data).panics.load(Ordering::SeqCst), "a waker cannot be cloned");
            RawWaker::new(data, &VTABLE)
        }
        fn wake(data: *const ()) {
            of(data).n_calls.fetch_add(1, Ordering::SeqCst);
        }
        static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake, |_| ());
        // SAFETY: the functions may be called on any thread, at any time.
        unsafe { Waker::new(std::ptr::from_ref(self).cast(), &VTABLE) }
    }

    fn is_woken(&self) -> bool {
        self.n_calls.load(Ordering::SeqCst) != 0
    }

    /// Polls a future with a waker that cannot be cloned.
    fn fail(&'static self, future: Pin<&mut impl Future>) {
        self.panics.store(true, Ordering::SeqCst);
        let waker = self.waker();
        let poll = AssertUnwindSafe(|| future.poll(&mut Context::from_waker(&waker)).is_pending());
        assert!(catch_unwind(poll).is_err());
    }
}

/// Begins to wait.
fn begin(future: Pin<&mut impl Future>, waker: &Waker) {
    assert!(future.poll(&mut Context::from_waker(waker)).is_pending());
}

/// A future was woken and has to wait again, and its waker panics. It is dropped, and the next one
/// is woken in its place.
#[test]
fn a_waker_that_cannot_be_cloned_keeps_no_notice_from_others() {
    let (bad, good) = (Clones::new(), Clones::new());
    let mutex = heist::sync::Mutex::new(());
    let held = mutex.lock();
    let mut first = Box::pin(mutex.lock_async());
    let mut second = Box::pin(mutex.lock_async());
    begin(first.as_mut(), &bad.waker());
    drop(held);
    assert!(bad.is_woken());
    let held = mutex.lock();
    begin(second.as_mut(), &good.waker());
    bad.fail(first.as_mut());
    drop(first);
    drop(held);
    assert!(good.is_woken());

    let (bad, good) = (Clones::new(), Clones::new());
    let (tx, rx) = heist::chan::unbounded();
    let mut first = Box::pin(rx.recv_async());
    let mut second = Box::pin(rx.recv_async());
    begin(first.as_mut(), &bad.waker());
    begin(second.as_mut(), &good.waker());
    tx.send(1).unwrap();
    assert!(bad.is_woken());
    assert_eq!(rx.try_recv(), Ok(1));
    bad.fail(first.as_mut());
    drop(first);
    tx.send(2).unwrap();
    assert!(good.is_woken());
}

/// A plain thread waits for a condition variable, and its mutex goes to a future. The waker of that
/// future, called by the thread, uses the condition variable.
#[test]
fn a_thread_that_waits_for_a_condvar_calls_a_foreign_waker_without_locks() {
    struct Notifies(Arc<heist::sync::Condvar>);
    impl std::task::Wake for Notifies {
        fn wake(self: Arc<Self>) {
            self.0.notify_all();
        }
    }
    let condvar = Arc::new(heist::sync::Condvar::new());
    let mutex = heist::sync::Mutex::new(());
    let held = mutex.lock();
    let mut next = Box::pin(mutex.lock_async());
    begin(next.as_mut(), &Waker::from(Arc::new(Notifies(Arc::clone(&condvar)))));
    // The waker notifies the thread itself.
    drop(condvar.wait(held));
}

/// The waker of another executor, which counts the living ones.
struct Alive(Arc<AtomicUsize>);

impl Alive {
    fn waker(n_alive: &Arc<AtomicUsize>) -> Waker {
        n_alive.fetch_add(1, Ordering::SeqCst);
        Waker::from(Arc::new(Self(Arc::clone(n_alive))))
    }
}

impl std::task::Wake for Alive {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Polls with another waker each time, until the future is ready.
fn poll_with_new_wakers<F: Future>(future: F, n_alive: &Arc<AtomicUsize>) -> F::Output {
    let mut future = pin!(future);
    loop {
        let waker = Alive::waker(n_alive);
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        drop(waker);
        if let Poll::Ready(output) = polled {
            return output;
        }
    }
}

/// A joiner replaces its waker at the moment in which the task, or the goroutine, ends and takes
/// the waker. Each waker has one owner.
#[test]
fn the_waker_of_a_joiner_may_change_when_the_task_ends() {
    let rt = runtime();
    let n_alive = Arc::new(AtomicUsize::new(0));
    for n in 0..6000 {
        let task = rt.spawn_async(async move {
            for _ in 0..n % 5 {
                task::yield_now().await;
            }
            n
        });
        assert_eq!(poll_with_new_wakers(task, &n_alive).unwrap(), n);
        let goroutine = rt.handle().spawn(move || {
            for _ in 0..n % 5 {
                heist::yield_now();
            }
            n
        });
        assert_eq!(poll_with_new_wakers(goroutine.into_future(), &n_alive).unwrap(), n);
    }
    // The goroutines that called the last wakers have ended.
    drop(rt);
    assert_eq!(n_alive.load(Ordering::SeqCst), 0, "each waker is dropped once");
}
