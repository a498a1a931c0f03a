//! Random programs of sends, receives and selects, with timeouts, cancellations and closes, against
//! the rules that every program of channels keeps: each message is dropped once, received at most
//! once, and received or left in its channel if and only if its send says that it was sent.

use crate::matrix;

use heist::chan::{Receiver, Select, Sender, bounded, unbounded};
use heist::{go, yield_now};
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const N_CHANNELS: usize = 3;
const N_MESSAGES: usize = 256;

/// The fate of each message.
#[derive(Debug)]
struct Ledger {
    made: AtomicU32,
    received: [AtomicU32; N_MESSAGES],
    dropped: [AtomicU32; N_MESSAGES],
    /// Its send returned Ok.
    sent: [AtomicU32; N_MESSAGES],
    /// Its send gave it back.
    refused: [AtomicU32; N_MESSAGES],
}

impl Ledger {
    fn new() -> Arc<Self> {
        let zeroes = || [const { AtomicU32::new(0) }; N_MESSAGES];
        Arc::new(Self {
            made: AtomicU32::new(0),
            received: zeroes(),
            dropped: zeroes(),
            sent: zeroes(),
            refused: zeroes(),
        })
    }

    fn message(self: &Arc<Self>) -> Option<Message> {
        let id = self.made.fetch_add(1, Ordering::Relaxed) as usize;
        (id < N_MESSAGES).then(|| Message { id, ledger: Arc::clone(self) })
    }
}

#[derive(Debug)]
struct Message {
    id: usize,
    ledger: Arc<Ledger>,
}

impl Drop for Message {
    fn drop(&mut self) {
        self.ledger.dropped[self.id].fetch_add(1, Ordering::Relaxed);
    }
}

impl Message {
    fn receive(self) {
        self.ledger.received[self.id].fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Send(usize),
    Recv(usize),
    TrySend(usize),
    TryRecv(usize),
    /// Waits for any of these, for at most this many microseconds, if there is a limit.
    Select {
        recvs: Vec<usize>,
        send: Option<usize>,
        limit_us: Option<u64>,
    },
    Yield,
    Close(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let channel = 0..N_CHANNELS;
    prop_oneof![
        4 => channel.clone().prop_map(Step::Send),
        4 => channel.clone().prop_map(Step::Recv),
        2 => channel.clone().prop_map(Step::TrySend),
        2 => channel.clone().prop_map(Step::TryRecv),
        6 => (
            prop::collection::vec(channel.clone(), 0..3),
            prop::option::of(channel.clone()),
            prop::option::of(0..200_u64),
        )
            .prop_map(|(recvs, send, limit_us)| Step::Select { recvs, send, limit_us }),
        2 => Just(Step::Yield),
        1 => channel.prop_map(Step::Close),
    ]
}

#[derive(Clone)]
struct Channels {
    tx: Vec<Sender<Message>>,
    rx: Vec<Receiver<Message>>,
}

impl Channels {
    fn new(capacities: &[Option<usize>]) -> Self {
        let both = capacities.iter().map(|capacity| capacity.map_or_else(unbounded, bounded));
        let (tx, rx) = both.unzip();
        Self { tx, rx }
    }
}

fn sent(id: usize, ledger: &Ledger, result: Result<(), Message>) {
    let book = if result.is_ok() { &ledger.sent } else { &ledger.refused };
    book[id].fetch_add(1, Ordering::Relaxed);
}

fn perform(step: &Step, channels: &Channels, ledger: &Arc<Ledger>) {
    match step {
        Step::Send(i) | Step::TrySend(i) => {
            let Some(message) = ledger.message() else { return };
            let id = message.id;
            let result = if matches!(step, Step::Send(_)) {
                channels.tx[*i].send(message).map_err(|error| error.0)
            } else {
                channels.tx[*i].try_send(message).map_err(|error| error.into_inner())
            };
            sent(id, ledger, result);
        }
        Step::Recv(i) => channels.rx[*i].recv().into_iter().for_each(Message::receive),
        Step::TryRecv(i) => channels.rx[*i].try_recv().into_iter().for_each(Message::receive),
        Step::Select { recvs, send, limit_us } => select(recvs, *send, *limit_us, channels, ledger),
        Step::Yield => yield_now(),
        Step::Close(i) => drop(channels.tx[*i].close()),
    }
}

fn select(
    recvs: &[usize],
    send: Option<usize>,
    limit_us: Option<u64>,
    channels: &Channels,
    ledger: &Arc<Ledger>,
) {
    let mut select = Select::new();
    for &i in recvs {
        select.recv(&channels.rx[i]);
    }
    let message = send.and_then(|i| Some((i, ledger.message()?)));
    let sending = message.map(|(i, message)| {
        let id = message.id;
        (select.send_message(&channels.tx[i], message), i, id)
    });
    if recvs.is_empty() && sending.is_none() && limit_us.is_none() {
        return; // It would wait forever.
    }
    let chosen = match limit_us {
        None => Some(select.select()),
        Some(us) => select.select_timeout(Duration::from_micros(us)).ok(),
    };
    let chosen_index = chosen.as_ref().map(heist::chan::SelectedOperation::index);
    if let Some(chosen) = chosen {
        match sending {
            Some((index, i, id)) if chosen_index == Some(index) => {
                let result = chosen.sent(&channels.tx[i]).map_err(|error| error.0);
                sent(id, ledger, result);
            }
            _ => {
                let i = recvs[chosen.index()];
                chosen.recv(&channels.rx[i]).into_iter().for_each(Message::receive);
            }
        }
    }
    if let Some((index, _, id)) = sending
        && chosen_index != Some(index)
    {
        ledger.refused[id].fetch_add(1, Ordering::Relaxed);
    }
}

fn run(procs: usize, capacities: &[Option<usize>], scripts: Vec<Vec<Step>>, cancels: &[usize]) {
    let rt = matrix::plain(procs);
    let ledger = Ledger::new();
    let channels = Channels::new(capacities);
    rt.run(|| {
        let handles: Vec<_> = scripts
            .into_iter()
            .map(|script| {
                let (channels, ledger) = (channels.clone(), Arc::clone(&ledger));
                go(move || script.iter().for_each(|step| perform(step, &channels, &ledger)))
            })
            .collect();
        for &i in cancels {
            yield_now();
            handles[i % handles.len()].cancel();
        }
        // Goroutines that still wait are woken by the close.
        for tx in &channels.tx {
            yield_now();
            tx.close();
        }
        for handle in handles {
            if let Err(error) = handle.join() {
                assert!(error.is_cancelled(), "{error}");
            }
        }
        let mut left = [0; N_MESSAGES];
        for rx in &channels.rx {
            while let Ok(message) = rx.try_recv() {
                left[message.id] += 1;
            }
        }
        drop(channels);
        audit(&ledger, &left);
    });
}

fn audit(ledger: &Ledger, left: &[u32; N_MESSAGES]) {
    let made = (ledger.made.load(Ordering::Relaxed) as usize).min(N_MESSAGES);
    for (id, &left) in left.iter().enumerate().take(made) {
        let count = |book: &[AtomicU32; N_MESSAGES]| book[id].load(Ordering::Relaxed);
        let (received, dropped) = (count(&ledger.received), count(&ledger.dropped));
        assert_eq!(dropped, 1, "message {id} was dropped {dropped} times");
        let arrived = received + left;
        assert!(arrived <= 1, "message {id} arrived {arrived} times");
        match (count(&ledger.sent), count(&ledger.refused)) {
            (1, 0) => assert_eq!(arrived, 1, "message {id} was sent and is lost"),
            (0, 1) => assert_eq!(arrived, 0, "message {id} was refused and arrived"),
            // Its sender was cancelled meanwhile.
            (0, 0) => {}
            other => panic!("message {id}: {other:?}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// For all operations of goroutines on channels, in any order, no message is lost, doubled or
    /// invented.
    #[test]
    fn no_message_is_lost_doubled_or_invented(
        procs in prop::sample::select(vec![1_usize, 2, 4]),
        capacities in prop::collection::vec(prop::option::of(0..3_usize), N_CHANNELS..=N_CHANNELS),
        scripts in prop::collection::vec(prop::collection::vec(step(), 0..20), 1..10),
        cancels in prop::collection::vec(any::<usize>(), 0..6),
    ) {
        run(procs, &capacities, scripts, &cancels);
    }
}
