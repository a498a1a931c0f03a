//! `Ticker`: a channel that gets a message at regular times.

use crate::chan::{self, Alarm, Receiver};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A channel that gets a message, the time at which it was due, every period.
///
/// Of the ticks that were not received in time, the first is kept and the others are dropped; the
/// rhythm is kept. Like a [`Timer`](super::Timer) it has no stale message after a change, and costs
/// nothing while no receiver waits.
///
/// # Examples
/// ```
/// use heist::time::Ticker;
/// use std::time::{Duration, Instant};
///
/// let start = Instant::now();
/// let ticker = Ticker::new(Duration::from_millis(1));
/// for _ in 0..3 {
///     ticker.receiver().recv().unwrap();
/// }
/// assert!(start.elapsed() >= Duration::from_millis(3));
/// ```
pub struct Ticker {
    alarm: Arc<Alarm>,
    receiver: Receiver<Instant>,
}

impl Ticker {
    /// A ticker whose first tick is due when one period is over.
    ///
    /// # Panics
    /// If the period is zero.
    #[must_use]
    #[doc(alias = "NewTicker")]
    pub fn new(period: Duration) -> Self {
        assert!(!period.is_zero(), "non-positive interval for Ticker::new");
        let alarm = Alarm::new(period, period);
        Self { receiver: chan::alarm_receiver(Arc::clone(&alarm)), alarm }
    }

    /// Its channel.
    #[must_use]
    pub const fn receiver(&self) -> &Receiver<Instant> {
        &self.receiver
    }

    /// Starts again with another period, counted from now.
    ///
    /// # Panics
    /// If the period is zero.
    ///
    /// # Examples
    /// ```
    /// use heist::time::Ticker;
    /// use std::time::Duration;
    /// let ticker = Ticker::new(Duration::from_secs(3600));
    /// ticker.reset(Duration::from_millis(1));
    /// assert!(ticker.receiver().recv().is_ok());
    /// ```
    pub fn reset(&self, period: Duration) {
        assert!(!period.is_zero(), "non-positive interval for Ticker::reset");
        self.alarm.set(Some(period), period);
    }

    /// Stops the ticks until the next [`reset`](Self::reset). The channel is not closed.
    ///
    /// # Examples
    /// ```
    /// use heist::time::Ticker;
    /// use std::time::Duration;
    /// let ticker = Ticker::new(Duration::from_micros(1));
    /// ticker.stop();
    /// assert!(ticker.receiver().try_recv().is_err());
    /// ```
    pub fn stop(&self) {
        self.alarm.set(None, Duration::ZERO);
    }
}

impl fmt::Debug for Ticker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ticker { .. }")
    }
}
