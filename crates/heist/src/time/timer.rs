//! `Timer`: a channel that gets a message at a moment that can be changed.

use crate::chan::{self, Alarm, Receiver};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A channel that gets one message, the time at which it was due, when a duration is over.
///
/// It can be stopped and set again. Its channel has no buffer: a message is made when it is
/// received. So once [`stop`](Self::stop) or [`reset`](Self::reset) has returned, no message of the
/// old setting can be received, and a timer without waiters costs nothing.
///
/// # Examples
/// ```
/// use heist::{chan, select, time::Timer};
/// use std::time::Duration;
///
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// let (tx, rx) = chan::unbounded::<u32>();
/// let idle = Timer::new(Duration::from_millis(5));
/// tx.send(1).unwrap();
/// loop {
///     select! {
///         recv(rx) -> message => {
///             assert_eq!(message, Ok(1));
///             idle.reset(Duration::from_millis(5));
///         }
///         recv(idle.receiver()) -> _ => break,
///     }
/// }
/// # });
/// ```
pub struct Timer {
    alarm: Arc<Alarm>,
    receiver: Receiver<Instant>,
}

impl Timer {
    /// A timer that is due when `duration` is over.
    #[must_use]
    #[doc(alias = "NewTimer")]
    pub fn new(duration: Duration) -> Self {
        let alarm = Alarm::new(duration, Duration::ZERO);
        Self { receiver: chan::alarm_receiver(Arc::clone(&alarm)), alarm }
    }

    /// A timer that is due at `moment`.
    ///
    /// # Examples
    /// ```
    /// use heist::time::Timer;
    /// use std::time::{Duration, Instant};
    /// let soon = Instant::now() + Duration::from_millis(1);
    /// let timer = Timer::at(soon);
    /// assert_eq!(timer.receiver().recv(), Ok(soon));
    /// timer.reset_at(soon + Duration::from_millis(1));
    /// assert_eq!(timer.receiver().recv(), Ok(soon + Duration::from_millis(1)));
    /// ```
    #[must_use]
    pub fn at(moment: Instant) -> Self {
        let alarm = Alarm::at(moment);
        Self { receiver: chan::alarm_receiver(Arc::clone(&alarm)), alarm }
    }

    /// Its channel.
    #[must_use]
    pub const fn receiver(&self) -> &Receiver<Instant> {
        &self.receiver
    }

    /// Makes it due when `duration` is over, counted from now. True if it was set before and its
    /// message had not been received.
    ///
    /// # Examples
    /// ```
    /// use heist::time::Timer;
    /// use std::time::{Duration, Instant};
    /// let (start, timer) = (Instant::now(), Timer::new(Duration::from_secs(3600)));
    /// assert!(timer.reset(Duration::from_millis(1)));
    /// assert!(timer.receiver().recv().unwrap() >= start + Duration::from_millis(1));
    /// assert!(!timer.reset(Duration::from_millis(1)));
    /// ```
    pub fn reset(&self, duration: Duration) -> bool {
        self.alarm.set(Some(duration), Duration::ZERO)
    }

    /// Makes it due at `moment`. True if it was set before and its message had not been received.
    pub fn reset_at(&self, moment: Instant) -> bool {
        self.alarm.set_at(moment)
    }

    /// Stops it: it is never due. True if it was set before and its message had not been received.
    ///
    /// # Examples
    /// ```
    /// use heist::time::Timer;
    /// use std::time::Duration;
    /// let timer = Timer::new(Duration::ZERO);
    /// assert!(timer.stop());
    /// assert!(timer.receiver().try_recv().is_err());
    /// assert!(!timer.stop());
    /// ```
    pub fn stop(&self) -> bool {
        self.alarm.set(None, Duration::ZERO)
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Timer { .. }")
    }
}
