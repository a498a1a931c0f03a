//! Reads a file, section by section.

use super::varint::Cursor;
use super::{
    Block, Clock, Drops, Error, Frame, Goroutine, Header, IS_TASK, MAGIC, MAX_SECTION, Site, State,
    TicksClock, VERSION, block, tag,
};
use std::io::{self, Read};

/// A part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Section {
    /// A moment on all clocks.
    Clock(Clock),
    /// A text and its number.
    String(u64, String),
    /// A site and its number.
    Site(u64, Site),
    /// A stack and its number.
    Stack(u64, Vec<Frame>),
    /// Events.
    Block(Block),
    /// What goroutines did at a time in ticks, with the numbers of their sites.
    Snapshot(u64, Vec<(Goroutine, u64)>),
    /// Lost records.
    Drops(Drops),
}

/// How a file ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The reader is not there yet.
    NotReached,
    /// With an end marker.
    Complete,
    /// Without: the last whole section ended at this byte.
    Truncated {
        /// The byte.
        offset: u64,
    },
}

/// Reads a trace. It trusts nothing in the file: damaged input is an [`Error`] with its offset.
#[derive(Debug)]
pub struct Reader<R: Read> {
    input: R,
    header: Header,
    payload: Vec<u8>,
    /// The bytes read so far.
    offset: u64,
    ending: Ending,
    n_blocks: u64,
    n_records: u64,
}

impl<R: Read> Reader<R> {
    /// Reads the beginning of a file.
    ///
    /// # Errors
    /// If `input` is no trace, or one of another version.
    pub fn new(mut input: R) -> Result<Self, Error> {
        let mut magic = Vec::new();
        input
            .by_ref()
            .take(MAGIC.len() as u64)
            .read_to_end(&mut magic)
            .map_err(|e| Error::io(0, e))?;
        if magic != MAGIC {
            return Err(Error::new(0, "this is not a trace of heist"));
        }
        let mut reader = Self {
            input,
            header: Header::default(),
            payload: Vec::new(),
            offset: MAGIC.len() as u64,
            ending: Ending::NotReached,
            n_blocks: 0,
            n_records: 0,
        };
        let at = reader.offset;
        match reader.section()? {
            Some((tag::HEADER, base)) => {
                reader.header = header(&mut Cursor::new(&reader.payload, base))?;
                Ok(reader)
            }
            Some(_) => Err(Error::new(at, "the trace does not begin with a header")),
            None => Err(Error::new(at, "the trace ends before its header")),
        }
    }

    /// What the file says about itself.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// How many bytes were read.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// How the file ended, once [`next`](Self::next) has answered None.
    #[must_use]
    pub fn ending(&self) -> Ending {
        self.ending
    }

    /// The next part, or None at the end. Unknown parts are skipped.
    ///
    /// # Errors
    /// If the file is damaged or cannot be read.
    #[expect(clippy::should_implement_trait, reason = "an iterator would go on after an error")]
    pub fn next(&mut self) -> Result<Option<Section>, Error> {
        while self.ending == Ending::NotReached {
            let Some((tag, base)) = self.section()? else {
                break;
            };
            let mut cursor = Cursor::new(&self.payload, base);
            if tag == tag::END {
                let (n_blocks, n_records) = (cursor.varint()?, cursor.varint()?);
                cursor.end()?;
                if (n_blocks, n_records) != (self.n_blocks, self.n_records) {
                    let (blocks, records) = (self.n_blocks, self.n_records);
                    let what = format!(
                        "the end marker counts {n_blocks} blocks with {n_records} events, but \
                         there are {blocks} with {records}"
                    );
                    return Err(Error::new(base, what));
                }
                self.ending = Ending::Complete;
                break;
            }
            if let Some(section) = parse(tag, &mut cursor)? {
                cursor.end()?;
                if let Section::Block(block) = &section {
                    self.n_blocks += 1;
                    self.n_records += block.records.len() as u64;
                }
                return Ok(Some(section));
            }
        }
        Ok(None)
    }

    /// Reads a section into `payload`, and answers its tag and the place of the payload. None: the
    /// file ended, and `ending` says how.
    fn section(&mut self) -> Result<Option<(u8, u64)>, Error> {
        let start = self.offset;
        let truncated = Ending::Truncated { offset: start };
        let Some(tag) = self.byte()? else {
            self.ending = truncated;
            return Ok(None);
        };
        let mut length = 0;
        for shift in (0..).step_by(7) {
            let Some(byte) = self.byte()? else {
                self.ending = truncated;
                return Ok(None);
            };
            length |= u64::from(byte & 0x7f) << shift;
            if length > MAX_SECTION || shift > 28 {
                return Err(Error::new(start, "a section is longer than the limit"));
            }
            if byte < 0x80 {
                break;
            }
        }
        let base = self.offset;
        self.payload.clear();
        // The buffer grows with what is really there.
        let n_read = self.input.by_ref().take(length).read_to_end(&mut self.payload);
        let n_read = n_read.map_err(|e| Error::io(base, e))? as u64;
        self.offset += n_read;
        if n_read < length {
            self.ending = truncated;
            return Ok(None);
        }
        Ok(Some((tag, base)))
    }

    fn byte(&mut self) -> Result<Option<u8>, Error> {
        let mut byte = [0];
        loop {
            match self.input.read(&mut byte) {
                Ok(0) => return Ok(None),
                Ok(_) => {
                    self.offset += 1;
                    return Ok(Some(byte[0]));
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Error::io(self.offset, e)),
            }
        }
    }
}

fn header(cursor: &mut Cursor<'_>) -> Result<Header, Error> {
    let at = cursor.offset();
    let version = cursor.varint()?;
    if version != VERSION {
        let what = format!("the trace has version {version}; this program reads {VERSION}");
        return Err(Error::new(at, what));
    }
    let Some(ticks_clock) = TicksClock::from_u8(cursor.byte()?) else {
        return Err(cursor.error("an unknown clock"));
    };
    let (pid, program, procs) = (cursor.small()?, cursor.text()?.to_owned(), cursor.small()?);
    let mut wait_reasons = Vec::new();
    for _ in 0..cursor.count()? {
        wait_reasons.push(cursor.text()?.to_owned());
    }
    cursor.end()?;
    Ok(Header { ticks_clock, pid, program, procs, wait_reasons })
}

fn parse(tag: u8, cursor: &mut Cursor<'_>) -> Result<Option<Section>, Error> {
    Ok(Some(match tag {
        tag::CLOCK => Section::Clock(Clock {
            ticks: cursor.varint()?,
            monotonic_ns: cursor.varint()?,
            unix_ns: cursor.varint()?,
        }),
        tag::STRING => Section::String(cursor.varint()?, cursor.text()?.to_owned()),
        tag::SITE => {
            let number = cursor.varint()?;
            let file = cursor.text()?.to_owned();
            Section::Site(number, Site { file, line: cursor.small()?, column: cursor.small()? })
        }
        tag::STACK => {
            let number = cursor.varint()?;
            let mut frames = Vec::new();
            for _ in 0..cursor.count()? {
                let function = cursor.text()?.to_owned();
                let file = cursor.text()?.to_owned();
                frames.push(Frame { function, file, line: cursor.small()? });
            }
            Section::Stack(number, frames)
        }
        tag::BLOCK => Section::Block(block::decode(cursor)?),
        tag::SNAPSHOT => {
            let ticks = cursor.varint()?;
            let mut goroutines = Vec::new();
            for _ in 0..cursor.count()? {
                goroutines.push(goroutine(cursor)?);
            }
            Section::Snapshot(ticks, goroutines)
        }
        tag::DROPS => Section::Drops(Drops { writer: cursor.small()?, records: cursor.varint()? }),
        tag::HEADER => return Err(cursor.error("a second header")),
        _ => return Ok(None),
    }))
}

fn goroutine(cursor: &mut Cursor<'_>) -> Result<(Goroutine, u64), Error> {
    let (id, parent, number) = (cursor.varint()?, cursor.varint()?, cursor.small()?);
    let Some(state) = State::from_u8(cursor.byte()?) else {
        return Err(cursor.error("an unknown state of a goroutine"));
    };
    let (wait_reason, class) = (cursor.byte()?, cursor.byte()?);
    let site = cursor.varint()?;
    let name = cursor.text()?.to_owned();
    let (is_task, class) = (class & IS_TASK != 0, class & !IS_TASK);
    let goroutine =
        Goroutine { id, parent, number, state, wait_reason, class, is_task, site: None, name };
    Ok((goroutine, site))
}
