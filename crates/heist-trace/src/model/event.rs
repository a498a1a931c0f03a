//! One event with the records that belong to it.

use crate::record::{Kind, Record};

/// An event of the whole trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds since the beginning. It never decreases from one event to the next.
    pub time: u64,
    /// What the clock of the writer said, in nanoseconds since the beginning.
    pub raw_time: u64,
    /// The writer: an M plus one, or 0 for threads that are no M.
    pub writer: u32,
    /// What happened.
    pub kind: Kind,
    /// The detail of the kind.
    pub detail: u8,
    /// The subject of the kind.
    pub subject: u64,
    /// The number of the kind.
    pub number: u16,
    /// What the records say that belong to it.
    pub extra: Extra,
}

/// What the records say that belong to an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extra {
    /// The number of the site.
    pub site: u64,
    /// The class of a new goroutine.
    pub class: u8,
    /// The string with the name of a new goroutine.
    pub name: u64,
    /// The M that lost its P, plus one.
    pub victim: u32,
    /// The values.
    pub args: [u64; 2],
    /// The number of the stack.
    pub stack: u64,
    n_args: u8,
}

impl Extra {
    /// Takes a record that belongs to an event; false if it is an event itself.
    pub(super) fn take(&mut self, record: Record) -> bool {
        match record.kind() {
            Some(Kind::Site) => (self.site, self.class) = (record.subject(), record.detail()),
            Some(Kind::Name) => self.name = record.subject(),
            Some(Kind::Victim) => self.victim = (record.subject() as u32).saturating_add(1),
            Some(Kind::Stack) => self.stack = record.subject(),
            Some(Kind::Arg) => {
                if let Some(place) = self.args.get_mut(usize::from(self.n_args)) {
                    *place = record.subject();
                    self.n_args += 1;
                }
            }
            _ => return false,
        }
        true
    }
}

impl Event {
    /// The M that wrote it, or None for other threads.
    #[must_use]
    pub const fn m(&self) -> Option<u32> {
        self.writer.checked_sub(1)
    }
}
