//! A token bucket that many goroutines share: a number of calls per second, with short bursts.
//!
//! `cargo run --release -p heist --example rate_limiter`
//!
//! One goroutine fills the bucket; callers wait for a token, and give up when their context is
//! done. Nothing here polls.

use heist::context::{self, Context, ContextError};
use heist::sync::{Semaphore, WaitGroup};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

struct RateLimiter {
    /// A permit is a token; taking one forgets it, filling the bucket gives one back.
    bucket: Arc<Semaphore>,
}

impl RateLimiter {
    /// A limiter with a number of calls per `period`, and a maximum burst. It runs until `ctx` is
    /// done.
    fn new(ctx: &Context, calls: u32, period: Duration) -> Self {
        let bucket = Arc::new(Semaphore::new(calls as usize));
        let (filled, ctx) = (Arc::clone(&bucket), ctx.clone());
        let pause = period / calls;
        heist::go(move || {
            let mut next = Instant::now();
            while ctx.err().is_none() {
                next += pause;
                heist::time::sleep_until(next);
                if filled.available() < filled.size() {
                    filled.release(1);
                }
            }
        });
        Self { bucket }
    }

    /// Waits for a token, at most until the deadline of `ctx`.
    fn take(&self, ctx: &Context) -> Result<(), ContextError> {
        if let Some(error) = ctx.err() {
            return Err(error);
        }
        let token = match ctx.deadline() {
            None => Some(self.bucket.acquire(1)),
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                self.bucket.acquire_timeout(1, left)
            }
        };
        token.map(|token| token.forget()).ok_or(ContextError::DeadlineExceeded)
    }
}

#[heist::main(unsafe)]
fn main() {
    let (ctx, canceller) = context::background().with_timeout(Duration::from_millis(500));
    let _guard = canceller.on_drop();
    let limiter = Arc::new(RateLimiter::new(&ctx, 100, Duration::from_secs(1)));
    let (served, refused) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let start = Instant::now();
    let clients = WaitGroup::new();
    for _ in 0..1000 {
        let (limiter, ctx) = (Arc::clone(&limiter), ctx.clone());
        let (served, refused) = (Arc::clone(&served), Arc::clone(&refused));
        clients.go(move || {
            let outcome = if limiter.take(&ctx).is_ok() { served } else { refused };
            outcome.fetch_add(1, Ordering::Relaxed);
        });
    }
    clients.wait();
    println!(
        "{} of 1000 calls in {:.0?} at 100 a second, after a burst of 100; {} gave up",
        served.load(Ordering::Relaxed),
        start.elapsed(),
        refused.load(Ordering::Relaxed),
    );
}
