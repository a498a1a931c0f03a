//! The life of a goroutine: every legal step, every illegal one, and tickets.
#![cfg(not(loom))]

use Status::{Dead, Runnable, Running, Waiting};
use heist_core::status::{Status, StatusWord, Ticket};
use std::panic::catch_unwind;

/// IN-35's table, without the statuses that heist does not have.
const LEGAL: &[(Status, Status)] = &[
    (Dead, Runnable),
    (Dead, Waiting),
    (Runnable, Running),
    (Running, Runnable),
    (Running, Waiting),
    (Running, Dead),
    (Waiting, Runnable),
];

/// A goroutine that came to `status` by legal steps.
fn goroutine_that_is(status: Status) -> StatusWord {
    let word = StatusWord::new();
    let steps: &[Status] = match status {
        Dead => &[],
        Runnable => &[Runnable],
        Running => &[Runnable, Running],
        Waiting => &[Runnable, Running, status],
    };
    let mut now = Dead;
    for &next in steps {
        word.transition(now, next);
        now = next;
    }
    assert_eq!(word.get(), status);
    word
}

/// Whether `act` threw; any other panic fails the test.
fn throws(act: impl FnOnce() + std::panic::UnwindSafe) -> bool {
    match catch_unwind(act) {
        Ok(()) => false,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().expect("a throw has a text");
            assert!(text.starts_with("throw: StatusWord: "), "{text}");
            true
        }
    }
}

/// IN-35: of all pairs exactly the legal ones pass; the others throw and change nothing.
#[test]
fn only_legal_transitions_pass() {
    for from in Status::ALL {
        for to in Status::ALL {
            let legal = LEGAL.contains(&(from, to));
            assert_eq!(from.may_become(to), legal, "{from:?} -> {to:?}");
            let word = goroutine_that_is(from);
            let refused = throws(std::panic::AssertUnwindSafe(|| word.transition(from, to)));
            assert_eq!(refused, !legal, "{from:?} -> {to:?}");
            assert_eq!(word.get(), if legal { to } else { from });
        }
    }
}

/// IN-35: a legal step of a goroutine that is elsewhere throws.
#[test]
fn transition_checks_where_the_goroutine_is() {
    for &(from, to) in LEGAL {
        for now in Status::ALL.into_iter().filter(|&now| now != from) {
            let word = goroutine_that_is(now);
            assert!(throws(std::panic::AssertUnwindSafe(|| word.transition(from, to))));
            assert_eq!(word.get(), now);
        }
    }
}

/// IN-35: readying a goroutine that does not wait is fatal. This finds double wake-ups.
#[test]
fn ready_of_a_goroutine_that_does_not_wait_throws() {
    for status in Status::ALL {
        let word = goroutine_that_is(status);
        let refused = throws(std::panic::AssertUnwindSafe(|| word.claim_sole()));
        assert_eq!(refused, status != Waiting, "{status:?}");
    }
    let word = goroutine_that_is(Waiting);
    word.claim_sole();
    assert!(throws(std::panic::AssertUnwindSafe(|| word.claim_sole())), "woken twice");
}

/// IN-35: only a goroutine that runs can begin to wait.
#[test]
fn only_the_running_begin_to_wait() {
    for status in Status::ALL {
        let word = goroutine_that_is(status);
        let refused = throws(std::panic::AssertUnwindSafe(|| {
            word.begin_wait(full_fence);
        }));
        assert_eq!(refused, status != Running, "{status:?}");
    }
}

/// IN-36: the ticket is known before the wait begins, and claims nothing until then.
#[test]
fn ticket_is_known_before_the_wait() {
    let word = goroutine_that_is(Running);
    let ticket = word.next_ticket();
    assert!(!word.claim(ticket), "it does not wait yet");
    assert_eq!(word.waiting(), None);
    assert_eq!(word.begin_wait(full_fence), ticket);
    assert_eq!(word.waiting(), Some(ticket));
    assert!(word.claim(ticket));
    assert_eq!((word.get(), word.waiting()), (Runnable, None));
    assert!(!word.claim(ticket), "claimed twice");
}

/// A ticket is not valid after its wait, whatever the goroutine does next and however the next wait
/// begins, for this goroutine or the next one in the record.
#[test]
fn stale_ticket_claims_nothing() {
    let ways_to_wait: [&[Status]; 3] =
        [&[Running, Waiting], &[Running, Runnable, Running, Waiting], &[Running, Dead, Waiting]];
    for way in ways_to_wait {
        let word = goroutine_that_is(Running);
        let stale = word.begin_wait(full_fence);
        assert!(word.claim(stale));
        let mut now = Runnable;
        for &next in way {
            word.transition(now, next);
            now = next;
            assert!(!word.claim(stale), "with the steps {way:?}");
        }
        let fresh = word.waiting().expect("it waits");
        assert_ne!(fresh, stale);
        assert!(word.claim(fresh));
    }
}

/// The ticket of no wait claims nothing, not even an unborn goroutine.
#[test]
fn no_ticket_claims_nothing() {
    for status in Status::ALL {
        assert!(!goroutine_that_is(status).claim(Ticket::NONE), "{status:?}");
    }
    let newborn = StatusWord::new();
    newborn.transition(Dead, Waiting);
    assert!(!newborn.claim(Ticket::NONE));
}

/// Reports use Go's names.
#[test]
fn statuses_have_the_names_of_reports() {
    let names = Status::ALL.map(Status::name);
    assert_eq!(names, ["dead", "runnable", "running", "waiting"]);
}

/// A full fence, for both sides of the pair of fences.
fn full_fence() {
    heist_core::sync::fence(heist_core::sync::Ordering::SeqCst);
}
