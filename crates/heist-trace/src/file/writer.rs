//! Writes a file, section by section.

use super::block;
use super::varint::{put, put_text};
use super::{
    Clock, Drops, Frame, Goroutine, Header, IS_TASK, MAGIC, MAX_SECTION, Site, VERSION, tag,
};
use crate::record::{Context, Kind, Record};
use std::collections::HashMap;
use std::io::{self, Write};

/// Writes a trace. Each method writes whole sections and can be called at any time, so what was
/// written is readable even if the process ends. Nothing is buffered here.
///
/// # Strings
/// Events name texts by numbers. [`string`](Self::string) writes a text once and answers its
/// number; [`new_string`](Self::new_string) does not remember it. A recorder that must number texts
/// before it reaches the file uses [`define_string`](Self::define_string) with its own numbers
/// instead: a file has one or the other. A text may come after the events that name it.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
    payload: Vec<u8>,
    frame: Vec<u8>,
    strings: HashMap<String, u64>,
    n_strings: u64,
    sites: HashMap<Site, u64>,
    /// The sites of the addresses that were seen.
    addresses: HashMap<u64, u64>,
    records: Vec<Record>,
    n_records: u64,
    n_blocks: u64,
}

impl<W: Write> Writer<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(mut out: W, header: &Header) -> io::Result<Self> {
        out.write_all(&MAGIC)?;
        let mut writer = Self {
            out,
            payload: Vec::new(),
            frame: Vec::new(),
            strings: HashMap::new(),
            n_strings: 0,
            sites: HashMap::new(),
            addresses: HashMap::new(),
            records: Vec::new(),
            n_records: 0,
            n_blocks: 0,
        };
        let payload = &mut writer.payload;
        put(payload, VERSION);
        payload.push(header.ticks_clock as u8);
        put(payload, header.pid.into());
        put_text(payload, &header.program);
        put(payload, header.procs.into());
        put(payload, header.wait_reasons.len() as u64);
        for reason in &header.wait_reasons {
            put_text(payload, reason);
        }
        writer.section(tag::HEADER)?;
        Ok(writer)
    }

    /// Writes a moment on all clocks. A file needs two: one before the first event, one after the
    /// last.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn clock(&mut self, clock: &Clock) -> io::Result<()> {
        put(&mut self.payload, clock.ticks);
        put(&mut self.payload, clock.monotonic_ns);
        put(&mut self.payload, clock.unix_ns);
        self.section(tag::CLOCK)
    }

    /// The number of a text, which is written if it is new. 0 is the empty text.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn string(&mut self, text: &str) -> io::Result<u64> {
        if text.is_empty() {
            return Ok(0);
        }
        if let Some(&number) = self.strings.get(text) {
            return Ok(number);
        }
        let number = self.new_string(text)?;
        self.strings.insert(text.to_owned(), number);
        Ok(number)
    }

    /// Writes a text and answers its number, without remembering it: for texts that are hardly ever
    /// the same, such as messages, of which a program may write any number.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new_string(&mut self, text: &str) -> io::Result<u64> {
        self.n_strings += 1;
        self.define_string(self.n_strings, text)?;
        Ok(self.n_strings)
    }

    /// Writes a text with a number that the recorder chose.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn define_string(&mut self, number: u64, text: &str) -> io::Result<()> {
        put(&mut self.payload, number);
        put_text(&mut self.payload, text);
        self.section(tag::STRING)
    }

    /// Writes a stack, the innermost call first, with a number that the recorder chose.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn define_stack(&mut self, number: u64, frames: &[Frame]) -> io::Result<()> {
        put(&mut self.payload, number);
        put(&mut self.payload, frames.len() as u64);
        for frame in frames {
            put_text(&mut self.payload, &frame.function);
            put_text(&mut self.payload, &frame.file);
            put(&mut self.payload, frame.line.into());
        }
        self.section(tag::STACK)
    }

    /// Writes a buffer. `resolve` is asked once for each address in `Site` records; an address
    /// that it does not know becomes 0, the unknown site.
    ///
    /// # Errors
    /// Those of `out`, and `InvalidData` for a record without a known kind; then nothing was
    /// written.
    pub fn block(
        &mut self,
        context: &Context,
        records: &[Record],
        mut resolve: impl FnMut(u64) -> Option<Site>,
    ) -> io::Result<()> {
        let mut numbered = std::mem::take(&mut self.records);
        numbered.clear();
        for &record in records {
            if record.kind() != Some(Kind::Site) {
                numbered.push(record);
                continue;
            }
            let address = record.subject();
            let number = match self.addresses.get(&address) {
                Some(&number) => number,
                None => {
                    let number = resolve(address).map_or(Ok(0), |site| self.site(&site))?;
                    self.addresses.insert(address, number);
                    number
                }
            };
            numbered.push(record.with_subject(number));
        }
        let outcome = block::encode(&mut self.payload, context, &numbered);
        self.records = numbered;
        if let Err(record) = outcome {
            self.payload.clear();
            let message = format!("a record without a known kind: {record:?}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        self.n_records += records.len() as u64;
        self.n_blocks += 1;
        self.section(tag::BLOCK)
    }

    /// Writes what all goroutines did at `ticks`.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn snapshot(&mut self, ticks: u64, goroutines: &[Goroutine]) -> io::Result<()> {
        // In pieces, because a section has a largest length.
        for piece in goroutines.chunks(4096) {
            let mut sites = Vec::with_capacity(piece.len());
            for goroutine in piece {
                let site = goroutine.site.as_ref();
                sites.push(site.map_or(Ok(0), |site| self.site(site))?);
            }
            put(&mut self.payload, ticks);
            put(&mut self.payload, piece.len() as u64);
            for (goroutine, site) in piece.iter().zip(sites) {
                put(&mut self.payload, goroutine.id);
                put(&mut self.payload, goroutine.parent);
                put(&mut self.payload, goroutine.number.into());
                let class =
                    goroutine.class & !IS_TASK | if goroutine.is_task { IS_TASK } else { 0 };
                let small = [goroutine.state as u8, goroutine.wait_reason, class];
                self.payload.extend_from_slice(&small);
                put(&mut self.payload, site);
                put_text(&mut self.payload, &goroutine.name);
            }
            self.section(tag::SNAPSHOT)?;
        }
        Ok(())
    }

    /// Writes how many records of a writer were lost in all.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn drops(&mut self, drops: Drops) -> io::Result<()> {
        put(&mut self.payload, drops.writer.into());
        put(&mut self.payload, drops.records);
        self.section(tag::DROPS)
    }

    /// How many records were written.
    #[must_use]
    pub fn n_records(&self) -> u64 {
        self.n_records
    }

    /// Flushes what the underlying writer buffers.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Writes the end marker, which says that nothing is missing, and flushes.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn finish(mut self) -> io::Result<W> {
        put(&mut self.payload, self.n_blocks);
        put(&mut self.payload, self.n_records);
        self.section(tag::END)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn site(&mut self, site: &Site) -> io::Result<u64> {
        if let Some(&number) = self.sites.get(site) {
            return Ok(number);
        }
        let number = self.sites.len() as u64 + 1;
        self.sites.insert(site.clone(), number);
        put(&mut self.payload, number);
        put_text(&mut self.payload, &site.file);
        put(&mut self.payload, site.line.into());
        put(&mut self.payload, site.column.into());
        self.section(tag::SITE)?;
        Ok(number)
    }

    /// Writes the payload as one section with one call, so that a process that dies leaves whole
    /// sections behind.
    fn section(&mut self, tag: u8) -> io::Result<()> {
        let length = self.payload.len() as u64;
        if length > MAX_SECTION {
            self.payload.clear();
            let message = format!("a section of {length} bytes; the limit is {MAX_SECTION}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        self.frame.clear();
        self.frame.push(tag);
        put(&mut self.frame, length);
        self.frame.extend_from_slice(&self.payload);
        self.payload.clear();
        self.out.write_all(&self.frame)
    }
}
