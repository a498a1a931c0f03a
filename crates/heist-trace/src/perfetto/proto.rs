//! The few messages of Perfetto's protobuf format that are needed, written by hand.
//!
//! Field numbers are those of `protos/perfetto/trace/trace_packet.proto` and
//! `protos/perfetto/trace/track_event/*.proto`.

use std::io::{self, Write};

/// Fields of `TracePacket`.
pub(super) mod packet {
    pub(in super::super) const TIMESTAMP: u32 = 8;
    pub(in super::super) const SEQUENCE_ID: u32 = 10;
    pub(in super::super) const TRACK_EVENT: u32 = 11;
    pub(in super::super) const INTERNED_DATA: u32 = 12;
    pub(in super::super) const SEQUENCE_FLAGS: u32 = 13;
    pub(in super::super) const TRACK_DESCRIPTOR: u32 = 60;
}

/// Fields of `TrackDescriptor` and of the descriptors in it.
pub(super) mod track {
    pub(in super::super) const UUID: u32 = 1;
    pub(in super::super) const NAME: u32 = 2;
    pub(in super::super) const PROCESS: u32 = 3;
    pub(in super::super) const PARENT_UUID: u32 = 5;
    pub(in super::super) const COUNTER: u32 = 8;
    pub(in super::super) const PROCESS_PID: u32 = 1;
    pub(in super::super) const PROCESS_NAME: u32 = 6;
}

/// Fields of `TrackEvent`, of `DebugAnnotation` and of `InternedData`.
pub(super) mod event {
    pub(in super::super) const DEBUG_ANNOTATIONS: u32 = 4;
    pub(in super::super) const TYPE: u32 = 9;
    pub(in super::super) const NAME_IID: u32 = 10;
    pub(in super::super) const TRACK_UUID: u32 = 11;
    pub(in super::super) const COUNTER_VALUE: u32 = 30;
    pub(in super::super) const FLOW_IDS: u32 = 47;
    pub(in super::super) const TERMINATING_FLOW_IDS: u32 = 48;
    pub(in super::super) const ANNOTATION_NAME_IID: u32 = 1;
    pub(in super::super) const ANNOTATION_UINT: u32 = 3;
    pub(in super::super) const INTERNED_EVENT_NAMES: u32 = 2;
    pub(in super::super) const INTERNED_ANNOTATION_NAMES: u32 = 3;
    pub(in super::super) const INTERNED_IID: u32 = 1;
    pub(in super::super) const INTERNED_NAME: u32 = 2;
}

/// `TrackEvent.Type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    SliceBegin = 1,
    SliceEnd = 2,
    Instant = 3,
    Counter = 4,
}

/// A message under construction.
#[derive(Clone, Debug, Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    pub(super) fn uint(&mut self, field: u32, value: u64) -> &mut Self {
        self.varint(u64::from(field) << 3);
        self.varint(value);
        self
    }

    pub(super) fn fixed64(&mut self, field: u32, value: u64) -> &mut Self {
        self.varint(u64::from(field) << 3 | 1);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn bytes(&mut self, field: u32, bytes: &[u8]) -> &mut Self {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    pub(super) fn text(&mut self, field: u32, text: &str) -> &mut Self {
        self.bytes(field, text.as_bytes())
    }

    pub(super) fn message(&mut self, field: u32, message: &Self) -> &mut Self {
        self.bytes(field, &message.0)
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Writes it as a packet of a trace, which is the field 1 of `Trace`.
    pub(super) fn write_packet(&self, out: &mut impl Write) -> io::Result<()> {
        let mut head = Self::default();
        head.varint(1 << 3 | 2);
        head.varint(self.0.len() as u64);
        out.write_all(&head.0)?;
        out.write_all(&self.0)
    }
}
