//! Locks of the usual shape: those that follow std's.

/// Implements the blocking contract with a mutex and an rwlock that have std's methods; a note
/// says what is different about them.
macro_rules! std_like_locks {
    ($peer:ident, $mutex:ident, $rwlock:ident $(, $note:literal)?) => {
        impl $crate::contract::blocking::Locks for $peer {
            $(const NOTE: Option<&'static str> = Some($note);)?

            type Mutex = $mutex<u64>;
            type RwLock = $rwlock<u64>;

            fn mutex() -> Self::Mutex {
                $mutex::new(0)
            }

            fn lock(mutex: &Self::Mutex, critical: impl FnOnce(&mut u64)) {
                critical(&mut mutex.lock().expect("poisoned"));
            }

            fn rwlock() -> Self::RwLock {
                $rwlock::new(0)
            }

            fn read(lock: &Self::RwLock, critical: impl FnOnce(&u64)) {
                critical(&lock.read().expect("poisoned"));
            }

            fn write(lock: &Self::RwLock, critical: impl FnOnce(&mut u64)) {
                critical(&mut lock.write().expect("poisoned"));
            }
        }
    };
}
pub(super) use std_like_locks;
