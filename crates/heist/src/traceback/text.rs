//! Stacks as text, in the form of Go's.
//!
//! GO: traceback.go traceback, goroutineheader; pprof.go printCountProfile.

use super::Absent;
use super::collect::Entry;
use super::symbols::{self, Functions, Side};
use crate::coro::extra::{self, Extra};
use crate::coro::stack::Class;
use crate::coro::stack_pool;
use crate::current;
use crate::gmp::described::Described;
use crate::sys::walk::{End, Frames};
use heist_core::sync::{AtomicUsize, Ordering};
use std::collections::HashMap;
use std::fmt::{self, Write};
use std::panic::resume_unwind;
use std::sync::Arc;

/// Which functions of a stack are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Show {
    /// Those of the program, and what it calls of the language.
    #[default]
    Program = 0,
    /// Those of the runtime too.
    All = 1,
}

/// Of dumps and reports of this process.
static SHOW: AtomicUsize = AtomicUsize::new(Show::Program as usize);

/// From now on dumps and reports show these functions.
pub(crate) fn show(show: Show) {
    SHOW.store(show as usize, Ordering::Relaxed);
}

/// One line of a stack.
enum Line<'a> {
    Function {
        functions: &'a Functions,
        nth: usize,
    },
    /// So many frames that are not kept.
    Elided(usize),
}

impl Line<'_> {
    fn side(&self) -> Side {
        match self {
            Line::Function { functions, nth } => functions[*nth].side,
            Line::Elided(_) => Side::Program,
        }
    }
}

/// Calls `with` with the functions of a stack that are shown, the innermost first.
fn with_lines<R>(frames: &Frames, show: Show, with: impl FnOnce(&[Line<'_>]) -> R) -> R {
    let found: Vec<_> = frames.addresses().iter().map(|&address| symbols::at(address)).collect();
    let mut lines = Vec::new();
    for (n, functions) in found.iter().enumerate() {
        if let Some((at, elided)) = frames.elided()
            && at == n
        {
            lines.push(Line::Elided(elided));
        }
        for nth in 0..functions.len() {
            lines.push(Line::Function { functions, nth });
        }
    }
    match show {
        Show::All => with(&lines),
        Show::Program => with(&symbols::shown(lines, Line::side)),
    }
}

/// Writes a stack: each function, then the place of the call in it.
pub(crate) fn write_stack(stack: Result<&Frames, Absent>, f: &mut dyn Write) -> fmt::Result {
    let all = SHOW.load(Ordering::Relaxed) == Show::All as usize;
    match stack {
        Ok(frames) => write_frames(frames, if all { Show::All } else { Show::Program }, f),
        Err(absent) => writeln!(f, "\t({absent})"),
    }
}

fn write_frames(frames: &Frames, show: Show, f: &mut dyn Write) -> fmt::Result {
    with_lines(frames, show, |lines| {
        for line in lines {
            match *line {
                Line::Elided(n) => writeln!(f, "...{n} frames elided...")?,
                Line::Function { functions, nth } => {
                    let function = &functions[nth];
                    writeln!(f, "{}\n\t{}", function.name, function.place())?;
                }
            }
        }
        Ok(())
    })?;
    match frames.end {
        End::Base => Ok(()),
        End::Lost => writeln!(f, "\t(the rest of the stack cannot be walked)"),
    }
}

/// All goroutines with their stacks, the calling one first, then by number.
pub(crate) fn dump(mut entries: Vec<Entry>, own: Option<u64>) -> String {
    entries.sort_by_key(|entry| (Some(entry.id) != own, entry.id));
    on_large_stack(|| {
        let mut text = String::new();
        let mut written: HashMap<*const Frames, String> = HashMap::new();
        for entry in &entries {
            text.push_str(&entry.header);
            // Writing to a String does not fail.
            match &entry.stack {
                Ok(frames) => {
                    text.push_str(written.entry(Arc::as_ptr(frames)).or_insert_with(|| {
                        let mut stack = String::new();
                        let _ = write_stack(Ok(frames), &mut stack);
                        stack
                    }))
                }
                Err(absent) => drop(write_stack(Err(*absent), &mut text)),
            }
            let _ = Described::at(entry.gp, 0).write_origin(&mut text);
            text.push('\n');
        }
        text
    })
}

/// Runs `f`, which does not park, on a stack on which debug information can be read: that of the
/// caller, unless it is a goroutine's with little room.
pub(crate) fn on_large_stack<R>(f: impl FnOnce() -> R) -> R {
    const BYTES: usize = 512 << 10;
    let owner = current::goroutine();
    if owner.is_none() || extra::room(owner).is_some_and(|room| room >= BYTES) {
        return f();
    }
    let stack = {
        let _rt = current::enter();
        Class::for_bytes(2 * BYTES).and_then(|class| stack_pool::take(class).ok())
    };
    let Some(stack) = stack else { return f() };
    let result = Extra::new(&stack, owner).call(f);
    let rt = current::enter();
    stack_pool::give(stack);
    drop(rt);
    result.unwrap_or_else(|payload| resume_unwind(payload))
}
