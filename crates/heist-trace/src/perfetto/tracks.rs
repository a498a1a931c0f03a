//! Writes tracks, slices, arrows and counters.

use super::proto::{Message, Type, event, packet, track};
use crate::file::Header;
use crate::model::IdSet;
use std::collections::HashMap;
use std::io::{self, Write};

/// A line of the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Track {
    Process,
    P(u32),
    /// By its writer; 0 stands for all threads that are no M.
    M(u32),
    Runnable,
    IdlePs,
    Spinning,
    GlobalQueue,
    Queue(u32),
}

impl Track {
    fn uuid(self) -> u64 {
        match self {
            Self::Process => 1,
            Self::Runnable => 2,
            Self::IdlePs => 3,
            Self::Spinning => 4,
            Self::GlobalQueue => 5,
            Self::P(p) => 1 << 40 | u64::from(p),
            Self::M(writer) => 2 << 40 | u64::from(writer),
            Self::Queue(p) => 3 << 40 | u64::from(p),
        }
    }

    fn name(self) -> String {
        match self {
            Self::Process => String::new(),
            Self::Runnable => "runnable goroutines".to_owned(),
            Self::IdlePs => "idle Ps".to_owned(),
            Self::Spinning => "Ms that search for work".to_owned(),
            Self::GlobalQueue => "global queue".to_owned(),
            Self::P(p) => format!("P {p}"),
            Self::M(0) => "other threads".to_owned(),
            Self::M(writer) => format!("M {}", writer - 1),
            Self::Queue(p) => format!("queue of P {p}"),
        }
    }

    fn is_counter(self) -> bool {
        !matches!(self, Self::Process | Self::P(_) | Self::M(_))
    }
}

/// What an event has besides a time and a track.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Details<'a> {
    pub(super) name: &'a str,
    /// The goroutine it is about, or 0.
    pub(super) goroutine: u64,
    /// The arrow that begins here, or 0.
    pub(super) flow: u64,
    /// The arrow that ends here, or 0.
    pub(super) flow_end: u64,
}

/// All events are in one sequence.
const SEQUENCE: u64 = 1;
const STATE_CLEARED: u64 = 1;
const NEEDS_STATE: u64 = 2;
/// The name of the annotation with the number of a goroutine.
const GOROUTINE: u64 = 1;

#[derive(Debug)]
pub(super) struct Tracks<W: Write> {
    out: W,
    start_ns: u64,
    known: IdSet,
    names: HashMap<String, u64>,
    packet: Message,
    event: Message,
    pub(super) n_packets: u64,
}

impl<W: Write> Tracks<W> {
    pub(super) fn new(out: W, header: &Header, start_ns: u64) -> io::Result<Self> {
        let mut tracks = Self {
            out,
            start_ns,
            known: IdSet::default(),
            names: HashMap::new(),
            packet: Message::default(),
            event: Message::default(),
            n_packets: 0,
        };
        let mut process = Message::default();
        process.uint(track::PROCESS_PID, header.pid.into());
        process.text(track::PROCESS_NAME, &header.program);
        let mut descriptor = Message::default();
        descriptor.uint(track::UUID, Track::Process.uuid()).message(track::PROCESS, &process);
        tracks.packet.message(packet::TRACK_DESCRIPTOR, &descriptor);
        tracks.packet.uint(packet::SEQUENCE_ID, SEQUENCE);
        tracks.send()?;
        let mut name = Message::default();
        name.uint(event::INTERNED_IID, GOROUTINE).text(event::INTERNED_NAME, "goroutine");
        let mut interned = Message::default();
        interned.message(event::INTERNED_ANNOTATION_NAMES, &name);
        tracks.packet.uint(packet::SEQUENCE_ID, SEQUENCE);
        tracks.packet.uint(packet::SEQUENCE_FLAGS, STATE_CLEARED);
        tracks.packet.message(packet::INTERNED_DATA, &interned);
        tracks.send()?;
        Ok(tracks)
    }

    fn send(&mut self) -> io::Result<()> {
        self.n_packets += 1;
        self.packet.write_packet(&mut self.out)?;
        self.packet.clear();
        Ok(())
    }

    fn describe(&mut self, of: Track) -> io::Result<()> {
        if !self.known.insert(of.uuid()) {
            return Ok(());
        }
        let mut descriptor = Message::default();
        descriptor.uint(track::UUID, of.uuid());
        descriptor.uint(track::PARENT_UUID, Track::Process.uuid());
        descriptor.text(track::NAME, &of.name());
        if of.is_counter() {
            descriptor.message(track::COUNTER, &Message::default());
        }
        self.packet.message(packet::TRACK_DESCRIPTOR, &descriptor);
        self.packet.uint(packet::SEQUENCE_ID, SEQUENCE);
        self.send()
    }

    /// The number of a name, which is written if it is new.
    fn name(&mut self, text: &str) -> io::Result<u64> {
        if let Some(&number) = self.names.get(text) {
            return Ok(number);
        }
        let number = self.names.len() as u64 + 1;
        self.names.insert(text.to_owned(), number);
        let mut name = Message::default();
        name.uint(event::INTERNED_IID, number).text(event::INTERNED_NAME, text);
        let mut interned = Message::default();
        interned.message(event::INTERNED_EVENT_NAMES, &name);
        self.packet.uint(packet::SEQUENCE_ID, SEQUENCE);
        self.packet.uint(packet::SEQUENCE_FLAGS, NEEDS_STATE);
        self.packet.message(packet::INTERNED_DATA, &interned);
        self.send()?;
        Ok(number)
    }

    pub(super) fn event(
        &mut self,
        time: u64,
        on: Track,
        kind: Type,
        details: Details<'_>,
    ) -> io::Result<()> {
        self.describe(on)?;
        let name = if details.name.is_empty() { 0 } else { self.name(details.name)? };
        self.event.clear();
        self.event.uint(event::TYPE, kind as u64).uint(event::TRACK_UUID, on.uuid());
        if name != 0 {
            self.event.uint(event::NAME_IID, name);
        }
        if details.goroutine != 0 {
            let mut annotation = Message::default();
            annotation.uint(event::ANNOTATION_NAME_IID, GOROUTINE);
            annotation.uint(event::ANNOTATION_UINT, details.goroutine);
            self.event.message(event::DEBUG_ANNOTATIONS, &annotation);
        }
        if details.flow != 0 {
            self.event.fixed64(event::FLOW_IDS, details.flow);
        }
        if details.flow_end != 0 {
            self.event.fixed64(event::TERMINATING_FLOW_IDS, details.flow_end);
        }
        self.send_event(time)
    }

    pub(super) fn counter(&mut self, time: u64, of: Track, value: u64) -> io::Result<()> {
        self.describe(of)?;
        self.event.clear();
        self.event.uint(event::TYPE, Type::Counter as u64).uint(event::TRACK_UUID, of.uuid());
        self.event.uint(event::COUNTER_VALUE, value);
        self.send_event(time)
    }

    fn send_event(&mut self, time: u64) -> io::Result<()> {
        self.packet.uint(packet::TIMESTAMP, self.start_ns.saturating_add(time));
        self.packet.uint(packet::SEQUENCE_ID, SEQUENCE);
        self.packet.uint(packet::SEQUENCE_FLAGS, NEEDS_STATE);
        self.packet.message(packet::TRACK_EVENT, &self.event);
        self.send()
    }

    pub(super) fn finish(mut self) -> io::Result<(W, u64)> {
        self.out.flush()?;
        Ok((self.out, self.n_packets))
    }
}
