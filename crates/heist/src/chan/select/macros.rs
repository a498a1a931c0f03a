//! The macros `select!` and `select_biased!`, and what their expansion calls.
//!
//! The expansion has two parts. In the first the channels and messages are evaluated, in the order in
//! which they are written, and become cases on the stack; one is chosen, and its result is kept. Then
//! everything that was borrowed is released, and in the second part the expression of the case that
//! was chosen runs, in the function of the caller: it may return, break, and use the channels again.

use super::super::state::Patience;
use super::{Handle, Preference, select};
use std::time::Duration;

/// Which case is chosen if several are ready.
#[derive(Clone, Copy, Debug)]
pub enum Choice {
    /// Any, each as likely as the others.
    Any,
    /// The first.
    First,
}

impl From<Choice> for Preference {
    fn from(choice: Choice) -> Self {
        match choice {
            Choice::Any => Self::Any,
            Choice::First => Self::First,
        }
    }
}

/// Waits until one of the cases is done.
#[inline]
pub fn choose(choice: Choice, cases: &mut [Handle<'_>]) {
    select(cases, choice.into(), Patience::ENDLESS);
}

/// Does one of the cases if that is possible now.
#[inline]
pub fn choose_now(choice: Choice, cases: &mut [Handle<'_>]) {
    select(cases, choice.into(), Patience::None);
}

/// Waits until one of the cases is done, but not longer than that.
pub fn choose_within(choice: Choice, cases: &mut [Handle<'_>], timeout: Duration) {
    select(cases, choice.into(), Patience::lasting(timeout));
}

/// Does whichever of several channel operations can be done first.
///
/// ```text
/// select! {
///     recv(receiver) -> result => expression,
///     send(sender, message) -> result => expression,
///     default => expression,            // if nothing can be done now
///     default(timeout) => expression,   // if nothing can be done for so long
/// }
/// ```
///
/// The result is a `Result<T, RecvError>` or a `Result<(), SendError<T>>`; a closed channel is ready, with
/// an error. If several operations can be done, one of them is chosen at random, each as likely as the
/// others; [`select_biased!`](crate::select_biased) prefers the first. Without a default it waits. Without
/// any case it waits for ever.
///
/// Channels and messages are evaluated once, in the order in which they are written, as in Go. A message
/// that is not sent because another case was chosen is dropped. The expression of the chosen case is the
/// value of the macro; `return`, `break` and `?` in it mean the surrounding function.
///
/// # Examples
/// ```
/// use heist::{chan, select};
/// use std::time::Duration;
///
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// let (tx, rx) = chan::bounded(1);
/// let (out, _kept) = chan::bounded::<u32>(0);
/// tx.send("hello").unwrap();
/// let got = select! {
///     recv(rx) -> message => message.unwrap(),
///     send(out, 7) -> sent => {
///         sent.unwrap();
///         "sent"
///     }
/// };
/// assert_eq!(got, "hello");
///
/// let nothing = select! {
///     recv(rx) -> _ => false,
///     default(Duration::from_millis(1)) => true,
/// };
/// assert!(nothing);
/// # });
/// ```
///
/// What is not a case is named:
///
/// ```compile_fail
/// # let rx = heist::chan::never::<u8>();
/// heist::select! { receive(rx) -> message => () }
/// ```
#[macro_export]
#[doc(alias = "selectgo")]
macro_rules! select {
    ($($cases:tt)*) => { $crate::__select_parse!(Any [] [] $($cases)*) };
}

/// As [`select!`](crate::select), but if several operations can be done, the first one is.
///
/// # Examples
/// ```
/// use heist::{chan, select_biased};
///
/// let (urgent, first) = chan::bounded(1);
/// let (usual, second) = chan::bounded(1);
/// urgent.send(1).unwrap();
/// usual.send(2).unwrap();
/// let got = select_biased! {
///     recv(first) -> message => message,
///     recv(second) -> message => message,
/// };
/// assert_eq!(got, Ok(1));
/// ```
#[macro_export]
macro_rules! select_biased {
    ($($cases:tt)*) => { $crate::__select_parse!(First [] [] $($cases)*) };
}

/// Reads one case after the other.
#[doc(hidden)]
#[macro_export]
macro_rules! __select_parse {
    // The body ends with a comma, or at the end, or it is a block.
    ($choice:ident $cases:tt $default:tt
        $kind:ident $(($($args:tt)*))? $(-> $result:pat)? => $body:expr, $($rest:tt)*) => {
        $crate::__select_add!(
            $choice $cases $default $kind ($($($args)*)?) ($($result)?) ($body) $($rest)*)
    };
    ($choice:ident $cases:tt $default:tt
        $kind:ident $(($($args:tt)*))? $(-> $result:pat)? => $body:expr) => {
        $crate::__select_add!(
            $choice $cases $default $kind ($($($args)*)?) ($($result)?) ($body))
    };
    ($choice:ident $cases:tt $default:tt
        $kind:ident $(($($args:tt)*))? $(-> $result:pat)? => $body:block $($rest:tt)*) => {
        $crate::__select_add!(
            $choice $cases $default $kind ($($($args)*)?) ($($result)?) ($body) $($rest)*)
    };
    ($choice:ident [$($cases:tt)*] $default:tt) => {
        $crate::__select_run!($choice [$($cases)*] $default)
    };
    ($choice:ident $cases:tt $default:tt $($rest:tt)*) => {
        ::core::compile_error!(
            "select!: a case is `recv(receiver) -> result => expression`, \
             `send(sender, message) -> result => expression`, `default => expression` or \
             `default(timeout) => expression`, with a comma after every expression but a block")
    };
}

/// Adds one case to those that were read. Each gets a name of its own for its result.
#[doc(hidden)]
#[macro_export]
macro_rules! __select_add {
    ($choice:ident [$($cases:tt)*] $default:tt
        recv ($receiver:expr $(,)?) ($result:pat) ($body:expr) $($rest:tt)*) => {
        $crate::__select_parse!(
            $choice [$($cases)* {recv kept ($receiver) ($result) ($body)}] $default $($rest)*)
    };
    ($choice:ident [$($cases:tt)*] $default:tt
        send ($sender:expr, $message:expr $(,)?) ($result:pat) ($body:expr) $($rest:tt)*) => {
        $crate::__select_parse!(
            $choice [$($cases)* {send kept ($sender, $message) ($result) ($body)}] $default
            $($rest)*)
    };
    ($choice:ident $cases:tt [] default () () ($body:expr) $($rest:tt)*) => {
        $crate::__select_parse!($choice $cases [{() ($body)}] $($rest)*)
    };
    ($choice:ident $cases:tt [] default ($timeout:expr $(,)?) () ($body:expr) $($rest:tt)*) => {
        $crate::__select_parse!($choice $cases [{($timeout) ($body)}] $($rest)*)
    };
    ($choice:ident $cases:tt [$($one:tt)+] default $($rest:tt)*) => {
        ::core::compile_error!("select!: there can be one `default` only")
    };
    ($choice:ident $cases:tt $default:tt default $args:tt ($result:pat) $($rest:tt)*) => {
        ::core::compile_error!("select!: `default` has no result: write `default => expression`")
    };
    ($choice:ident $cases:tt $default:tt recv $args:tt () $($rest:tt)*) => {
        ::core::compile_error!("select!: write `recv(receiver) -> result => expression`")
    };
    ($choice:ident $cases:tt $default:tt send $args:tt () $($rest:tt)*) => {
        ::core::compile_error!("select!: write `send(sender, message) -> result => expression`")
    };
    ($choice:ident $cases:tt $default:tt $kind:ident $($rest:tt)*) => {
        ::core::compile_error!(::core::concat!(
            "select!: `", ::core::stringify!($kind), "` is not a case, or its arguments are wrong: \
             `recv(receiver) -> result`, `send(sender, message) -> result`, `default` and \
             `default(timeout)` are cases"))
    };
}

/// Chooses a case, then runs its body.
#[doc(hidden)]
#[macro_export]
macro_rules! __select_run {
    ($choice:ident [$({$kind:ident $kept:ident $args:tt ($result:pat) ($body:expr)})*] $default:tt)
    => {{
        $(let mut $kept = ::core::option::Option::None;)*
        $crate::__select_choose!($choice $default [] $({$kind $kept $args})*);
        match () {
            $(() if $kept.is_some() => {
                let $result = $kept.unwrap();
                $body
            })*
            () => $crate::__select_default!($default),
        }
    }};
}

/// Makes a case of each, inside the one before, so that what is borrowed lives until one was chosen.
#[doc(hidden)]
#[macro_export]
macro_rules! __select_choose {
    ($choice:ident $default:tt [$($made:tt)*] {recv $kept:ident ($receiver:expr)} $($rest:tt)*) => {
        match $receiver {
            ref receiver => {
                let receiver: &$crate::chan::Receiver<_> = receiver;
                let mut case = $crate::chan::select_parts::RecvCase::new(receiver);
                $crate::__select_choose!($choice $default [$($made)* {$kept case}] $($rest)*)
            }
        }
    };
    ($choice:ident $default:tt [$($made:tt)*]
        {send $kept:ident ($sender:expr, $message:expr)} $($rest:tt)*) => {
        match $sender {
            ref sender => {
                let sender: &$crate::chan::Sender<_> = sender;
                let mut case = $crate::chan::select_parts::SendCase::new(sender, $message);
                $crate::__select_choose!($choice $default [$($made)* {$kept case}] $($rest)*)
            }
        }
    };
    ($choice:ident $default:tt [$({$kept:ident $case:ident})*]) => {{
        let choice = $crate::chan::select_parts::Choice::$choice;
        $crate::__select_wait!($default choice [$($case.handle()),*]);
        $(if $case.is_chosen() {
            $kept = ::core::option::Option::Some($case.take());
        })*
    }};
}

#[doc(hidden)]
#[macro_export]
macro_rules! __select_wait {
    ([] $choice:ident $cases:expr) => {
        $crate::chan::select_parts::choose($choice, &mut $cases)
    };
    ([{() ($body:expr)}] $choice:ident $cases:expr) => {
        $crate::chan::select_parts::choose_now($choice, &mut $cases)
    };
    ([{($timeout:expr) ($body:expr)}] $choice:ident $cases:expr) => {
        $crate::chan::select_parts::choose_within($choice, &mut $cases, $timeout)
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __select_default {
    ([]) => {
        ::core::unreachable!("select! without a default chose no case")
    };
    ([{$timeout:tt ($body:expr)}]) => {
        $body
    };
}
