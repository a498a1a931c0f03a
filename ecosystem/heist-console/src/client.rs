//! One client, and what it has been told.
//!
//! A client reads when it can: it is sent what changed since it read last, in messages of a bounded
//! size. So a slow one costs nothing but the set of goroutines that it knows.

use crate::book::{Book, Place};
use crate::describe;
use console_api::async_ops::AsyncOpUpdate;
use console_api::instrument::Update;
use console_api::resources::ResourceUpdate;
use console_api::tasks::TaskUpdate;
use std::collections::HashMap;

/// Goroutines in one message, which then has at most some 300 KB; tokio-console refuses one with
/// more than 4 MB.
const MESSAGE_MAX: usize = 1_000;

/// What a client knows of a goroutine.
#[derive(Clone, Copy, Debug)]
struct Known {
    description: u32,
    has_ended: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Client {
    /// Changes up to here were sent.
    place: Place,
    known: HashMap<u64, Known>,
    /// The version of the last message that was the end of a round.
    version: Option<u64>,
    n_missing: u64,
}

impl Client {
    /// The next message, or None if the client knows everything, or nothing is known.
    pub(crate) fn next(&mut self, book: &Book) -> Option<Update> {
        if !book.is_settled() || self.version == Some(book.version()) {
            return None;
        }
        let is_first = self.version.is_none() && self.place == (0, 0);
        let mut tasks = TaskUpdate::default();
        let mut n = 0;
        for (place, goroutine) in book.changes_after(self.place).take(MESSAGE_MAX) {
            self.place = place;
            n += 1;
            let id = place.1;
            let has_ended = goroutine.ended_ns.is_some();
            let known = Known { description: goroutine.description, has_ended };
            let before = self.known.insert(id, known);
            if before.is_none_or(|before| before.description != known.description) {
                tasks.new_tasks.push(describe::task(book, id, goroutine));
            }
            tasks.stats_update.insert(id, describe::stats(book, goroutine));
        }
        if n < MESSAGE_MAX {
            self.version = Some(book.version());
            self.forget(book, &mut tasks);
        }
        tasks.dropped_events = book.n_missing().saturating_sub(self.n_missing);
        self.n_missing = book.n_missing();
        Some(Update {
            now: Some(describe::timestamp(book.unix_ns(book.now_ns()))),
            task_update: Some(tasks),
            resource_update: Some(ResourceUpdate::default()),
            async_op_update: Some(AsyncOpUpdate::default()),
            new_metadata: is_first.then(describe::metadata),
        })
    }

    /// Forgets goroutines that the book has forgotten. If it did before the client was told of
    /// their end, they are reported as gone.
    fn forget(&mut self, book: &Book, tasks: &mut TaskUpdate) {
        self.known.retain(|&id, known| {
            let is_there = book.goroutine(id).is_some();
            if !is_there && !known.has_ended {
                tasks.stats_update.insert(id, describe::gone(book));
            }
            is_there
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::Limits;
    use heist_trace::file::State;
    use heist_trace::follow::{Appearance, Happening, Step};
    use heist_trace::record::End;
    use std::time::Duration;

    fn book(ended_max: usize, goroutines_max: usize) -> Book {
        let retention = Duration::from_nanos(1_000);
        let mut book = Book::new(Limits { retention, ended_max, goroutines_max });
        book.begin(vec!["sleep".to_owned(), "select".to_owned()]);
        book.publish(1, 1, 0);
        book
    }

    fn does(book: &mut Book, goroutine: u64, time_ns: u64, step: Step) {
        book.note(Happening { goroutine, time_ns, step });
    }

    fn appears() -> Step {
        let made = Appearance { is_new: true, state: State::Runnable, ..Appearance::default() };
        Step::Appears(made)
    }

    /// The ids that are described, those with numbers, and those that ended.
    fn read(client: &mut Client, book: &Book) -> Option<(Vec<u64>, Vec<u64>, Vec<u64>)> {
        let tasks = client.next(book)?.task_update.unwrap();
        let mut new: Vec<u64> = tasks.new_tasks.iter().map(|task| task.id.unwrap().id).collect();
        let mut all: Vec<u64> = tasks.stats_update.keys().copied().collect();
        let ended = tasks.stats_update.iter().filter(|(_, stats)| stats.dropped_at.is_some());
        let mut ended: Vec<u64> = ended.map(|(&id, _)| id).collect();
        new.sort_unstable();
        all.sort_unstable();
        ended.sort_unstable();
        Some((new, all, ended))
    }

    #[test]
    fn a_client_gets_what_has_changed_since_it_read() {
        let mut book = book(10, 10);
        let (mut quick, mut slow) = (Client::default(), Client::default());
        does(&mut book, 1, 10, appears());
        does(&mut book, 2, 10, appears());
        book.publish(20, 20, 0);
        assert_eq!(read(&mut quick, &book), Some((vec![1, 2], vec![1, 2], vec![])));
        assert_eq!(read(&mut quick, &book), None);
        does(&mut book, 2, 30, Step::Starts);
        book.publish(40, 40, 0);
        assert_eq!(read(&mut quick, &book), Some((vec![], vec![2], vec![])));
        // The reason of a wait belongs to the description.
        does(&mut book, 2, 50, Step::Waits(1));
        book.publish(60, 60, 0);
        assert_eq!(read(&mut quick, &book), Some((vec![2], vec![2], vec![])));
        does(&mut book, 1, 70, Step::Starts);
        does(&mut book, 1, 80, Step::Ends(End::Returned));
        book.publish(90, 90, 0);
        assert_eq!(read(&mut quick, &book), Some((vec![1], vec![1], vec![1])));
        assert_eq!(read(&mut slow, &book), Some((vec![1, 2], vec![1, 2], vec![1])));
        // Nothing has changed but the time.
        book.publish(100, 100, 0);
        assert_eq!(read(&mut slow, &book), Some((vec![], vec![], vec![])));
        assert_eq!(read(&mut slow, &book), None);
    }

    /// A client that reads between two changes of the same goroutine gets its description even if
    /// it has read others of the same version before.
    #[test]
    fn large_updates_come_in_pieces_and_miss_nothing() {
        let mut book = book(10, 100_000);
        let n = 3 * MESSAGE_MAX as u64 + 5;
        for id in 1..=n {
            does(&mut book, id, 10, appears());
        }
        book.publish(20, 20, 0);
        let mut client = Client::default();
        let mut described = Vec::new();
        for round in 0..2 {
            let (new, all, _) = read(&mut client, &book).unwrap();
            assert_eq!(all.len(), MESSAGE_MAX, "{round}");
            described.extend(new);
        }
        // All of them change before the client has read the first version.
        for id in 1..=n {
            does(&mut book, id, 30, Step::Starts);
        }
        book.publish(40, 40, 0);
        while let Some((new, _, _)) = read(&mut client, &book) {
            described.extend(new);
        }
        described.sort_unstable();
        assert!(described.into_iter().eq(1..=n));
    }

    #[test]
    fn ended_goroutines_are_forgotten_and_nobody_keeps_them() {
        let mut book = book(3, 10);
        let mut client = Client::default();
        does(&mut book, 5_000, 10, appears());
        book.publish(15, 15, 0);
        read(&mut client, &book).unwrap();
        for id in 1..=1_000 {
            does(&mut book, id, 20, appears());
            does(&mut book, id, 21, Step::Starts);
            does(&mut book, id, 22, Step::Ends(End::Returned));
            if id % 10 == 0 {
                book.publish(30, 30, 0);
            }
        }
        assert_eq!(book.len(), (4, 4));
        // It ends, and is forgotten, before the client reads.
        does(&mut book, 5_000, 40, Step::Starts);
        does(&mut book, 5_000, 41, Step::Ends(End::Returned));
        book.publish(50, 50, 0);
        book.publish(5_000, 5_000, 0);
        assert_eq!(book.len(), (0, 0));
        assert_eq!(read(&mut client, &book), Some((vec![], vec![5_000], vec![5_000])));
        assert!(client.known.is_empty());
    }

    #[test]
    fn more_goroutines_than_are_shown_are_counted() {
        let mut book = book(10, 5);
        for id in 1..=8 {
            does(&mut book, id, 10, appears());
        }
        book.publish(20, 20, 2);
        let mut client = Client::default();
        let tasks = client.next(&book).unwrap().task_update.unwrap();
        assert_eq!((tasks.new_tasks.len(), tasks.dropped_events), (5, 5));
        book.publish(30, 30, 2);
        assert_eq!(client.next(&book).unwrap().task_update.unwrap().dropped_events, 0);
    }

    /// A recording that begins anew lists the living: the others have ended unseen.
    #[test]
    fn a_new_recording_ends_what_it_does_not_know() {
        let mut book = book(10, 10);
        does(&mut book, 1, 10, appears());
        does(&mut book, 2, 10, appears());
        book.publish(20, 20, 1);
        let mut client = Client::default();
        read(&mut client, &book).unwrap();
        book.close(1);
        book.begin(vec!["sleep".to_owned()]);
        let seen = Appearance { state: State::Waiting, ..Appearance::default() };
        does(&mut book, 2, 100, Step::Appears(seen));
        book.publish(110, 110, 0);
        assert_eq!(read(&mut client, &book), Some((vec![1, 2], vec![1, 2], vec![1])));
    }

    /// The page of a task in tokio-console does not survive that the task is described again.
    #[test]
    fn a_goroutine_that_is_watched_is_not_described_again() {
        let mut book = book(10, 10);
        does(&mut book, 1, 10, appears());
        does(&mut book, 1, 11, Step::Starts);
        book.publish(20, 20, 0);
        let mut client = Client::default();
        read(&mut client, &book).unwrap();
        book.watch(1);
        does(&mut book, 1, 30, Step::Waits(1));
        book.publish(40, 40, 0);
        assert_eq!(read(&mut client, &book), Some((vec![], vec![1], vec![])));
        book.unwatch(1);
        book.publish(50, 50, 0);
        assert_eq!(read(&mut client, &book), Some((vec![1], vec![1], vec![])));
    }
}
