//! Where the buffers of a trace go: into a file, or into a ring of the latest ones.

use super::convert;
use heist_trace::file::{Clock, Drops, Goroutine, Header, Writer};
use heist_trace::record::{Context, Record};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// What a recording has written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Events.
    pub records: u64,
    /// Events that were lost, because no buffer was free.
    pub dropped: u64,
}

pub(super) type Out = Box<dyn Write + Send>;

/// Calls code of the user's writer. Its panic must not end the collector, for which others wait.
pub(super) fn guarded<T>(act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|payload| {
        // It is the user's as well, and may panic when it is dropped.
        std::mem::forget(payload);
        Err(io::Error::other("the writer panicked"))
    })
}

/// Receives the buffers of the generations from `from` up to, but not including, `to`.
pub(super) struct Consumer {
    pub(super) id: u64,
    pub(super) from: u32,
    pub(super) to: u32,
    /// When the collector ends it by itself.
    pub(super) until: Option<Instant>,
    pub(super) sink: Sink,
}

pub(super) enum Sink {
    File(Box<FileSink>),
    Ring(Ring),
}

/// A file that is being written.
pub(super) struct FileSink {
    /// None after an error.
    writer: Option<Writer<Out>>,
    error: Option<io::Error>,
    numbering: Numbering,
}

/// Counts the buffers of each writer from 0, and its lost records.
#[derive(Default)]
struct Numbering {
    first: BTreeMap<u32, u32>,
    dropped: BTreeMap<u32, u64>,
}

impl Numbering {
    fn number(&mut self, context: &Context) -> Context {
        let first = *self.first.entry(context.writer).or_insert(context.sequence);
        if context.dropped != 0 {
            *self.dropped.entry(context.writer).or_default() += context.dropped;
        }
        Context { sequence: context.sequence.wrapping_sub(first), ..*context }
    }
}

impl FileSink {
    pub(super) fn new(out: Out, header: &Header, clock: &Clock) -> io::Result<Self> {
        let mut writer = Writer::new(out, header)?;
        writer.clock(clock)?;
        Ok(Self { writer: Some(writer), error: None, numbering: Numbering::default() })
    }

    /// Uses the writer. After an error, or a panic of the user's `Write`, nothing is written any
    /// more.
    fn with(&mut self, act: impl FnOnce(&mut Writer<Out>) -> io::Result<()>) {
        let Some(writer) = &mut self.writer else { return };
        if let Err(error) = guarded(|| act(writer)) {
            self.error = Some(error);
            let writer = self.writer.take();
            // The first error is the one that is told.
            let _ = guarded(|| {
                drop(writer);
                Ok(())
            });
        }
    }

    fn block(&mut self, context: &Context, records: &[Record]) {
        let context = self.numbering.number(context);
        self.with(|writer| convert::write(writer, &context, records));
    }

    pub(super) fn snapshot(&mut self, ticks: u64, goroutines: &[Goroutine]) {
        self.with(|writer| writer.snapshot(ticks, goroutines));
    }

    /// Notes records of a writer that were lost at the end.
    fn lost(&mut self, writer: u32, n: u64) {
        *self.numbering.dropped.entry(writer).or_default() += n;
    }

    /// Notes the time, and flushes the writer.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let clock = convert::clock();
        self.with(|writer| {
            writer.clock(&clock)?;
            writer.flush()
        });
        match &self.error {
            Some(error) => Err(io::Error::new(error.kind(), error.to_string())),
            None => Ok(()),
        }
    }

    /// Completes the file.
    pub(super) fn finish(mut self) -> io::Result<Summary> {
        let dropped = std::mem::take(&mut self.numbering.dropped);
        let clock = convert::clock();
        self.with(|writer| {
            writer.clock(&clock)?;
            for (&writer_number, &records) in &dropped {
                writer.drops(Drops { writer: writer_number, records })?;
            }
            writer.flush()
        });
        if let Some(error) = self.error {
            return Err(error);
        }
        let mut summary = Summary { records: 0, dropped: dropped.values().sum() };
        if let Some(writer) = self.writer {
            summary.records = writer.n_records();
            guarded(|| writer.finish().map(drop))?;
        }
        Ok(summary)
    }
}

/// A buffer in a ring.
struct Kept {
    context: Context,
    records: Vec<Record>,
    /// When it was full.
    at: Instant,
}

/// The latest buffers of all writers.
pub(super) struct Ring {
    header: Header,
    clock: Clock,
    blocks: VecDeque<Kept>,
    n_bytes: usize,
    bytes_max: usize,
    /// Older buffers are forgotten.
    age_max: Duration,
    /// Where it is written when the process ends because of an error.
    last_file: Option<PathBuf>,
}

impl Ring {
    pub(super) fn new(header: Header, clock: Clock, bytes_max: usize, age_max: Duration) -> Self {
        let blocks = VecDeque::new();
        Self { header, clock, blocks, n_bytes: 0, bytes_max, age_max, last_file: None }
    }

    fn block(&mut self, context: &Context, records: &[Record]) {
        self.n_bytes += size_of_val(records);
        let at = Instant::now();
        self.blocks.push_back(Kept { context: *context, records: records.to_vec(), at });
        while let Some(first) = self.blocks.front()
            && (self.n_bytes > self.bytes_max || at - first.at > self.age_max)
        {
            self.n_bytes -= size_of_val(&first.records[..]);
            self.blocks.pop_front();
        }
    }

    /// Makes it be written to a file when the process ends because of an error.
    pub(super) fn set_last_file(&mut self, path: PathBuf) {
        self.last_file = Some(path);
    }

    /// Writes what is in the ring when the process ends because of an error.
    pub(super) fn dump_at_end(&self, goroutines: &[Goroutine]) -> io::Result<()> {
        let Some(path) = &self.last_file else { return Ok(()) };
        let file = io::BufWriter::new(std::fs::File::create(path)?);
        self.dump(Box::new(file), goroutines).map(drop)
    }

    /// Writes what is in the ring.
    pub(super) fn dump(&self, out: Out, goroutines: &[Goroutine]) -> io::Result<Summary> {
        let mut file = guarded(|| FileSink::new(out, &self.header, &self.clock))?;
        for kept in &self.blocks {
            file.block(&kept.context, &kept.records);
        }
        file.snapshot(convert::clock().ticks, goroutines);
        file.finish()
    }
}

impl Consumer {
    /// Whether the buffers of a generation are for it.
    pub(super) const fn wants(&self, generation: u32) -> bool {
        self.from <= generation && generation < self.to
    }

    pub(super) fn block(&mut self, context: &Context, records: &[Record]) {
        match &mut self.sink {
            Sink::File(file) => file.block(context, records),
            Sink::Ring(ring) => ring.block(context, records),
        }
    }

    pub(super) fn lost(&mut self, writer: u32, n: u64) {
        if let Sink::File(file) = &mut self.sink {
            file.lost(writer, n);
        }
    }
}
