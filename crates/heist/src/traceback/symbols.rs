//! The functions, files and lines of addresses, kept once they were found.
//!
//! Finding them allocates and reads files, so only reports do it, never the scheduler.

use crate::sys::symbols::Symbols;
use backtrace::SymbolName;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A function at an address. One that was inlined has the same address as its caller.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    /// Its name, demangled.
    pub(crate) name: String,
    pub(crate) file: Option<String>,
    pub(crate) line: u32,
    pub(crate) side: Side,
}

/// Whose a function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Of heist, or of the switch of stacks.
    Runtime,
    /// Of the language: it may be called by both others.
    Language,
    /// Of the program.
    Program,
}

/// The functions at one address, the innermost first.
pub(crate) type Functions = Arc<[Function]>;

/// More addresses than this are not kept.
const KEPT_MAX: usize = 1 << 16;

fn kept() -> &'static Mutex<HashMap<usize, Functions>> {
    static KEPT: OnceLock<Mutex<HashMap<usize, Functions>>> = OnceLock::new();
    KEPT.get_or_init(Mutex::default)
}

/// The symbol table of the program, if it was not stripped.
fn table() -> Option<&'static Symbols> {
    static TABLE: OnceLock<Option<Symbols>> = OnceLock::new();
    TABLE.get_or_init(Symbols::open).as_ref()
}

/// The functions at an address. One without a name, if none is known.
pub(crate) fn at(address: usize) -> Functions {
    let lock = || kept().lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = lock().get(&address) {
        return Arc::clone(known);
    }
    let mut functions = Vec::new();
    // It takes an address for the one behind a call, and looks at the byte in front of it.
    let behind = address.wrapping_add(1) as *mut _;
    backtrace::resolve(behind, |symbol| functions.push(Function::new(symbol)));
    if functions.is_empty() {
        functions.push(Function::unknown(address));
    }
    // The last one is not inlined. Debug information that has lines only does not have its path,
    // but the symbol table does.
    if let Some(last) = functions.last_mut().filter(|last| !last.name.contains("::"))
        && let Some(name) = table().and_then(|table| table.mangled_name_of(address))
    {
        last.name = format!("{:#}", SymbolName::new(name.as_bytes()));
        last.side = Side::of(&last.name, last.file.as_deref());
    }
    let functions: Functions = functions.into();
    let mut kept = lock();
    if kept.len() < KEPT_MAX {
        kept.insert(address, Arc::clone(&functions));
    }
    functions
}

impl Function {
    fn new(symbol: &backtrace::Symbol) -> Self {
        // Without the hash at its end.
        let name = symbol.name().map_or_else(|| "?".to_owned(), |name| format!("{name:#}"));
        let file = symbol.filename().map(|file| file.display().to_string());
        let side = Side::of(&name, file.as_deref());
        Self { name, file, line: symbol.lineno().unwrap_or(0), side }
    }

    fn unknown(address: usize) -> Self {
        let name = format!("{address:#x}");
        Self { name, file: None, line: 0, side: Side::Program }
    }

    /// `file:line`, or a question mark.
    pub(crate) fn place(&self) -> Place<'_> {
        Place(self)
    }
}

/// Where a function is in its source.
pub(crate) struct Place<'a>(&'a Function);

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.file {
            Some(file) => write!(f, "{file}:{}", self.0.line),
            None => f.write_str("?"),
        }
    }
}

impl Side {
    /// The side of a function with this name in this file. Debug information that has lines only
    /// has names without paths.
    fn of(name: &str, file: Option<&str>) -> Self {
        /// Parts of paths: of sources in a registry or a workspace, and of those of the toolchain.
        const RUNTIME_FILES: [&str; 4] = [
            "/heist-core/src/",
            "/heist-core-",
            "/corosensei-",
            concat!(env!("CARGO_MANIFEST_DIR"), "/src/"),
        ];
        const LANGUAGE_FILES: [&str; 3] =
            ["/library/core/src/", "/library/std/src/", "/library/alloc/src/"];
        const RUNTIME: [&str; 3] = ["heist::", "heist_core::", "corosensei::"];
        const LANGUAGE: [&str; 3] = ["core::", "std::", "alloc::"];
        const UNMANGLED: [&str; 4] =
            ["__rust_try", "stack_init_trampoline", "stack_call_trampoline", "__rust_begin_short"];
        // `<heist::A as core::B>::c` is of the crate that defines the type, `<&T as ..>` too.
        let path = name.trim_start_matches(['<', '&', '*', '_']).trim_start_matches("mut ");
        let starts = |roots: &[&str]| roots.iter().any(|root| path.starts_with(root));
        let lies_in =
            |parts: &[&str]| file.is_some_and(|file| parts.iter().any(|part| file.contains(part)));
        if lies_in(&RUNTIME_FILES) {
            return Self::Runtime;
        }
        if lies_in(&LANGUAGE_FILES) {
            return Self::Language;
        }
        if starts(&RUNTIME) || UNMANGLED.iter().any(|start| name.starts_with(start)) {
            Self::Runtime
        } else if starts(&LANGUAGE) {
            Self::Language
        } else {
            Self::Program
        }
    }
}

/// The functions of a stack that a reader wants to see: without those of the runtime below the call
/// that the program made, and without those that started the goroutine. Of a call into the runtime
/// that calls the program again, the outermost function is shown. All functions, if nothing else is
/// left.
pub(crate) fn shown<T>(stack: Vec<T>, side: impl Fn(&T) -> Side) -> Vec<T> {
    let sides: Vec<Side> = stack.iter().map(side).collect();
    let mut is_shown = vec![false; stack.len()];
    let mut start = 0;
    for run in sides.chunk_by(|a, b| (*a == Side::Program) == (*b == Side::Program)) {
        let end = start + run.len();
        // The language may be between two functions of the runtime, or around them.
        let outermost = run.iter().rposition(|side| *side == Side::Runtime);
        let (is_first, is_last) = (start == 0, end == stack.len());
        match outermost {
            None => is_shown[start..end].fill(true),
            Some(_) if is_last => {}
            Some(at) if is_first => is_shown[start + at + 1..end].fill(true),
            Some(at) => is_shown[start + at] = true,
        }
        start = end;
    }
    if !sides.contains(&Side::Program) {
        return stack;
    }
    stack.into_iter().zip(is_shown).filter_map(|(line, shown)| shown.then_some(line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn begins_here() -> usize {
        std::hint::black_box(begins_here as *const () as usize)
    }

    #[test]
    fn the_first_byte_of_a_function_is_in_it() {
        let found = at(begins_here());
        assert!(found.iter().any(|function| function.name.ends_with("begins_here")), "{found:?}");
    }

    #[test]
    fn functions_are_on_the_side_of_their_crate() {
        for (name, side) in [
            ("heist::chan::Receiver<T>::recv", Side::Runtime),
            ("<heist::chan::Receiver<T> as core::iter::Iterator>::next", Side::Runtime),
            ("<&mut heist::net::TcpStream as std::io::Read>::read", Side::Runtime),
            ("corosensei::arch::switch_yield", Side::Runtime),
            ("std::io::Read::read_exact", Side::Language),
            ("core::ops::function::FnOnce::call_once{{vtable.shim}}", Side::Language),
            ("heistlike::main", Side::Program),
            ("scheduling::dump::waits::{{closure}}", Side::Program),
            ("main", Side::Program),
        ] {
            assert_eq!(Side::of(name, None), side, "{name}");
        }
    }

    #[test]
    fn a_name_without_a_path_is_on_the_side_of_its_file() {
        let side = |file: &str| Side::of("{closure#0}", Some(file));
        assert_eq!(side("/home/me/x/src/main.rs"), Side::Program);
        assert_eq!(side("/rustc/0123/library/core/src/ops/function.rs"), Side::Language);
        assert_eq!(side(&format!("{}/src/go.rs", env!("CARGO_MANIFEST_DIR"))), Side::Runtime);
        assert_eq!(side("/home/me/.cargo/registry/src/x/corosensei-0.3.4/src/a.rs"), Side::Runtime);
    }

    #[test]
    fn the_runtime_is_hidden_at_both_ends() {
        use Side::{Language as L, Program as P, Runtime as R};
        let shown = |stack: &[Side]| shown(stack.to_vec(), |&side| side);
        assert_eq!(shown(&[R, L, R, P, L, R, R, L, P, L, R, R]), [P, R, P]);
        assert_eq!(shown(&[R, L, P, R]), [L, P]);
        assert_eq!(shown(&[L, L, P, L]), [L, L, P, L]);
        assert_eq!(shown(&[R, R]), [R, R]);
        assert_eq!(shown(&[]), []);
    }
}
