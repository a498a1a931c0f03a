//! `Select`: sets of operations that are made at run time.

mod matrix;

use heist::chan::{self, Select, SendError};
use heist::go;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A set that is made at run time: more channels than fit on the stack, sends that are used up, removal.
#[test]
fn dynamic_sets() {
    matrix::run(|| {
        let channels: Vec<_> = (0..20).map(|_| chan::bounded::<usize>(1)).collect();
        let mut select = Select::new();
        for (_, rx) in &channels {
            select.recv(rx);
        }
        assert!(select.try_select().is_err());
        let start = Instant::now();
        assert!(select.select_deadline(start + Duration::from_millis(1)).is_err());
        assert!(start.elapsed() >= Duration::from_millis(1));
        let senders: Vec<_> = channels.iter().map(|(tx, _)| tx.clone()).collect();
        go(move || (0..200).for_each(|i| senders[i * 7 % 20].send(i).unwrap()));
        let mut seen = [false; 200];
        for _ in 0..200 {
            let chosen = select.select();
            let channel = chosen.index();
            let i = chosen.recv(&channels[channel].1).unwrap();
            assert_eq!(i * 7 % 20, channel);
            assert!(!std::mem::replace(&mut seen[i], true));
        }
        select.remove(3);
        channels[3].0.send(1).unwrap();
        assert!(select.try_select().is_err());

        let (tx, rx) = chan::bounded(2);
        let mut select = Select::new_biased();
        let (first, second) = (select.send(&tx, "a"), select.send(&tx, "b"));
        let chosen = select.select();
        assert_eq!((chosen.index(), chosen.send(&tx)), (first, Ok(())));
        let chosen = select.select();
        assert_eq!((chosen.index(), chosen.send(&tx)), (second, Ok(())));
        assert!(select.try_select().is_err(), "both are sent");
        assert!(rx.try_iter().eq(["a", "b"]));
        rx.close();
        let third = select.send(&tx, "c");
        let chosen = select.try_select().unwrap();
        assert_eq!((chosen.index(), chosen.send(&tx)), (third, Err(SendError("c"))));
    });
}

/// Who only wants to know is woken by a sender, a receiver, room or a close, and takes nothing.
#[test]
fn readiness_takes_nothing() {
    matrix::run(|| {
        for capacity in [0, 1] {
            let (tx, rx) = chan::bounded(capacity);
            let watched = rx.clone();
            let watches = go(move || {
                let mut select = Select::new();
                select.recv(&watched);
                select.ready()
            });
            matrix::until_parked(1, "select");
            let sender = tx.clone();
            let sends = go(move || sender.send(7));
            assert_eq!(watches.join().unwrap(), 0);
            assert_eq!(rx.recv(), Ok(7), "the message is still there");
            sends.join().unwrap().unwrap();

            (0..capacity).for_each(|_| tx.send(1).unwrap());
            let watched = tx.clone();
            let watches = go(move || {
                let mut select = Select::new();
                select.send(&watched, 2);
                select.ready()
            });
            matrix::until_parked(1, "select");
            let receiver = rx.clone();
            let receives = go(move || receiver.recv());
            assert_eq!(watches.join().unwrap(), 0);
            tx.send(3).unwrap();
            assert_eq!(receives.join().unwrap(), Ok(if capacity == 0 { 3 } else { 1 }));
            while rx.try_recv().is_ok() {}

            // Two who only want to know do not meet.
            let (mut give, mut get) = (Select::new(), Select::new());
            if capacity == 0 {
                give.send(&tx, 1);
                assert!(give.ready_timeout(Duration::from_micros(100)).is_err());
            }
            get.recv(&rx);
            assert!(get.ready_deadline(Instant::now() + Duration::from_micros(100)).is_err());
            tx.close();
            assert_eq!(get.try_ready(), Ok(0));
        }
    });
}

/// A result that belongs to another channel is refused, and a message nobody asked for is dropped.
#[test]
fn dynamic_results_belong_to_their_channel() {
    let (tx, rx) = chan::bounded(2);
    let message = Arc::new(());
    tx.send(Arc::clone(&message)).unwrap();
    tx.send(Arc::clone(&message)).unwrap();
    let other = rx.clone();
    let mut select = Select::new();
    select.recv(&rx);
    let wrong = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        select.select().recv(&other).is_ok()
    }));
    assert!(wrong.is_err());
    drop(select.select());
    drop(select);
    assert_eq!(Arc::strong_count(&message), 1);
}

/// A message that was received and is not asked for is dropped with the operation; one that was not sent
/// stays for the next round.
#[test]
fn what_is_not_asked_for_is_dropped() {
    matrix::run(|| {
        let token = Arc::new(());
        let (tx, rx) = chan::bounded(1);
        tx.send(Arc::clone(&token)).unwrap();
        let mut select = Select::new();
        let receive = select.recv(&rx);
        let chosen = select.select();
        assert_eq!((chosen.index(), Arc::strong_count(&token)), (receive, 2));
        drop(chosen);
        assert_eq!(Arc::strong_count(&token), 1);
        drop(select);

        let mut select = Select::new();
        select.send(&tx, Arc::clone(&token));
        rx.close();
        drop(select.select());
        assert_eq!(Arc::strong_count(&token), 2);
        assert!(Arc::ptr_eq(&select.select().send(&tx).unwrap_err().into_inner(), &token));
        drop(select);
        assert_eq!(Arc::strong_count(&token), 1);
    });
}
