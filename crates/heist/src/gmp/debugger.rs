//! The table by which a debugger finds goroutines: see `gdb/heist.py` beside `src`.
//!
//! It is in a section of its own, so that it is found in a program without symbols, too, and one
//! for each version of heist that a program has. A row is a name and a number or an address; the
//! order of the rows has no meaning, but for the first three.

use super::flags::Flag;
use super::g::{Extras, WaitReason};
use super::{G, M, pool};
use crate::coro::layout;
use crate::coro::switch::Coro;
use crate::coro::walk::saved;
use heist_core::status::Status;
use std::mem::offset_of;
use std::panic::Location;
use std::ptr::without_provenance_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The length of a name, filled with zeroes.
const NAME_BYTES: usize = 24;

/// The value of a row that was not learned.
const UNKNOWN: usize = usize::MAX;

/// One row.
#[repr(C)]
struct Fact {
    name: [u8; NAME_BYTES],
    value: AtomicPtr<()>,
}

impl Fact {
    const fn number(name: &str, value: usize) -> Self {
        Self::address(name, without_provenance_mut(value))
    }

    const fn address(name: &str, value: *mut ()) -> Self {
        let mut padded = [0; NAME_BYTES];
        padded.split_at_mut(name.len()).0.copy_from_slice(name.as_bytes());
        Self { name: padded, value: AtomicPtr::new(value) }
    }
}

/// The rows.
#[repr(C)]
struct Table {
    magic: [u8; 8],
    n_facts: u64,
    facts: [Fact; N_FACTS],
}

const N_REASONS: usize = WaitReason::ALL.len();
const N_STATUSES: usize = Status::ALL.len();

static REASONS: [&str; N_REASONS] = {
    let mut texts = [""; N_REASONS];
    let mut i = 0;
    while i < N_REASONS {
        texts[i] = WaitReason::ALL[i].text();
        i += 1;
    }
    texts
};

static STATUSES: [&str; N_STATUSES] = {
    let mut texts = [""; N_STATUSES];
    let mut i = 0;
    while i < N_STATUSES {
        texts[i] = Status::ALL[i].name();
        i += 1;
    }
    texts
};

/// Which rows say how a place in the source is stored: where its file, line and column are.
const SITE_FILE: usize = 0;
const SITE_LINE: usize = 1;
const SITE_COLUMN: usize = 2;

const N_FACTS: usize = 41;

#[used]
#[unsafe(link_section = "heist_debug")]
static TABLE: Table = Table {
    magic: *b"heist-gs",
    n_facts: N_FACTS as u64,
    facts: [
        Fact::number("site_file", UNKNOWN),
        Fact::number("site_line", UNKNOWN),
        Fact::number("site_column", UNKNOWN),
        Fact::number("unknown", UNKNOWN),
        // The records of all goroutines.
        Fact::address("slabs", pool::SLABS_AT.cast_mut()),
        Fact::number("slab_next", pool::SLAB_NEXT),
        Fact::number("slab_carved", pool::SLAB_CARVED),
        Fact::number("slab_first", pool::SLAB_FIRST),
        Fact::number("g_bytes", size_of::<G>()),
        Fact::number("g_status", offset_of!(G, status)),
        Fact::number("g_flags", offset_of!(G, flags)),
        Fact::number("g_wait_reason", offset_of!(G, wait_reason)),
        Fact::number("g_started", offset_of!(G, started)),
        Fact::number("g_id", offset_of!(G, id)),
        Fact::number("g_parent", offset_of!(G, parent_id)),
        Fact::number("g_sched", offset_of!(G, sched)),
        Fact::number("g_bound_m", offset_of!(G, bound_m)),
        Fact::number("g_extras", offset_of!(G, extras)),
        Fact::number("g_spawn_site", offset_of!(G, spawn_site)),
        Fact::number("g_coroutine", offset_of!(G, coro) + Coro::RECORD_AT),
        Fact::number("g_link", offset_of!(G, coro) + Coro::LINK_AT),
        Fact::number("extras_name", offset_of!(Extras, name)),
        // The registers of a goroutine that has left its thread, and the thread of one that has
        // not.
        Fact::address("sp_word", layout::PLACE_AT.cast_mut()),
        Fact::number("saved_pc", saved::PC),
        Fact::number("saved_fp", saved::FP),
        Fact::number("saved_base", saved::BASE),
        Fact::number("saved_bytes", saved::BYTES),
        Fact::number("link_thread", Coro::THREAD_ABOVE_LINK),
        Fact::number("m_current", offset_of!(M, cur)),
        Fact::number("m_thread", offset_of!(M, thread)),
        // The values of fields, and their names.
        Fact::number("dead", Status::Dead as usize),
        Fact::number("runnable", Status::Runnable as usize),
        Fact::number("running", Status::Running as usize),
        Fact::number("waiting", Status::Waiting as usize),
        Fact::number("unborn", Flag::UNBORN.bits()),
        Fact::number("abandoned", Flag::ABANDONED.bits()),
        Fact::number("locked", Flag::LOCKED.bits()),
        Fact::address("statuses", (&raw const STATUSES).cast_mut().cast()),
        Fact::number("n_statuses", N_STATUSES),
        Fact::address("reasons", (&raw const REASONS).cast_mut().cast()),
        Fact::number("n_reasons", N_REASONS),
    ],
};

/// Completes the table. Called before any goroutine runs; it keeps the table in the program.
pub(crate) fn prepare() {
    let places = site_layout(Location::caller()).unwrap_or([UNKNOWN; 3]);
    for (row, at) in [SITE_FILE, SITE_LINE, SITE_COLUMN].into_iter().zip(places) {
        TABLE.facts[row].value.store(without_provenance_mut(at), Ordering::Relaxed);
    }
}

const WORD: usize = size_of::<usize>();

/// Where the file, the line and the column of a place are: the standard library does not say, so it
/// is learned from a place that is known. None if it is not stored as a text and two numbers.
fn site_layout(site: &'static Location<'static>) -> Option<[usize; 3]> {
    if size_of::<Location<'static>>() != 2 * WORD + 2 * size_of::<u32>() {
        return None;
    }
    let start = std::ptr::from_ref(site).cast::<u8>();
    // SAFETY: inside the place, aligned, and initialised, because there is no room for padding.
    let word = |at: usize| unsafe { start.add(at).cast::<usize>().read() };
    // SAFETY: as above.
    let number = |at: usize| unsafe { start.add(at).cast::<u32>().read() };
    let text = site.file();
    let is_text = |&at: &usize| word(at) == text.as_ptr().addr() && word(at + WORD) == text.len();
    let file = (0..=WORD).step_by(WORD).find(is_text)?;
    let numbers = if file == 0 { [2 * WORD, 2 * WORD + 4] } else { [0, 4] };
    let [first, second] = numbers;
    match (number(first), number(second)) {
        (line, column) if line == column => None,
        found if found == (site.line(), site.column()) => Some([file, first, second]),
        found if found == (site.column(), site.line()) => Some([file, second, first]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coro::walk::Position;

    /// A row, as a debugger reads it.
    fn fact(name: &str) -> usize {
        let mut rows = TABLE.facts.iter();
        let row = rows.find(|row| row.name.starts_with(format!("{name}\0").as_bytes()));
        row.unwrap_or_else(|| panic!("no {name}")).value.load(Ordering::Relaxed).addr()
    }

    fn read<T: Copy>(address: usize) -> T {
        // SAFETY: the table says that there is one.
        unsafe { (address as *const T).read_volatile() }
    }

    /// All records whose number is `id`, found through the table alone.
    fn records(id: u64) -> Vec<usize> {
        let mut found = Vec::new();
        let mut slab = read::<usize>(fact("slabs"));
        while slab != 0 {
            let records = slab + fact("slab_first");
            for i in 0..read::<usize>(slab + fact("slab_carved")) {
                let g = records + i * fact("g_bytes");
                let is_alive = read::<u8>(g + fact("g_status")) != fact("dead") as u8;
                if is_alive && read::<u64>(g + fact("g_id")) == id {
                    found.push(g);
                }
            }
            slab = read::<usize>(slab + fact("slab_next"));
        }
        found
    }

    /// What the table says about a parked goroutine is what the runtime says.
    #[test]
    fn the_table_for_debuggers_is_true() {
        // SAFETY: the goroutines keep nothing across a park that is bound to a thread.
        let rt = unsafe { crate::Runtime::builder().procs(1).build() }.expect("it starts");
        let (tx, rx) = crate::chan::bounded::<()>(0);
        let spawned = std::panic::Location::caller();
        let named = crate::goroutine::Builder::new().name("the parked one");
        let handle = named.spawn_on(&rt.handle(), move || rx.recv()).expect("it is spawned");
        let gp = handle.record();
        // SAFETY: records are never unmapped.
        let g: &G = unsafe { &*(gp as *const G) };
        while g.status.get() != Status::Waiting {
            std::thread::yield_now();
        }
        assert!(records(g.id.get()).contains(&gp), "the record is found");
        assert_eq!(read::<u8>(gp + fact("g_status")) & 0x7f, fact("waiting") as u8);
        let reason = usize::from(read::<u8>(gp + fact("g_wait_reason")));
        assert_eq!(read::<&str>(fact("reasons") + reason * 2 * WORD), "chan receive");
        let status = read::<&str>(fact("statuses") + fact("waiting") * 2 * WORD);
        assert_eq!(status, Status::Waiting.name());
        let extras = read::<usize>(gp + fact("g_extras"));
        assert_eq!(read::<&str>(extras + fact("extras_name")), "the parked one");
        let site = read::<usize>(gp + fact("g_spawn_site"));
        assert_eq!(read::<&str>(site + fact("site_file")), file!());
        assert!(read::<u32>(site + fact("site_line")) > spawned.line());
        assert!(read::<u32>(site + fact("site_column")) < 200);
        let sched: &crate::sched::Sched = rt.sched();
        assert_eq!(read::<usize>(gp + fact("g_sched")), std::ptr::from_ref(sched).addr());
        assert_eq!(read::<u8>(gp + fact("g_started")) & 1, 1);
        let place = read::<usize>(fact("sp_word"));
        let sp = read::<usize>(gp + fact("g_coroutine") + place * WORD);
        let position = Position::suspended(&g.coro).expect("it is on its stack");
        assert_eq!(read::<usize>(sp + fact("saved_pc")), position.registers.pc);
        assert_eq!(read::<usize>(sp + fact("saved_fp")), position.registers.fp);
        assert_eq!(sp + fact("saved_bytes"), position.registers.sp);
        let thread = read::<usize>(read::<usize>(gp + fact("g_link")) + fact("link_thread"));
        let ms = rt.sched().threads.all_ms();
        assert!(ms.iter().any(|m| m.thread.get() == thread), "a thread of the runtime ran it");
        drop(tx);
        assert!(handle.join().expect("it returned").is_err());
    }
}
