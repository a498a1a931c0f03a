//! The file that holds a trace.
//!
//! A file is a magic number and sections. A section is a tag, a length and a payload, so a reader
//! can skip what it does not know, and a file that ends early is readable up to its last whole
//! section. The page `docs/design/trace_file.md` has the layout.
//!
//! [`Writer`] belongs to the program that is traced, [`Reader`] to the tools. [`Trace`] is a whole
//! file in memory.
//!
//! ```
//! use heist_trace::file::{Clock, Header, Trace, Writer};
//! use heist_trace::record::{Context, Kind, Record};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let header = Header { program: "example".into(), procs: 4, ..Header::default() };
//! let mut writer = Writer::new(Vec::new(), &header)?;
//! writer.clock(&Clock { ticks: 1_000, monotonic_ns: 500, unix_ns: 1_700_000_000_000_000_000 })?;
//! let context = Context { writer: 1, ticks: 1_000, ..Context::default() };
//! writer.block(&context, &[Record::new(1_010, Kind::ProcStart, 0, 0, 1)], |_| None)?;
//! let bytes = writer.finish()?;
//!
//! let trace = Trace::read(&bytes[..], |_| ())?;
//! assert_eq!(trace.header.program, "example");
//! assert_eq!(trace.blocks[0].records[0].kind(), Some(Kind::ProcStart));
//! assert!(trace.is_complete());
//! # Ok(())
//! # }
//! ```

mod block;
mod error;
mod parts;
mod reader;
mod trace;
mod varint;
mod writer;

pub use block::Block;
pub use error::Error;
pub use parts::{Clock, Drops, Frame, Goroutine, Header, Site, State, TicksClock};
pub use reader::{Ending, Reader, Section};
pub use trace::Trace;
pub use writer::Writer;

/// The first bytes of each file. The last two would not survive a transfer as text.
pub const MAGIC: [u8; 8] = *b"heist\0\r\n";

/// The version of the layout. A reader refuses others.
pub const VERSION: u64 = 1;

/// No section is longer than this, so a length that was damaged does not lead to a huge allocation.
pub const MAX_SECTION: u64 = 64 << 20;

/// The bit in the class of a goroutine in a snapshot that marks one that polls a future.
const IS_TASK: u8 = 1 << 7;

/// The kind of a section.
mod tag {
    pub(super) const HEADER: u8 = 1;
    pub(super) const CLOCK: u8 = 2;
    pub(super) const STRING: u8 = 3;
    pub(super) const SITE: u8 = 4;
    pub(super) const STACK: u8 = 5;
    pub(super) const BLOCK: u8 = 6;
    pub(super) const SNAPSHOT: u8 = 7;
    pub(super) const DROPS: u8 = 8;
    pub(super) const END: u8 = 9;
}
