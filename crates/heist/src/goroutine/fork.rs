//! `join`: two computations that may run at the same time.
//!
//! The second half is a latent job in the frame of [`join`]: a head that thieves see, the closure,
//! and room for its outcome. The caller pushes it onto its goroutine's deque, runs the first half,
//! and pops the job again. Most of the time it is still there, and the caller runs it as a plain
//! call: no goroutine was made, and the runtime was not entered. If a thief took it, it has become
//! a goroutine, and the caller waits for its end. It never runs other people's jobs meanwhile: its
//! stack does not grow, and it holds no lock that such a job could want.
//!
//! # Why it is sound
//! A job that was taken uses the frame of its forker: the closure, what that borrows, and the
//! place of the outcome. The forker does not leave the frame before the job has ended, whether the
//! first half returns or unwinds, and cancellation cannot end that wait. It only passes the
//! cancellation on. The goroutine's last access to the frame is the one that ends the job
//! (`heist_core::fork_job`).
//!
//! The inner forks of a fork are over when it ends, because their frames are. That is not so on
//! stacks that another library switches (coroutines, also of safe code): so a pop compares what it
//! found, and the process ends rather than run one job as another.
//!
//! A half whose goroutine was abandoned because it overflowed its stack never ends, so neither does
//! the `join` that waits for it. If the forker itself is abandoned, its frames stay forever, and
//! thieves may still take the jobs in them.

use super::JoinHandle;
use super::measured;
use super::payload;
use super::with_stack_if_possible;
use crate::coro::slabs;
use crate::current;
use crate::gmp::G;
use crate::gmp::flags::Flag;
use crate::gmp::fork::{Deque, Job, Taken};
use crate::gmp::g::Vtable;
use crate::sched::forks;
use crate::sched::forks::measured::is_measured;
use crate::sched::life::cancel::{self, Ending};
use crate::sched::waiter::Waiter;
use crate::sys::clock;
use crate::wait::{Terms, WaitReason, wait_for_fork};
use heist_core::fork_job::JobWord;
use std::any::Any;
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::ptr::NonNull;

/// Runs both closures, maybe at the same time, and returns both results.
///
/// `a` runs on the calling goroutine. `b` is offered to the other processors meanwhile. If none
/// takes it, the caller runs it after `a`, and the call has cost a few nanoseconds. If one does,
/// `b` becomes a goroutine, and the caller parks until it has ended.
///
/// Both halves may do what goroutines may do: wait for channels, locks and sockets, sleep, call
/// `join` again, be preempted. They may wait for each other: if `a` parks, `b` is run by another
/// processor, or by the same one.
///
/// A half that was taken has the class, the name and the size of stack of the forker, but an id of
/// its own. It may be on another thread, even if the forker is locked to its thread.
///
/// On a plain thread, and if there is no memory for a goroutine, `a` and then `b` run one after the
/// other.
///
/// # Panics
/// If `a` panics, `b` is dropped if nobody has taken it; otherwise `join` waits for its end. Then
/// the panic of `a` continues. If only `b` panics, its panic continues, after the end of `a`.
///
/// # Cancellation
/// While a half runs elsewhere, it uses what the caller owns. So a caller that is cancelled passes
/// the cancellation on to `b`, waits for its end, and then unwinds. A half that was abandoned
/// because it overflowed its stack (see [`OverflowPolicy`](crate::OverflowPolicy)) never ends, and
/// neither does the call.
///
/// # Examples
/// ```
/// fn sum(numbers: &[u64]) -> u64 {
///     if numbers.len() < 1000 {
///         return numbers.iter().sum();
///     }
///     let (left, right) = numbers.split_at(numbers.len() / 2);
///     let (left, right) = heist::join(|| sum(left), || sum(right));
///     left + right
/// }
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// let numbers: Vec<u64> = (0..100_000).collect();
/// assert_eq!(sum(&numbers), 4_999_950_000);
/// # });
/// ```
/// The halves may wait for each other:
/// ```
/// # let rt = unsafe { heist::Runtime::builder().procs(1).build() }.unwrap();
/// # rt.run(|| {
/// let (tx, rx) = heist::chan::bounded(0);
/// let (got, ()) = heist::join(|| rx.recv().unwrap(), || tx.send(42).unwrap());
/// assert_eq!(got, 42);
/// # });
/// ```
#[inline]
#[track_caller]
pub fn join<A, B, RA, RB>(a: A, b: B) -> (RA, RB)
where
    A: FnOnce() -> RA,
    B: FnOnce() -> RB + Send,
    RB: Send,
{
    let job = Latent::new(b, Location::caller());
    // SAFETY: the job stays here until it was popped or has ended: see `Fork`.
    let Some(deque) = (unsafe { forks::push(&job.head) }) else {
        // SAFETY: nobody else knows the job.
        return unsafe { join_unpushed(a, &job) };
    };
    let fork = Fork { deque, job: &job };
    let ra = a();
    (ra, fork.finish())
}

/// Runs both halves of a goroutine that is measured; or one after the other, if nobody can take the
/// second one.
///
/// It takes the job, and not the closure in it: `join` would have to keep that in registers.
///
/// # Safety
/// The job was not pushed, and the caller does not use it again.
#[cold]
#[inline(never)]
unsafe fn join_unpushed<A, B, RA, RB>(a: A, job: &Latent<B, RB>) -> (RA, RB)
where
    A: FnOnce() -> RA,
    B: FnOnce() -> RB + Send,
    RB: Send,
{
    // SAFETY: by the caller's promise.
    let (b, site) = (unsafe { job.take_closure() }, job.head.site);
    if !is_measured() {
        return (a(), b());
    }
    let (mut a, mut ra, mut b, mut rb) = (Some(a), None, Some(b), None);
    // One function for all types of halves: most programs measure nothing.
    measured::join(&mut || ra = a.take().map(|a| a()), &mut || rb = b.take().map(|b| b()), site);
    match (ra, rb) {
        (Some(ra), Some(rb)) => (ra, rb),
        _ => heist_core::throw!("join: a half of a fork that was measured did not run"),
    }
}

/// Runs both halves of a goroutine that is measured.
pub(super) fn join_measured(
    a: impl FnOnce(),
    b: impl FnOnce() + Send,
    site: &'static Location<'static>,
) {
    let job = Latent::new(b, site);
    // SAFETY: the job stays here until it was popped or has ended: see `Fork`.
    let Some(deque) = (unsafe { forks::push_measured(&job.head) }) else {
        // SAFETY: nobody else knows the job.
        let b = unsafe { job.take_closure() };
        a();
        return b();
    };
    let fork = Fork { deque, job: &job };
    a();
    fork.finish();
}

/// A latent job.
#[repr(C)]
struct Latent<F, R> {
    head: Job,
    f: UnsafeCell<ManuallyDrop<F>>,
    outcome: UnsafeCell<MaybeUninit<Outcome<R>>>,
}

/// How a job that was taken has ended.
enum Outcome<R> {
    Returned(R),
    /// Its closure unwound: it panicked, or the goroutine ends.
    Unwound(Box<dyn Any + Send>),
    /// Its goroutine ended without having run it: it was cancelled, or there was no stack.
    Unrun,
}

impl<F: FnOnce() -> R, R> Latent<F, R> {
    #[inline(always)]
    fn new(f: F, site: &'static Location<'static>) -> Self {
        Self {
            head: Job { vtable: &Code::<F, R>::VTABLE, site, word: JobWord::new() },
            f: UnsafeCell::new(ManuallyDrop::new(f)),
            outcome: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// Moves the closure out.
    ///
    /// # Safety
    /// The job is the caller's, who popped it or took it, and the closure was not moved out yet.
    #[inline(always)]
    unsafe fn take_closure(&self) -> F {
        // SAFETY: by the caller's promise.
        unsafe { ManuallyDrop::take(&mut *self.f.get()) }
    }
}

/// A job that was pushed. Dropping it, which happens when the first half unwinds, ends the job.
struct Fork<'a, F: FnOnce() -> R, R> {
    deque: &'static Deque,
    job: &'a Latent<F, R>,
}

impl<F: FnOnce() -> R, R> Fork<'_, F, R> {
    /// Returns the result of the second half, after the first one has returned.
    #[inline(always)]
    fn finish(self) -> R {
        let fork = ManuallyDrop::new(self);
        // SAFETY: it is the deque of the calling goroutine.
        if unsafe { fork.deque.pop(&fork.job.head) } {
            // SAFETY: it was popped.
            return unsafe { fork.job.take_closure() }();
        }
        fork.finish_taken()
    }

    #[cold]
    #[inline(never)]
    fn finish_taken(&self) -> R {
        match self.await_taken() {
            Outcome::Returned(result) => result,
            Outcome::Unrun => {
                // SAFETY: it came back as it was taken.
                let b = unsafe { self.job.take_closure() };
                // It was cancelled because the caller is, or because the runtime shuts down.
                drop(current::enter().map(cancel::check));
                b()
            }
            Outcome::Unwound(payload) => match payload.downcast::<Ending>() {
                // The half was cancelled, or ended its goroutine: this one is the same to the user.
                Ok(ending) => cancel::unwind(ending.disarm()),
                Err(payload) => resume_unwind(payload),
            },
        }
    }

    /// Waits until the job, which a thief took, has ended.
    fn await_taken(&self) -> Outcome<R> {
        let head = &self.job.head;
        let taken = Taken { job: NonNull::from(head), deque: self.deque };
        await_end(&taken);
        // SAFETY: it has ended, so the outcome was written, and nobody else uses it any more.
        unsafe { (*self.job.outcome.get()).assume_init_read() }
    }
}

impl<F: FnOnce() -> R, R> Drop for Fork<'_, F, R> {
    #[cold]
    fn drop(&mut self) {
        // SAFETY: as in `finish`.
        if unsafe { self.deque.pop(&self.job.head) } {
            // SAFETY: it was popped.
            return drop(unsafe { self.job.take_closure() });
        }
        match self.await_taken() {
            // SAFETY: it came back as it was taken.
            Outcome::Unrun => drop(unsafe { self.job.take_closure() }),
            Outcome::Returned(result) => drop(result),
            // The panic of the first half wins.
            Outcome::Unwound(payload) => drop(payload),
        }
    }
}

/// Waits until a job of the calling goroutine that a thief has taken has ended, and releases the
/// goroutine that it was.
fn await_end(taken: &Taken) {
    // SAFETY: the job is in the caller's frame.
    let word = &unsafe { taken.job.as_ref() }.word;
    let mut passed_on = false;
    while !word.is_finished() {
        let Some(rt) = current::enter() else {
            heist_core::throw!("join: the forker is no goroutine");
        };
        let me = rt.goroutine();
        let ends = me.flags.has(Flag::CANCELLED | Flag::EXITING);
        if ends && !passed_on && !me.flags.has(Flag::UNCANCELLABLE) {
            passed_on = true;
            if let Some(record) = word.cancel() {
                // SAFETY: the caller owns the handle, so the record is not recycled.
                cancel::cancel(Some(&rt), unsafe { &*(record.get() as *const G) });
            }
        }
        let terms = Terms::new(WaitReason::Fork);
        let terms = if passed_on { terms.shielded() } else { terms };
        // However the wait ended, the word is checked again.
        drop(wait_for_fork(rt, taken, terms));
    }
    let Some(record) = word.taker().and_then(|record| NonNull::new(record.get() as *mut G)) else {
        heist_core::throw!("join: a half has ended that nobody took");
    };
    // SAFETY: the goroutine returns nothing, and this is its only handle.
    drop(unsafe { JoinHandle::<()>::new(record, None) });
}

/// The code of a goroutine that a job with this closure has become.
struct Code<F, R>(PhantomData<(F, R)>);

impl<F: FnOnce() -> R, R> Code<F, R> {
    const VTABLE: Vtable = Vtable {
        is_half: true,
        run: Self::run,
        drop_closure: Self::come_back,
        drop_result: Self::drop_nothing,
    };

    unsafe fn run(gp: &G) {
        // SAFETY: called once, on a record that holds a job with this closure.
        let taken = unsafe { payload::take::<Taken>(gp) };
        let job = taken.job.cast::<Latent<F, R>>();
        // SAFETY: the job was taken, and its forker waits until it has ended.
        let f = unsafe { job.as_ref().take_closure() };
        let began_ns = clock::now_ns();
        let needed = bytes_of_stack(taken.job.addr().get());
        let result = catch_unwind(AssertUnwindSafe(|| {
            // A forker on a larger stack may have recursed further than this stack allows.
            if needed > bytes_of_stack(std::ptr::from_ref(&taken).addr()) {
                with_stack_if_possible(needed, f)
            } else {
                f()
            }
        }));
        let outcome = result.map_or_else(Outcome::Unwound, Outcome::Returned);
        forks::half_lasted(gp, clock::now_ns().saturating_sub(began_ns));
        // SAFETY: as above.
        unsafe { end::<F, R>(taken, outcome) };
    }

    unsafe fn come_back(gp: &G) {
        // SAFETY: called once instead of `run`; the forker waits.
        unsafe { end::<F, R>(payload::take::<Taken>(gp), Outcome::Unrun) };
    }

    unsafe fn drop_nothing(_: &G) {}
}

/// How large the stack is that an address is in.
fn bytes_of_stack(address: usize) -> usize {
    slabs::stack_around(address).map_or(0, |stack| stack.len())
}

/// Ends a job: hands over the outcome and wakes the forker if it waits.
///
/// # Safety
/// The caller took the job, and ends it once.
unsafe fn end<F, R>(taken: Taken, outcome: Outcome<R>) {
    let job = taken.job.cast::<Latent<F, R>>();
    // SAFETY: the forker does not use the place before the job has ended.
    unsafe { (*job.as_ref().outcome.get()).write(outcome) };
    // The deque is the forker's until the job has ended.
    let forker = NonNull::from(taken.deque.owner());
    // SAFETY: the forker waits until the job has ended. It may be gone after that.
    let Some(ticket) = (unsafe { taken.job.as_ref() }).word.finish() else { return };
    let rt = current::enter();
    // SAFETY: the forker waits for this, and is woken once. If it was woken before, the wait that
    // the ticket names is over, and the claim fails.
    unsafe { Waiter::Goroutine(forker, ticket).wake(rt.as_ref()) };
}
