//! One event of the scheduler, as a thread writes it into its buffer.
//!
//! ```text
//!  63                          16 15      8 7       0   63     48 47                       0
//! +------------------------------+---------+---------+ +---------+--------------------------+
//! | time in ticks, low 48 bits   | detail  | kind    | | number  | subject                  |
//! +------------------------------+---------+---------+ +---------+--------------------------+
//! ```
//!
//! The subject is a goroutine, a P or an M, or a value that the kind explains. Two stores make a
//! record, and no other thread writes to the same buffer.
//!
//! # Order
//! The records of one buffer are in the order of their events. Across buffers the clock is not
//! exact, so records carry numbers that are:
//! - a goroutine has a number that grows by one when it begins to run and when it begins to wait.
//!   A record that changes the state of a goroutine has the low 16 bits of the number after the
//!   change. The record that ends a wait has the number of that wait.
//! - a P has a number that grows by one with each change of its holder, and `ProcStart`,
//!   `ProcStop` and `ProcTake` have its low 16 bits.

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $value:literal,)+) => {
        /// What happened. "This M" and "this goroutine" are the writer of the buffer and the
        /// goroutine that it runs.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Kind { $($(#[$doc])* $name = $value,)+ }

        impl Kind {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// The kind with this number.
            #[must_use]
            pub const fn from_u8(value: u8) -> Option<Self> {
                match value { $($value => Some(Self::$name),)+ _ => None }
            }

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ }
            }
        }
    };
}

kinds! {
    /// This goroutine, or a thread outside the runtime, made the goroutine `subject`. It is
    /// runnable, or it is unborn and waits for the clock (detail 1), or runnable and polls a future
    /// (detail 2). A `Site` record follows.
    GoCreate = 1,
    /// Belongs to the record before it: where the goroutine was spawned. In a buffer the subject is
    /// the address of a `Location`; in a file it is the number of a site. The detail is the
    /// class: 0 normal, 1 latency, 2 idle.
    Site = 2,
    /// Belongs to the `GoCreate` before it: the name of the goroutine, the number of a string.
    Name = 3,
    /// This M runs the goroutine `subject`. The detail says where it was found: see [`Found`].
    GoStart = 4,
    /// The goroutine that ran here is runnable again and left its thread: see [`Stop`].
    GoStop = 5,
    /// The goroutine that ran here is runnable, and waits for a P together with its thread: see
    /// [`Freeze`]. `GoStart` on the same M ends this.
    GoFreeze = 6,
    /// The goroutine that ran here waits. The detail is the wait reason. If the wait is refused,
    /// a `GoUnblock` with [`Wake::Refused`] and a `GoStart` follow at once.
    GoBlock = 7,
    /// The wait of the goroutine `subject` ended, and the goroutine is runnable: see [`Wake`]. The
    /// goroutine that runs here, if any, is the waker.
    GoUnblock = 8,
    /// The goroutine that ran here ended: see [`End`].
    GoEnd = 9,
    /// This M holds the P `subject` now.
    ProcStart = 10,
    /// This M gave up the P `subject`.
    ProcStop = 11,
    /// This thread took the P `subject` from an M, which does not know yet. A `Victim` follows.
    /// The detail says why: see [`Take`].
    ProcTake = 12,
    /// Belongs to the record before it: the M that it is about.
    Victim = 13,
    /// This M took goroutines from the queue of the P `subject`; `number` says how many. The
    /// detail is 1 if it was the `run_next` of that P.
    Steal = 14,
    /// This M goes to sleep.
    MPark = 15,
    /// This M woke up.
    MUnpark = 16,
    /// This M begins to search for work.
    SpinStart = 17,
    /// This M ends its search.
    SpinStop = 18,
    /// The goroutine that runs here begins a blocking call: see [`Call`].
    CallStart = 19,
    /// The blocking call of the goroutine that runs here is over. The detail is 1 if its M lost its
    /// P meanwhile.
    CallStop = 20,
    /// The M `subject` was asked to let another goroutine run.
    PreemptAsk = 21,
    /// The thread of the M `subject` was interrupted by a signal for that.
    PreemptForce = 22,
    /// This thread asked the poller; `subject` is how many goroutines it woke. The detail is 1 if
    /// the thread waited.
    Poll = 23,
    /// This thread ran timers; `subject` is how many goroutines they woke.
    Timers = 24,
    /// The world begins to stop. The detail is the cause: 0 procs, 1 trace, 2 other.
    WorldStop = 25,
    /// The world runs again.
    WorldStart = 26,
    /// There are `subject` Ps now.
    Procs = 27,
    /// A user task begins. The subject is its number; an `Arg` with the number of its type's
    /// string follows, and an `Arg` with the number of its parent, or 0.
    TaskStart = 28,
    /// A user task ends.
    TaskStop = 29,
    /// This goroutine enters a region. The subject is a string; an `Arg` with the task follows.
    RegionStart = 30,
    /// This goroutine leaves a region.
    RegionStop = 31,
    /// This goroutine logs a message. The subject is the string of the message; an `Arg` with the
    /// category's string and an `Arg` with the task follow.
    Log = 32,
    /// Belongs to the record before it: a further value.
    Arg = 33,
    /// A sample of the CPU: the goroutine that runs here; the subject is a stack.
    Sample = 34,
    /// Belongs to the record before it: a stack. In a file it is the number of a stack.
    Stack = 35,
    /// Lengths of queues: `subject` is that of the queue of this M's P, `number` that of the
    /// global queue, at most 65535.
    Queues = 36,
    /// The goroutine `subject` ran or blocked for too long: a hog (0) or an unannounced blocking
    /// call (1). An `Arg` with the nanoseconds follows.
    Stuck = 37,
    /// The goroutine `subject`, which is unborn, ended without having run. The number is that of
    /// its wait.
    GoDrop = 38,
    /// In buffers only: bytes of the text of the record before it, whose subject is the length of
    /// the text. In a file that subject is the number of the string instead.
    Text = 39,
    /// This thread woke an M and handed it the P `subject`, which was idle or this M's. The M
    /// starts with it when the kernel lets it run.
    ProcHand = 40,
}

macro_rules! details {
    ($($(#[$enum_doc:meta])* $enum:ident { $($(#[$doc:meta])* $name:ident = $value:literal,)+ })+) => {
        $(
            $(#[$enum_doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
            #[repr(u8)]
            pub enum $enum { $($(#[$doc])* $name = $value,)+ }

            impl $enum {
                /// The value with this number.
                #[must_use]
                pub const fn from_u8(value: u8) -> Option<Self> {
                    match value { $($value => Some(Self::$name),)+ _ => None }
                }
            }
        )+
    };
}

details! {
    /// Where an M found the goroutine that it runs.
    Found {
        /// In its own queue.
        Local = 0,
        /// In the `run_next` of its P.
        Next = 1,
        /// In the global queue.
        Global = 2,
        /// In the queue of another P.
        Stolen = 3,
        /// The goroutine is bound to this M.
        Bound = 4,
        /// The wait was refused, or the goroutine got its P back: it goes on.
        Resumed = 5,
        /// The timers or the poller brought it.
        Outside = 6,
    }
    /// Why a goroutine left its thread although it can run.
    Stop {
        /// It yielded.
        Yield = 0,
        /// It let the goroutine run that it had just woken.
        GiveWay = 1,
        /// It was asked to, because its slice was over.
        Preempted = 2,
    }
    /// Why a goroutine waits for a P together with its thread.
    Freeze {
        /// A signal preempted it.
        Signal = 0,
        /// The world stops.
        World = 1,
        /// It is back from a blocking call, and there is no P.
        NoP = 2,
    }
    /// What ended a wait.
    Wake {
        /// A waker.
        Ready = 0,
        /// Its deadline.
        TimedOut = 1,
        /// A cancellation.
        Cancelled = 2,
        /// The poller.
        Network = 3,
        /// The wait was refused.
        Refused = 4,
    }
    /// How a goroutine ended.
    End {
        /// It returned.
        Returned = 0,
        /// It panicked.
        Panicked = 1,
        /// It was cancelled.
        Cancelled = 2,
        /// It called `exit_current`.
        Exited = 3,
        /// It overflowed its stack and was abandoned.
        Overflowed = 4,
        /// There was no memory for its stack.
        NoStack = 5,
    }
    /// Why a P was taken from an M.
    Take {
        /// The M is in an announced blocking call.
        Announced = 0,
        /// The M is in a blocking call that was not announced.
        Unannounced = 1,
        /// The world stops.
        World = 2,
    }
    /// A blocking call.
    Call {
        /// It was announced.
        Announced = 0,
        /// It was predicted: the M gave its P away beforehand.
        Predicted = 1,
        /// It was not announced, and detected only now; the time is when it was detected.
        Unannounced = 2,
    }
}

/// The low bits of a time that a record holds.
pub const TIME_MASK: u64 = (1 << 48) - 1;
/// The bits of a subject.
pub const SUBJECT_MASK: u64 = (1 << 48) - 1;

/// How many bytes of text a record of kind `Text` holds.
pub const TEXT_BYTES: usize = 14;

/// One event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Record {
    head: u64,
    body: u64,
}

impl Record {
    /// An event at `ticks`.
    #[inline]
    #[must_use]
    pub const fn new(ticks: u64, kind: Kind, detail: u8, subject: u64, number: u16) -> Self {
        Self {
            head: ticks << 16 | (detail as u64) << 8 | kind as u64,
            body: (number as u64) << 48 | subject & SUBJECT_MASK,
        }
    }

    /// What happened, or None if this build does not know the kind.
    #[must_use]
    pub const fn kind(self) -> Option<Kind> {
        Kind::from_u8(self.head as u8)
    }

    /// The detail, which the kind explains.
    #[must_use]
    pub const fn detail(self) -> u8 {
        (self.head >> 8) as u8
    }

    /// The low 48 bits of its time.
    #[must_use]
    pub const fn ticks(self) -> u64 {
        self.head >> 16
    }

    /// Its full time, if the record before it has the time `last`. Clocks of two processors differ
    /// a little, so it can be earlier.
    #[inline]
    #[must_use]
    pub const fn full_time(self, last: u64) -> u64 {
        let step = (self.ticks().wrapping_sub(last) & TIME_MASK) << 16;
        last.wrapping_add((step as i64 >> 16) as u64)
    }

    /// The subject, which the kind explains.
    #[must_use]
    pub const fn subject(self) -> u64 {
        self.body & SUBJECT_MASK
    }

    /// The number, which the kind explains.
    #[must_use]
    pub const fn number(self) -> u16 {
        (self.body >> 48) as u16
    }

    /// A record of kind `Text`: its second byte is the number of bytes, which follow.
    #[must_use]
    pub fn text(piece: &[u8]) -> Self {
        let mut bytes = [0; 16];
        let len = piece.len().min(TEXT_BYTES);
        bytes[0] = Kind::Text as u8;
        bytes[1] = len as u8;
        bytes[2..2 + len].copy_from_slice(&piece[..len]);
        let (head, body) = (u128::from_le_bytes(bytes) as u64, u128::from_le_bytes(bytes) >> 64);
        Self { head, body: body as u64 }
    }

    /// The bytes of a record of kind `Text`.
    #[must_use]
    pub fn text_bytes(self) -> ([u8; TEXT_BYTES], usize) {
        let word = u128::from(self.body) << 64 | u128::from(self.head);
        let bytes = word.to_le_bytes();
        let mut piece = [0; TEXT_BYTES];
        piece.copy_from_slice(&bytes[2..]);
        (piece, usize::from(self.detail()).min(TEXT_BYTES))
    }

    /// The same event with another subject: a file has numbers of strings where a buffer has
    /// addresses.
    #[must_use]
    pub const fn with_subject(self, subject: u64) -> Self {
        Self { head: self.head, body: self.body & !SUBJECT_MASK | subject & SUBJECT_MASK }
    }
}

/// The writer of a buffer, and its state when the buffer began: a reader that has no earlier
/// buffer of the same writer knows its state from this.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// The number of the M plus one; 0 for all threads that are no M (sysmon, threads of the user),
    /// which share a buffer and take a lock for it.
    pub writer: u32,
    /// Counts the buffers of this writer, from 0. A gap is a dropped buffer.
    pub sequence: u32,
    /// The full time in ticks at which the buffer began.
    pub ticks: u64,
    /// The P it held plus one, or 0.
    pub p: u32,
    /// The number of that P.
    pub p_number: u16,
    /// The goroutine that it ran, or 0.
    pub goroutine: u64,
    /// The number of that goroutine.
    pub goroutine_number: u16,
    /// The goroutine was in a blocking call.
    pub in_call: bool,
    /// The M was searching for work.
    pub spinning: bool,
    /// How many records of this writer were dropped just before this buffer.
    pub dropped: u64,
}

#[test]
fn a_record_keeps_its_parts() {
    let record = Record::new(u64::MAX - 5, Kind::Stuck, 255, SUBJECT_MASK - 1, u16::MAX - 2);
    assert_eq!(record.kind(), Some(Kind::Stuck));
    assert_eq!(record.detail(), 255);
    assert_eq!(record.ticks(), TIME_MASK - 5);
    assert_eq!(record.subject(), SUBJECT_MASK - 1);
    assert_eq!(record.number(), u16::MAX - 2);
    assert_eq!(record.with_subject(7).subject(), 7);
    assert_eq!(record.with_subject(7).number(), u16::MAX - 2);
}

#[test]
fn a_record_of_text_keeps_its_bytes() {
    for text in ["", "a", "fourteen bytes"] {
        let (bytes, len) = Record::text(text.as_bytes()).text_bytes();
        assert_eq!(&bytes[..len], text.as_bytes());
        assert_eq!(Record::text(text.as_bytes()).kind(), Some(Kind::Text));
    }
}

#[test]
fn kinds_have_distinct_numbers() {
    for &kind in Kind::ALL {
        assert_eq!(Kind::from_u8(kind as u8), Some(kind));
    }
    assert_eq!(Kind::from_u8(0), None);
}
