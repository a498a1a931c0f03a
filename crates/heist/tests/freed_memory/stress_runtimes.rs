//! Ten runtimes that are made, used from each other's goroutines, timed out and dropped at random,
//! under an allocator that unmaps freed memory.
//!
//! The seed is printed; `HEIST_RUNTIMES_SEED` chooses it, `HEIST_STRESS_SECS` how long it takes and
//! `HEIST_PROCS` how many processors each runtime has.

use crate::{turns, unmapping};

use heist::chan::{self, Receiver};
use heist::context;
use heist::net::{TcpListener, TcpStream};
use heist::sync::{Mutex, WaitGroup};
use heist::time::{self, AfterFunc, Timer};
use heist::{Handle, JoinHandle, Runtime, select, yield_now};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const N_RUNTIMES: usize = 10;
const N_DRIVERS: u64 = 3;
const PATIENCE: Duration = Duration::from_secs(240);

/// Random numbers with a seed.
#[derive(Clone)]
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.roll() % n
    }

    fn short(&mut self) -> Duration {
        Duration::from_micros(self.below(3000))
    }

    /// Dice for another goroutine.
    fn more(&mut self) -> Self {
        Self(self.roll())
    }
}

/// The data that all goroutines share.
struct World {
    /// A holder of one of these locks waits for nothing.
    slots: Vec<std::sync::Mutex<Arc<Runtime>>>,
    /// Handles of goroutines, to be joined or cancelled by any goroutine.
    handles: std::sync::Mutex<VecDeque<JoinHandle<()>>>,
    /// Functions that wait for their time, to be stopped by any goroutine.
    functions: std::sync::Mutex<VecDeque<AfterFunc>>,
    /// A channel that goroutines of all runtimes wait at.
    ticks: Receiver<Instant>,
    shared: Mutex<u64>,
    n_made: AtomicU64,
    n_done: AtomicU64,
}

/// The data of one goroutine.
struct Role {
    world: Arc<World>,
    dice: Dice,
    /// Two runtimes, which are not that of the goroutine.
    handles: [Handle; 2],
    /// One of them as a runtime; work that is spawned on it holds no reference to it.
    other: Arc<Runtime>,
}

fn build(dice: &mut Dice) -> Arc<Runtime> {
    let procs = 1 + dice.below(3) as usize;
    let mut builder = Runtime::builder().procs(procs).quantum(Duration::from_millis(1));
    if dice.below(4) == 0 {
        builder = builder.chaos(dice.roll());
    }
    // Most wait for their goroutines; some do not.
    if dice.below(6) == 0 {
        builder = builder.shutdown_timeout(dice.short());
    }
    // SAFETY: the goroutines of this test keep nothing across a park that is bound to a thread.
    Arc::new(unsafe { builder.build() }.expect("the runtime starts"))
}

impl World {
    fn runtime(&self, i: usize) -> Arc<Runtime> {
        Arc::clone(&self.slots[i].lock().expect("no holder panics"))
    }

    /// Spawns a role on a runtime.
    fn play(self: &Arc<Self>, dice: &mut Dice) {
        let on = dice.below(N_RUNTIMES as u64) as usize;
        let step = |i: usize| (on + i) % N_RUNTIMES;
        let first = 1 + dice.below(N_RUNTIMES as u64 - 2) as usize;
        let others = [step(first), step(first + 1)].map(|i| self.runtime(i));
        let handles = [others[0].handle(), others[1].handle()];
        let [other, _] = others;
        let role = Role { world: Arc::clone(self), dice: dice.more(), handles, other };
        let home = self.runtime(on).handle();
        if let Ok(handle) = home.try_spawn(move || role.act()) {
            self.keep(handle);
        }
    }

    /// Leaves a handle to others, and does something to one that was left before.
    fn keep(&self, handle: JoinHandle<()>) {
        let mut handles = self.handles.lock().expect("no holder panics");
        handles.push_back(handle);
        let old = if handles.len() > 50 { handles.pop_front() } else { None };
        drop(handles);
        if let Some(old) = old {
            // It ends, also if its runtime has left it behind.
            old.cancel();
            drop(old.join());
        }
    }

    fn keep_function(&self, function: AfterFunc) {
        let mut functions = self.functions.lock().expect("no holder panics");
        functions.push_back(function);
        let old = if functions.len() > 20 { functions.pop_front() } else { None };
        drop(functions);
        if let Some(old) = old {
            old.stop();
        }
    }
}

impl Role {
    fn act(mut self) {
        match self.dice.below(10) {
            0 => self.talk(),
            1 => self.join(),
            2 => self.cancel(),
            3 => self.tick(),
            4 => self.contexts(),
            5 => self.later(),
            6 => self.network(),
            7 => self.run_there(),
            8 => self.lock(),
            _ => self.replace(),
        }
    }

    /// A channel between goroutines of three runtimes.
    fn talk(mut self) {
        let (sender, receiver) = chan::bounded::<u64>(self.dice.below(3) as usize);
        for handle in &self.handles {
            let (receiver, patience) = (receiver.clone(), self.dice.short());
            drop(handle.try_spawn(move || while receiver.recv_timeout(patience).is_ok() {}));
        }
        drop(receiver);
        for i in 0..self.dice.below(50) {
            if sender.send_timeout(i, self.dice.short()).is_err() {
                break;
            }
        }
        self.done();
    }

    fn join(self) {
        if let Ok(there) = self.handles[0].try_spawn(yield_now)
            && there.join().is_ok()
        {
            self.done();
        }
    }

    fn cancel(mut self) {
        let sleepers: Vec<_> = (0..self.dice.below(20))
            .filter_map(|i| {
                let longer = self.dice.short() * if i % 2 == 0 { 1 } else { 1000 };
                self.handles[i as usize % 2].try_spawn(move || time::sleep(longer)).ok()
            })
            .collect();
        yield_now();
        sleepers.iter().for_each(JoinHandle::cancel);
        self.done();
    }

    /// Waits with many others for the same moments.
    fn tick(mut self) {
        let (ticks, timer) = (self.world.ticks.clone(), Timer::new(self.dice.short()));
        for _ in 0..3 {
            select! {
                recv(ticks) -> _ => {}
                recv(timer.receiver()) -> _ => break,
            }
        }
        self.done();
    }

    fn contexts(mut self) {
        let (root, canceller) = context::background().with_timeout(self.dice.short());
        let called = WaitGroup::new();
        for handle in &self.handles {
            let (root, called, timeout) = (root.clone(), called.clone(), self.dice.short());
            drop(handle.try_spawn(move || {
                let (below, _canceller) = root.with_timeout(timeout);
                called.add(1);
                below.after_func(move || called.done());
                below.wait();
            }));
        }
        if self.dice.below(2) == 0 {
            drop(self.handles[1].try_spawn(move || canceller.cancel()));
        } else {
            yield_now();
            canceller.cancel();
            assert!(root.err().is_some());
        }
        self.done();
    }

    fn later(mut self) {
        let world = Arc::clone(&self.world);
        let function = time::after_func(self.dice.short(), move || {
            world.n_done.fetch_add(1, Ordering::Relaxed);
        });
        self.world.keep_function(function);
        self.done();
    }

    /// A connection whose ends are used by two runtimes and change sides.
    fn network(self) {
        let Ok(listener) = TcpListener::bind("127.0.0.1:0") else { return };
        let Ok(address) = listener.local_addr() else { return };
        let patience = Some(Duration::from_millis(20));
        let client = self.handles[0].try_spawn(move || {
            let mut stream =
                TcpStream::connect_timeout(&address, Duration::from_millis(20)).ok()?;
            let _ = stream.set_read_timeout(patience);
            stream.write_all(b"ping").ok()?;
            let mut answer = [0; 4];
            stream.read_exact(&mut answer).ok()?;
            Some(stream)
        });
        let _ = listener.set_read_deadline(patience.map(|patience| Instant::now() + patience));
        let Ok((mut stream, _)) = listener.accept() else { return };
        let _ = stream.set_read_timeout(patience);
        let mut question = [0; 4];
        if stream.read_exact(&mut question).is_err() || stream.write_all(b"pong").is_err() {
            return;
        }
        let moved = self.handles[1].try_spawn(move || {
            let _ = stream.read(&mut [0; 4]);
        });
        if let Ok(client) = client
            && let Ok(Some(mut client)) = client.join()
        {
            let _ = client.write_all(b"more");
        }
        drop(moved);
        self.done();
    }

    /// Runs something there that it borrows from here: nothing unwinds this one before the end of
    /// that.
    fn run_there(mut self) {
        let (other, sleep) = (Arc::clone(&self.other), self.dice.short());
        let n = AtomicU64::new(0);
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            other.run(|| {
                time::sleep(sleep);
                n.fetch_add(1, Ordering::Relaxed);
            });
        }));
        // It panics if the other runtime has ended, or ends meanwhile.
        assert!(ran.is_err() || n.load(Ordering::Relaxed) == 1);
        drop(ran);
        self.done();
    }

    fn lock(mut self) {
        for _ in 0..self.dice.below(20) {
            if let Some(mut shared) = self.world.shared.try_lock_for(self.dice.short()) {
                *shared += 1;
                if self.dice.below(4) == 0 {
                    yield_now();
                }
            }
        }
        self.done();
    }

    /// Replaces a runtime. The last share of the old one goes here, or with another goroutine.
    fn replace(mut self) {
        let new = build(&mut self.dice);
        self.world.n_made.fetch_add(1, Ordering::Relaxed);
        let others = self.world.slots.iter();
        let slot = others.clone().find(|slot| {
            let there = slot.lock().expect("no holder panics");
            Arc::ptr_eq(&there, &self.other)
        });
        let old = match slot {
            Some(slot) => std::mem::replace(&mut *slot.lock().expect("no holder panics"), new),
            None => new,
        };
        let Self { world, other, .. } = self;
        drop(other);
        drop(old);
        world.n_done.fetch_add(1, Ordering::Relaxed);
    }

    fn done(&self) {
        self.world.n_done.fetch_add(1, Ordering::Relaxed);
    }
}

fn seed() -> u64 {
    let chosen = std::env::var("HEIST_RUNTIMES_SEED").ok();
    chosen.map_or_else(
        || u64::from(std::time::UNIX_EPOCH.elapsed().expect("it is after 1970").subsec_nanos()),
        |seed| seed.parse().expect("HEIST_RUNTIMES_SEED is a number"),
    )
}

fn stress_time() -> Duration {
    let secs = std::env::var("HEIST_STRESS_SECS").ok();
    Duration::from_secs(secs.map_or(3, |secs| secs.parse().expect("a number of seconds")))
}

/// Nothing crashes, freed memory is not touched, and everything ends.
#[test]
fn runtimes_start_and_end_beside_each_other() {
    let _turn = turns::alone();
    let (seed, time) = (seed(), stress_time());
    println!("HEIST_RUNTIMES_SEED={seed}");
    let mut dice = Dice(seed);
    let slots = (0..N_RUNTIMES).map(|_| std::sync::Mutex::new(build(&mut dice)));
    let world = Arc::new(World {
        slots: slots.collect(),
        handles: std::sync::Mutex::default(),
        functions: std::sync::Mutex::default(),
        ticks: chan::tick(Duration::from_micros(500)),
        shared: Mutex::new(0),
        n_made: AtomicU64::new(0),
        n_done: AtomicU64::new(0),
    });
    unmapping::within(PATIENCE + time, &format!("seed {seed}"), || {
        let until = Instant::now() + time;
        let drivers: Vec<_> = (0..N_DRIVERS)
            .map(|_| {
                let (world, mut dice) = (Arc::clone(&world), dice.more());
                std::thread::spawn(move || {
                    while Instant::now() < until {
                        world.play(&mut dice);
                        std::thread::yield_now();
                    }
                })
            })
            .collect();
        drivers.into_iter().for_each(|driver| driver.join().expect("a driver does not panic"));
        let handles = std::mem::take(&mut *world.handles.lock().expect("no holder panics"));
        handles.iter().for_each(JoinHandle::cancel);
        handles.into_iter().for_each(|handle| drop(handle.join()));
        world.functions.lock().expect("no holder panics").clear();
        // All at once; those that goroutines of others still hold end with these.
        let mut last = Vec::new();
        for slot in &world.slots {
            let end = build(&mut dice);
            last.push(std::mem::replace(&mut *slot.lock().expect("no holder panics"), end));
        }
        drop(last);
    });
    let (made, done) = (world.n_made.load(Ordering::Relaxed), world.n_done.load(Ordering::Relaxed));
    println!("{made} runtimes, {done} roles");
    assert!(made > 0 && done > 0);
}
