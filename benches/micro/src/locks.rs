//! The locks of goroutines, without contention.

use std::hint::black_box;

use heist::sync::{Mutex, Once, RwLock};

use crate::Repeat;
use crate::goroutines::alone;

pub fn mutex() -> Repeat {
    let mutex = Mutex::new(0_u64);
    alone(move || *mutex.lock() += 1)
}

pub fn rwlock_read() -> Repeat {
    let lock = RwLock::new(0_u64);
    alone(move || {
        black_box(*lock.read());
    })
}

pub fn rwlock_write() -> Repeat {
    let lock = RwLock::new(0_u64);
    alone(move || *lock.write() += 1)
}

pub fn once() -> Repeat {
    let once = Once::new();
    alone(move || once.call_once(|| ()))
}
