//! From a buffer to a file: texts become numbers of strings, addresses become places.

use super::emit;
use crate::current;
use crate::gmp::flags::Flag;
use crate::gmp::{G, pool};
use crate::sched::Sched;
use crate::sys::ticks::{self, Source};
use heist_core::status::Status;
use heist_trace::file::{Clock, Goroutine, Header, Site, State, TicksClock, Writer};
use heist_trace::record::{Context, Kind, Record, TEXT_BYTES};
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::panic::Location;
use std::sync::Arc;

/// What a file says about the program.
pub(super) fn header(sched: &Sched) -> Header {
    let ticks_clock = match ticks::prepare() {
        Source::Kernel => TicksClock::Monotonic,
        Source::Counter if cfg!(target_arch = "x86_64") => TicksClock::Tsc,
        Source::Counter => TicksClock::Cntvct,
    };
    let program = std::env::args_os().next().unwrap_or_default();
    let program = std::path::Path::new(&program).file_name().unwrap_or_default();
    Header {
        ticks_clock,
        pid: std::process::id(),
        program: program.to_string_lossy().into_owned(),
        procs: sched.procs(),
        wait_reasons: emit::wait_reasons(),
    }
}

/// This moment on all clocks.
pub(super) fn clock() -> Clock {
    let (ticks, monotonic_ns, unix_ns) = ticks::moment();
    Clock { ticks, monotonic_ns, unix_ns }
}

/// Writes a buffer.
pub(super) fn write<W: Write>(
    writer: &mut Writer<W>,
    context: &Context,
    records: &[Record],
) -> io::Result<()> {
    let is_text = |record: &Record| record.kind() == Some(Kind::Text);
    if !records.iter().any(is_text) {
        return writer.block(context, records, site);
    }
    let mut numbered = Vec::with_capacity(records.len());
    let mut text = Vec::new();
    let mut rest = records;
    while let Some((&record, after)) = rest.split_first() {
        let n = after.iter().take_while(|record| is_text(record)).count();
        let (pieces, next) = after.split_at(n);
        rest = next;
        if pieces.is_empty() {
            numbered.push(record);
            continue;
        }
        text.clear();
        for piece in pieces {
            let (bytes, len): ([u8; TEXT_BYTES], usize) = piece.text_bytes();
            text.extend_from_slice(&bytes[..len]);
        }
        let text = String::from_utf8_lossy(&text);
        let number = if record.kind() == Some(Kind::Log) {
            writer.new_string(&text)?
        } else {
            writer.string(&text)?
        };
        numbered.push(record.with_subject(number));
    }
    writer.block(context, &numbered, site)
}

/// The place at an address of a `Site` record.
fn site(address: u64) -> Option<Site> {
    let location = std::ptr::with_exposed_provenance::<Location<'static>>(address as usize);
    // SAFETY: null, or the address that a hook took from a reference to a static location.
    unsafe { location.as_ref() }.map(Site::from)
}

/// What the goroutines of a runtime do, each at some moment of the call.
pub(super) fn goroutines(sched: &Sched) -> Vec<Goroutine> {
    let mut on_ms = OnMs::default();
    for m in sched.threads.all_ms().iter() {
        on_ms.current.extend(m.current().map(|gp| std::ptr::from_ref(gp).addr()));
        on_ms.calls.extend(emit::call_of(m));
    }
    // There are few places, and there may be a million goroutines.
    let mut sites: HashMap<usize, Arc<Site>> = HashMap::new();
    let mut site = |place: &Location<'_>| {
        let at = std::ptr::from_ref(place).addr();
        Arc::clone(sites.entry(at).or_insert_with(|| Arc::new(Site::from(place))))
    };
    let mut found = Vec::new();
    pool::for_each(|gp| {
        let (status, number) = gp.status.look();
        if status == Status::Dead
            || !std::ptr::eq(gp.sched.get(), sched)
            || gp.flags.has(Flag::ABANDONED)
        {
            return;
        }
        // A goroutine must not be preempted while it holds the lock of the pool, and must not
        // allocate while it cannot be preempted.
        let rt = current::enter();
        let name = gp.extras.name();
        drop(rt);
        let goroutine = Goroutine {
            site: gp.spawn_site().map(&mut site),
            name: name.map_or_else(String::new, |name| name.as_str().to_owned()),
            ..describe(gp, status, number, &on_ms)
        };
        // Otherwise the record may describe two goroutines.
        if gp.status.look() == (status, number) && goroutine.id != 0 {
            found.push(goroutine);
        }
    });
    found
}

/// Goroutines that are on an M, by the addresses of their records.
#[derive(Default)]
struct OnMs {
    current: HashSet<usize>,
    /// Those in a call, with their numbers.
    calls: HashMap<usize, u64>,
}

/// What a goroutine does, without its site and its name.
fn describe(gp: &G, status: Status, number: u64, on_ms: &OnMs) -> Goroutine {
    let at = std::ptr::from_ref(gp).addr();
    // The pointer is not followed: the record may be recycled at any time, and then points to
    // something else.
    let frozen = || !gp.bound_m.get().is_null() && on_ms.current.contains(&at);
    let state = match status {
        Status::Waiting if gp.flags.has(Flag::UNBORN) => State::Unborn,
        Status::Waiting => State::Waiting,
        Status::Runnable if frozen() => State::Frozen,
        Status::Runnable | Status::Dead => State::Runnable,
        Status::Running if on_ms.calls.get(&at) == Some(&number) => State::InCall,
        Status::Running => State::Running,
    };
    Goroutine {
        id: gp.id.get(),
        parent: gp.parent_id.get(),
        number: number as u16,
        state,
        wait_reason: gp.wait_reason() as u8,
        class: emit::class(gp),
        is_task: gp.flags.has(Flag::TASK),
        site: None,
        name: String::new(),
    }
}
