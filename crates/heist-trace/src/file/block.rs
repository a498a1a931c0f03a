//! The events of one buffer in a file.
//!
//! A record is a head byte (six bits of kind, two of detail), the difference of its time to the
//! record before, its subject and its number. A subject that is a goroutine is written as the
//! difference to an earlier one, and its number as the difference to the last number of that
//! goroutine in this block, so that both usually take one byte. A block needs no other block in
//! order to be read.

use super::Error;
use super::varint::{Cursor, put, unzigzag, zigzag};
use crate::record::{Context, Kind, Record, TIME_MASK};

/// A buffer of a writer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// The state of the writer when the buffer began.
    pub context: Context,
    /// The events.
    pub records: Vec<Record>,
}

impl Block {
    /// The events with their full times.
    pub fn events(&self) -> impl Iterator<Item = (u64, Record)> + '_ {
        let mut last = self.context.ticks;
        self.records.iter().map(move |&record| {
            last = record.full_time(last);
            (last, record)
        })
    }
}

/// The two details that fit into the head stand for themselves; this one says that a byte follows.
const LONG_DETAIL: u8 = 3;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Subject {
    /// Any goroutine.
    Goroutine,
    /// The goroutine that runs here.
    Current,
    /// A P with its number.
    Proc,
    /// Something else.
    Value,
}

#[inline]
const fn subject_of(kind: Kind) -> Subject {
    match kind {
        Kind::GoCreate | Kind::GoStart | Kind::GoUnblock | Kind::GoDrop => Subject::Goroutine,
        Kind::GoStop | Kind::GoFreeze | Kind::GoBlock | Kind::GoEnd => Subject::Current,
        Kind::ProcStart | Kind::ProcStop | Kind::ProcTake => Subject::Proc,
        _ => Subject::Value,
    }
}

const SEEN: usize = 256;

/// What both sides remember while they go through a block.
struct Memory {
    time: u64,
    goroutine: u64,
    current: u64,
    proc_number: u16,
    /// Goroutines with their last numbers; each has one place.
    seen: Box<[(u64, u16); SEEN]>,
}

impl Memory {
    fn new(context: &Context) -> Self {
        let mut memory = Self {
            time: context.ticks,
            goroutine: context.goroutine,
            current: context.goroutine,
            proc_number: context.p_number,
            seen: Box::new([(0, 0); SEEN]),
        };
        *memory.number_of(context.goroutine) = context.goroutine_number;
        memory
    }

    #[inline]
    fn number_of(&mut self, goroutine: u64) -> &mut u16 {
        let place = &mut self.seen[goroutine as usize % SEEN];
        if place.0 != goroutine {
            *place = (goroutine, 0);
        }
        &mut place.1
    }

    /// What the subject is compared with.
    #[inline]
    fn base(&self, subject: Subject) -> u64 {
        if subject == Subject::Current { self.current } else { self.goroutine }
    }

    #[inline]
    fn remember(&mut self, kind: Kind, subject: u64) {
        self.goroutine = subject;
        if kind == Kind::GoStart {
            self.current = subject;
        }
    }

    #[inline]
    fn expected(&mut self, subject: Subject, value: u64) -> &mut u16 {
        if subject == Subject::Proc { &mut self.proc_number } else { self.number_of(value) }
    }
}

pub(super) fn encode_context(out: &mut Vec<u8>, context: &Context) {
    put(out, context.writer.into());
    put(out, context.sequence.into());
    put(out, context.ticks);
    put(out, context.p.into());
    put(out, context.p_number.into());
    put(out, context.goroutine);
    put(out, context.goroutine_number.into());
    out.push(u8::from(context.in_call) | u8::from(context.spinning) << 1);
    put(out, context.dropped);
}

fn decode_context(cursor: &mut Cursor<'_>) -> Result<Context, Error> {
    let mut context = Context {
        writer: cursor.small()?,
        sequence: cursor.small()?,
        ticks: cursor.varint()?,
        p: cursor.small()?,
        p_number: cursor.small()?,
        goroutine: cursor.varint()?,
        goroutine_number: cursor.small()?,
        ..Context::default()
    };
    let flags = cursor.byte()?;
    if flags > 3 {
        return Err(cursor.error("an unknown flag of a writer"));
    }
    (context.in_call, context.spinning) = (flags & 1 != 0, flags & 2 != 0);
    context.dropped = cursor.varint()?;
    Ok(context)
}

/// Appends the events. Answers the first record that has no known kind.
pub(super) fn encode(
    out: &mut Vec<u8>,
    context: &Context,
    records: &[Record],
) -> Result<(), Record> {
    encode_context(out, context);
    put(out, records.len() as u64);
    let mut memory = Memory::new(context);
    for &record in records {
        let kind = record.kind().ok_or(record)?;
        let short = record.detail().min(LONG_DETAIL);
        out.push(kind as u8 | short << 6);
        if short == LONG_DETAIL {
            out.push(record.detail());
        }
        // A step back is rare: it takes seven bytes.
        put(out, record.ticks().wrapping_sub(memory.time) & TIME_MASK);
        memory.time = record.full_time(memory.time);
        encode_subject(out, &mut memory, kind, record);
    }
    Ok(())
}

fn encode_subject(out: &mut Vec<u8>, memory: &mut Memory, kind: Kind, record: Record) {
    let (value, number) = (record.subject(), record.number());
    let subject = subject_of(kind);
    match subject {
        Subject::Goroutine | Subject::Current => {
            put(out, zigzag(value.wrapping_sub(memory.base(subject)) as i64));
            memory.remember(kind, value);
        }
        Subject::Proc => put(out, value),
        Subject::Value => {
            put(out, value << 1 | u64::from(number != 0));
            if number != 0 {
                put(out, number.into());
            }
            return;
        }
    }
    let expected = memory.expected(subject, value);
    let step = number.wrapping_sub(*expected) as i16;
    *expected = number;
    put(out, zigzag(step.into()));
}

pub(super) fn decode(cursor: &mut Cursor<'_>) -> Result<Block, Error> {
    let context = decode_context(cursor)?;
    let at = cursor.offset();
    let count = cursor.varint()?;
    // A record has three bytes or more.
    if count > cursor.remaining() as u64 / 3 {
        return Err(Error::new(at, "there are more records than fit into the section"));
    }
    let mut records = Vec::with_capacity(count as usize);
    let mut memory = Memory::new(&context);
    for _ in 0..count {
        let head = cursor.byte()?;
        let Some(kind) = Kind::from_u8(head & 0x3f) else {
            return Err(cursor.error("an unknown kind of event"));
        };
        let short = head >> 6;
        let detail = if short == LONG_DETAIL { cursor.byte()? } else { short };
        let step = cursor.varint()?;
        if step > TIME_MASK {
            return Err(cursor.error("a time has more than 48 bits"));
        }
        memory.time = memory.time.wrapping_add(step);
        let (subject, number) = decode_subject(cursor, &mut memory, kind)?;
        if subject > crate::record::SUBJECT_MASK {
            return Err(cursor.error("a subject has more than 48 bits"));
        }
        records.push(Record::new(memory.time, kind, detail, subject, number));
    }
    Ok(Block { context, records })
}

#[inline]
fn decode_subject(
    cursor: &mut Cursor<'_>,
    memory: &mut Memory,
    kind: Kind,
) -> Result<(u64, u16), Error> {
    let subject = subject_of(kind);
    let value = match subject {
        Subject::Goroutine | Subject::Current => {
            let value = memory.base(subject).wrapping_add(unzigzag(cursor.varint()?) as u64);
            memory.remember(kind, value);
            value
        }
        Subject::Proc => cursor.varint()?,
        Subject::Value => {
            let value = cursor.varint()?;
            let number = if value & 1 != 0 { cursor.small()? } else { 0 };
            return Ok((value >> 1, number));
        }
    };
    let step = unzigzag(cursor.varint()?);
    let expected = memory.expected(subject, value);
    *expected = expected.wrapping_add(step as u16);
    Ok((value, *expected))
}
