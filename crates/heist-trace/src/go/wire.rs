//! The bytes of Go's trace format: batches of events, tables of strings and stacks.
//!
//! A trace is a row of generations. Each has its own tables and can be read without the others, so
//! a reader holds one in memory. Strings and stacks keep their numbers through all generations; the
//! tables of a generation have those that its events name.
//!
//! GO: internal/trace/tracev2/events.go, internal/trace/generation.go.

use crate::model::{Map, Timeline};
use std::collections::{BTreeSet, HashMap};
use std::io::{self, Write};
use std::rc::Rc;

/// Kinds of Go's events that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Ev {
    EventBatch = 1,
    Stacks = 2,
    Stack = 3,
    Strings = 4,
    String = 5,
    Frequency = 8,
    ProcsChange = 9,
    ProcStart = 10,
    ProcStop = 11,
    ProcSteal = 12,
    ProcStatus = 13,
    GoCreate = 14,
    GoStart = 16,
    GoDestroy = 17,
    GoStop = 19,
    GoBlock = 20,
    GoUnblock = 21,
    GoSyscallBegin = 22,
    GoSyscallEnd = 23,
    GoSyscallEndBlocked = 24,
    StwBegin = 26,
    StwEnd = 27,
    UserTaskBegin = 40,
    UserTaskEnd = 41,
    UserRegionBegin = 42,
    UserRegionEnd = 43,
    UserLog = 44,
    GoCreateBlocked = 47,
    GoStatusStack = 48,
    Sync = 50,
    ClockSnapshot = 51,
}

impl Ev {
    /// Which of its arguments are numbers of stacks, and which of strings.
    const fn names(self) -> (&'static [usize], &'static [usize]) {
        match self {
            Self::GoCreate | Self::GoCreateBlocked => (&[1, 2], &[]),
            Self::GoStop | Self::GoBlock => (&[1], &[0]),
            Self::GoUnblock => (&[2], &[]),
            Self::GoSyscallBegin | Self::ProcsChange | Self::UserTaskEnd => (&[1], &[]),
            Self::StwBegin => (&[1], &[0]),
            Self::UserTaskBegin => (&[3], &[2]),
            Self::UserRegionBegin | Self::UserRegionEnd => (&[2], &[1]),
            Self::UserLog => (&[3], &[1, 2]),
            Self::GoStatusStack => (&[3], &[]),
            _ => (&[], &[]),
        }
    }
}

/// Readers of Go 1.25 and later know this version.
const HEADER: &[u8; 16] = b"go 1.25 trace\0\0\0";
/// A generation ends when it has so many events, however short it is.
const GENERATION_EVENTS: u64 = 4 << 20;
/// Go refuses batches above 64 KiB.
const BATCH: usize = 60 << 10;
/// Go refuses longer strings.
const MAX_STRING: usize = 1 << 10;
/// The thread of batches that belong to none.
const NO_THREAD: u64 = u64::MAX;

fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The batch of a thread that is being filled.
#[derive(Debug, Default)]
struct Batch {
    start: u64,
    last: u64,
    bytes: Vec<u8>,
}

/// The generation that is being written.
#[derive(Debug)]
struct Generation {
    number: u64,
    start: u64,
    n_events: u64,
    stacks: BTreeSet<u64>,
    strings: BTreeSet<u64>,
}

impl Generation {
    fn new(number: u64, start: u64) -> Self {
        let (stacks, strings) = (BTreeSet::new(), BTreeSet::new());
        Self { number, start, n_events: 0, stacks, strings }
    }
}

/// Writes a trace of Go.
#[derive(Debug)]
pub(super) struct Wire<W: Write> {
    out: W,
    timeline: Timeline,
    /// How long a generation is.
    generation_ns: u64,
    generation: Generation,
    batches: Map<u64, Batch>,
    strings: HashMap<Rc<str>, u64>,
    texts: Vec<Rc<str>>,
    stacks: HashMap<Rc<[Frame]>, u64>,
    frames: Vec<Rc<[Frame]>>,
    /// The time of the last event. All events have different times, so a reader that sorts by time
    /// sees them in the order in which they were written.
    time: u64,
    pub(super) n_events: u64,
}

/// A call in a stack: a function, a file and a line.
pub(super) type Frame = (String, String, u32);

impl<W: Write> Wire<W> {
    pub(super) fn new(mut out: W, timeline: Timeline, generation_ns: u64) -> io::Result<Self> {
        out.write_all(HEADER)?;
        Ok(Self {
            out,
            timeline,
            generation_ns,
            // Go takes the time 0 for none.
            generation: Generation::new(1, 1),
            batches: Map::default(),
            strings: HashMap::new(),
            texts: Vec::new(),
            stacks: HashMap::new(),
            frames: Vec::new(),
            time: 0,
            n_events: 0,
        })
    }

    /// Events from now on happen at this time or later.
    pub(super) fn set_time(&mut self, ns: u64) {
        self.time = self.time.max(ns);
    }

    /// Writes an event of a thread.
    pub(super) fn event(&mut self, thread: u64, event: Ev, args: &[u64]) -> io::Result<()> {
        self.time += 1;
        self.n_events += 1;
        self.generation.n_events += 1;
        let (stacks, strings) = event.names();
        // 0 is no stack, and the empty string.
        self.generation.stacks.extend(stacks.iter().map(|&at| args[at]).filter(|&id| id != 0));
        self.generation.strings.extend(strings.iter().map(|&at| args[at]).filter(|&id| id != 0));
        let batch = self.batches.entry(thread).or_default();
        if batch.bytes.is_empty() {
            (batch.start, batch.last) = (self.time, self.time);
        }
        batch.bytes.push(event as u8);
        put(&mut batch.bytes, self.time - batch.last);
        for &arg in args {
            put(&mut batch.bytes, arg);
        }
        batch.last = self.time;
        if batch.bytes.len() >= BATCH {
            let (start, bytes) = (batch.start, std::mem::take(&mut batch.bytes));
            self.batch(thread, start, &bytes)?;
        }
        Ok(())
    }

    fn batch(&mut self, thread: u64, start: u64, bytes: &[u8]) -> io::Result<()> {
        let mut head = vec![Ev::EventBatch as u8];
        for value in [self.generation.number, thread, start, bytes.len() as u64] {
            put(&mut head, value);
        }
        self.out.write_all(&head)?;
        self.out.write_all(bytes)
    }

    /// The number of a string.
    pub(super) fn string(&mut self, text: &str) -> u64 {
        if text.is_empty() {
            return 0;
        }
        if let Some(&id) = self.strings.get(text) {
            return id;
        }
        let text: Rc<str> = text.into();
        self.texts.push(text.clone());
        let id = self.texts.len() as u64;
        self.strings.insert(text, id);
        id
    }

    /// The number of a stack, the innermost call first.
    pub(super) fn stack(&mut self, frames: Vec<Frame>) -> u64 {
        if frames.is_empty() {
            return 0;
        }
        let frames: Rc<[Frame]> = frames.into();
        let next = self.frames.len() as u64 + 1;
        let number = *self.stacks.entry(frames.clone()).or_insert(next);
        if number == next {
            self.frames.push(frames);
        }
        number
    }

    /// The calls of a stack.
    pub(super) fn frames(&self, stack: u64) -> Vec<Frame> {
        let at = (stack as usize).checked_sub(1);
        at.and_then(|at| self.frames.get(at)).map_or(Vec::new(), |frames| frames.to_vec())
    }

    /// The first generation is over: see [`next_generation`](Self::next_generation).
    pub(super) const fn is_first_over(&self) -> bool {
        self.generation.number > 1
    }

    /// Whether the generation is long enough. What the next one has to repeat is not the larger
    /// part of it.
    pub(super) const fn is_generation_full(&self, n_repeated: usize) -> bool {
        let Generation { start, n_events, .. } = self.generation;
        let is_long =
            self.time.saturating_sub(start) > self.generation_ns || n_events >= GENERATION_EVENTS;
        is_long && n_events >= 4 * n_repeated as u64
    }

    /// Completes a generation and begins the next.
    pub(super) fn next_generation(&mut self) -> io::Result<()> {
        self.end_generation()?;
        self.generation = Generation::new(self.generation.number + 1, self.time + 1);
        Ok(())
    }

    /// Writes what is left.
    pub(super) fn finish(mut self) -> io::Result<(W, u64)> {
        self.end_generation()?;
        self.out.flush()?;
        Ok((self.out, self.n_events))
    }

    /// Writes the batches, the tables and the clocks.
    fn end_generation(&mut self) -> io::Result<()> {
        let mut batches: Vec<_> = std::mem::take(&mut self.batches).into_iter().collect();
        batches.sort_unstable_by_key(|&(thread, _)| thread);
        for (thread, batch) in batches {
            if !batch.bytes.is_empty() {
                self.batch(thread, batch.start, &batch.bytes)?;
            }
        }
        self.write_stacks()?;
        self.write_strings()?;
        let mut sync = vec![Ev::Sync as u8, Ev::Frequency as u8];
        put(&mut sync, 1_000_000_000);
        sync.push(Ev::ClockSnapshot as u8);
        let start = self.generation.start;
        // The time of the snapshot is a step from that of the batch.
        let monotonic = self.timeline.start_monotonic_ns.saturating_add(start);
        let unix = self.timeline.start_unix_ns.saturating_add(start);
        for value in [0, monotonic, unix / 1_000_000_000, unix % 1_000_000_000] {
            put(&mut sync, value);
        }
        self.batch(NO_THREAD, start, &sync)
    }

    fn write_stacks(&mut self) -> io::Result<()> {
        // A frame is known by its address, so each gets one.
        let mut addresses: HashMap<Frame, u64> = HashMap::new();
        let mut bytes = vec![Ev::Stacks as u8];
        for stack in std::mem::take(&mut self.generation.stacks) {
            let frames = self.frames(stack);
            let mut entry = vec![Ev::Stack as u8];
            put(&mut entry, stack);
            put(&mut entry, frames.len().min(128) as u64);
            for frame in frames.into_iter().take(128) {
                let (function, file) = (self.string(&frame.0), self.string(&frame.1));
                self.generation.strings.extend([function, file].into_iter().filter(|&id| id != 0));
                let line = frame.2.into();
                let next = 0x1000 + addresses.len() as u64;
                let address = *addresses.entry(frame).or_insert(next);
                for value in [address, function, file, line] {
                    put(&mut entry, value);
                }
            }
            self.table(&mut bytes, &entry, Ev::Stacks)?;
        }
        self.batch(NO_THREAD, self.generation.start, &bytes)
    }

    fn write_strings(&mut self) -> io::Result<()> {
        let mut bytes = vec![Ev::Strings as u8];
        for id in std::mem::take(&mut self.generation.strings) {
            let text = self.texts[id as usize - 1].clone();
            let text = &text[..text.floor_char_boundary(MAX_STRING)];
            let mut entry = vec![Ev::String as u8];
            put(&mut entry, id);
            put(&mut entry, text.len() as u64);
            entry.extend_from_slice(text.as_bytes());
            self.table(&mut bytes, &entry, Ev::Strings)?;
        }
        self.batch(NO_THREAD, self.generation.start, &bytes)
    }

    /// Adds an entry to a table, whose batch is written when it is full.
    fn table(&mut self, bytes: &mut Vec<u8>, entry: &[u8], kind: Ev) -> io::Result<()> {
        if bytes.len() + entry.len() > BATCH {
            self.batch(NO_THREAD, self.generation.start, bytes)?;
            bytes.clear();
            bytes.push(kind as u8);
        }
        bytes.extend_from_slice(entry);
        Ok(())
    }
}
