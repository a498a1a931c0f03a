//! The attribute macros of heist: `#[heist::main(unsafe)]` and `#[heist::test(unsafe)]`.
//!
//! Both wrap a plain function so that its body runs as the main goroutine of a new runtime.
//! Use them through the `heist` crate, which re-exports them: the expansion names `::heist`,
//! unless `crate = path` says otherwise.
//!
//! # Invariants
//! - Without the word `unsafe` nothing is started: the macro states the promise and refuses.
//! - User expressions (option values, the body) are never placed inside the `unsafe` block.
//! - A refused function still exists for the compiler, so that one mistake gives one error.

#![warn(missing_docs)]

mod expand;
mod options;

use proc_macro::TokenStream;

use crate::expand::Attribute;

/// Runs the function as the main goroutine of its own runtime.
///
/// ```
/// #[heist::main(unsafe)]
/// fn main() {
///     let answer = heist::go(|| 6 * 7).join().unwrap();
///     println!("{answer}");
/// }
/// ```
///
/// The word `unsafe` is the promise of `heist::docs::safety`: a goroutine can move to another OS
/// thread at every park point, so no thread-local borrow, no `Rc` out of one and no other `!Send`
/// value lives on a goroutine's stack across a park.
///
/// Options follow in the same list and are handed to `heist::Runtime::builder()`:
///
/// | option | value |
/// |---|---|
/// | `procs = 2` | number of Ps |
/// | `stack_size = 64 * 1024` | bytes of address space for each goroutine's stack |
/// | `name = "api"` | name of the runtime |
/// | `latency_procs = 1` | how many Ps are reserved for urgent goroutines |
/// | `max_threads = 100` | how many threads run goroutines at most |
/// | `steal_policy`, `panic_policy`, `overflow_policy`, `fractional_quota` | a policy |
/// | `quantum`, `wake_up_bound`, `shutdown_timeout` | a duration |
/// | `forced_preemption = false`, `deadlock_detection = false` | on or off |
/// | `seed = 42`, `chaos = 42` | seeds |
/// | `crate = other::path` | the path of heist, if the dependency is renamed or re-exported |
///
/// Each value is an expression of the type that the method of the same name takes:
///
/// ```
/// use std::time::Duration;
///
/// #[heist::main(
///     unsafe,
///     procs = 2,
///     quantum = Duration::from_millis(5),
///     panic_policy = heist::PanicPolicy::Abort,
///     deadlock_detection = false
/// )]
/// fn main() {
///     let rt = heist::Handle::current().unwrap();
///     assert_eq!(rt.panic_policy(), heist::PanicPolicy::Abort);
/// }
/// ```
///
/// A crate that re-exports heist, or names it otherwise:
///
/// ```
/// mod prelude {
///     pub use heist;
/// }
///
/// #[prelude::heist::main(unsafe, crate = prelude::heist)]
/// fn main() {
///     prelude::heist::yield_now();
/// }
/// ```
///
/// Attributes and visibility of the function are kept. Its return value is turned into the exit
/// code on its goroutine, as Rust does for a plain `main`, so it need not be `Send`:
///
/// ```no_run
/// #[heist::main(unsafe)]
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let text = std::fs::read_to_string("input.txt")?;
///     println!("{}", heist::go(move || text.len()).join()?);
///     Ok(())
/// }
/// ```
///
/// If the runtime cannot be started, the program prints `heist: <error>` to stderr and exits with
/// code 2.
#[proc_macro_attribute]
pub fn main(args: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(Attribute::Main, args.into(), item.into()).into()
}

/// Makes the function a `#[test]` whose body is the main goroutine of its own runtime.
///
/// Takes the options of [`macro@main`]. In addition `procs` may be a list, then the body runs
/// once for each value, one runtime after the other, and a failure says with which value:
///
/// ```no_run
/// #[heist::test(unsafe, procs = [1, 2, 4, 16])]
/// fn every_goroutine_ends() {
///     let handles: Vec<_> = (0..100).map(|i| heist::go(move || i)).collect();
///     assert_eq!(handles.into_iter().map(|h| h.join().unwrap()).sum::<u32>(), 4950);
/// }
/// ```
///
/// `#[should_panic]` works as usual; with a list of `procs` every run has to panic, and the
/// message of the last one is compared with `expected`.
#[proc_macro_attribute]
pub fn test(args: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(Attribute::Test, args.into(), item.into()).into()
}
