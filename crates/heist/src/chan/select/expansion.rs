//! What `select!` expands to, step by step.

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
             `send(sender, message) -> result => expression`, \
             `send_from(sender, &mut option) -> result => expression`, `default => expression` or \
             `default(timeout) => expression`, with a comma after every expression but a block")
    };
}

/// Adds one case to those that were read. Each result gets its own name.
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
    ($choice:ident [$($cases:tt)*] $default:tt
        send_from ($sender:expr, $place:expr $(,)?) ($result:pat) ($body:expr) $($rest:tt)*) => {
        $crate::__select_parse!(
            $choice [$($cases)* {send_from kept ($sender, $place) ($result) ($body)}] $default
            $($rest)*)
    };
    ($choice:ident $cases:tt [] default () () ($body:expr) $($rest:tt)*) => {
        $crate::__select_parse!($choice $cases [{() ($body)}] $($rest)*)
    };
    ($choice:ident $cases:tt [] default ($timeout:expr $(,)?) () ($body:expr) $($rest:tt)*) => {
        $crate::__select_parse!($choice $cases [{($timeout) ($body)}] $($rest)*)
    };
    ($choice:ident $cases:tt [$($one:tt)+] default $($rest:tt)*) => {
        ::core::compile_error!("select!: only one `default` is allowed")
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
    ($choice:ident $cases:tt $default:tt send_from $args:tt () $($rest:tt)*) => {
        ::core::compile_error!(
            "select!: write `send_from(sender, &mut option) -> result => expression`")
    };
    ($choice:ident $cases:tt $default:tt $kind:ident $($rest:tt)*) => {
        ::core::compile_error!(::core::concat!(
            "select!: `", ::core::stringify!($kind), "` is not a case, or its arguments are wrong: \
             `recv(receiver) -> result`, `send(sender, message) -> result`, \
             `send_from(sender, &mut option) -> result`, `default` and `default(timeout)` are \
             cases"))
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

/// Evaluates the cases one after the other, each nested in the one before, so that the borrowed
/// values live until a case is chosen.
#[doc(hidden)]
#[macro_export]
macro_rules! __select_choose {
    ($choice:ident $default:tt [$($made:tt)*] {recv $kept:ident ($receiver:expr)} $($rest:tt)*) => {
        match $receiver {
            ref receiver => {
                let receiver: &$crate::chan::Receiver<_> = receiver;
                $crate::__select_choose!(
                    $choice $default [$($made)* {recv $kept receiver ()}] $($rest)*)
            }
        }
    };
    ($choice:ident $default:tt [$($made:tt)*]
        {send $kept:ident ($sender:expr, $message:expr)} $($rest:tt)*) => {
        match $sender {
            ref sender => {
                let sender: &$crate::chan::Sender<_> = sender;
                let mut message = $crate::chan::select_parts::message(sender, $message);
                $crate::__select_choose!(
                    $choice $default [$($made)* {send $kept sender (message)}] $($rest)*)
            }
        }
    };
    ($choice:ident $default:tt [$($made:tt)*]
        {send_from $kept:ident ($sender:expr, $place:expr)} $($rest:tt)*) => {
        match $sender {
            ref sender => {
                let sender: &$crate::chan::Sender<_> = sender;
                let place = $crate::chan::select_parts::place(sender, $place);
                $crate::__select_choose!(
                    $choice $default [$($made)* {send_from $kept sender (place)}] $($rest)*)
            }
        }
    };
    // No items here: the expression of the timeout could name them, because only names of variables
    // are hygienic.
    ($choice:ident $default:tt [$({$kind:ident $kept:ident $end:ident ($($message:ident)?)})*]) => {{
        let choice = $crate::chan::select_parts::Choice::$choice;
        let attempt = |_which, _inside: $crate::chan::select_parts::Inside<'_>| {
            let mut _case = 0;
            $(
                if _which == _case {
                    return $crate::__select_try!($kind $end ($($message)?) _inside $kept);
                }
                _case += 1;
            )*
            false
        };
        // SAFETY: it is one of the two attempts and contains no expression of the user; those were
        // evaluated before.
        let done = unsafe {
            $crate::chan::select_parts::try_once::<{
                <[&::core::primitive::str]>::len(&[$(::core::stringify!($kind)),*])
            }>(choice, attempt)
        };
        if !done {
            $(let mut $end = $crate::__select_case!($kind $end ($($message)?));)*
            $crate::__select_wait!($default choice [$($end.handle()),*]);
            $(if $end.is_chosen() {
                $kept = ::core::option::Option::Some($end.take());
            })*
        }
    }};
}

#[doc(hidden)]
#[macro_export]
macro_rules! __select_try {
    (recv $receiver:ident () $inside:ident $kept:ident) => {
        $crate::chan::select_parts::try_recv($receiver, $inside, &mut $kept)
    };
    (send $sender:ident ($message:ident) $inside:ident $kept:ident) => {
        $crate::chan::select_parts::try_send($sender, &mut $message, $inside, &mut $kept)
    };
    (send_from $sender:ident ($place:ident) $inside:ident $kept:ident) => {
        $crate::chan::select_parts::try_send($sender, $place, $inside, &mut $kept)
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __select_case {
    (recv $receiver:ident ()) => {
        $crate::chan::select_parts::RecvCase::new($receiver)
    };
    (send $sender:ident ($message:ident)) => {
        $crate::chan::select_parts::SendCase::new($sender, $message)
    };
    (send_from $sender:ident ($place:ident)) => {
        $crate::chan::select_parts::SendCase::lent($sender, $place)
    };
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
