//! What ThreadSanitizer is told about a goroutine: that it has a stack of calls of its own.
//!
//! The sanitizer records the calls of each thread. A switch of stacks that it does not know about
//! would pair the calls of one goroutine with the returns of another. Only the M announces
//! switches, before it resumes a goroutine and after the goroutine has switched back: so the calls
//! and returns of corosensei in between balance each other on the goroutine's side, also for the
//! last return. Without `--cfg heist_tsan` nothing is left of this file.

#[cfg(heist_tsan)]
mod announced {
    use std::cell::Cell;
    use std::ffi::{c_uint, c_void};
    use std::ptr::null_mut;

    unsafe extern "C" {
        fn __tsan_get_current_fiber() -> *mut c_void;
        fn __tsan_create_fiber(flags: c_uint) -> *mut c_void;
        fn __tsan_destroy_fiber(fiber: *mut c_void);
        fn __tsan_switch_to_fiber(fiber: *mut c_void, flags: c_uint);
    }

    /// What happened on a thread before it resumes a goroutine happened before what that goroutine
    /// does then, and the other way round.
    const ORDERED: c_uint = 0;

    /// The sanitizer's record of a goroutine.
    pub(in crate::coro) struct Fiber(Cell<*mut c_void>);

    impl Fiber {
        pub(in crate::coro) const fn none() -> Self {
            Self(Cell::new(null_mut()))
        }

        pub(in crate::coro) fn begin(&self) {
            // SAFETY: the call has no precondition. Flag 0 is the only one.
            self.0.set(unsafe { __tsan_create_fiber(0) });
        }

        /// Says that the caller runs this goroutine until it leaves. Inlined, as `leave` is: the
        /// call would be recorded on one side, and the return on the other.
        #[inline(always)]
        pub(in crate::coro) fn enter(&self) -> Entered {
            // SAFETY: the fiber was made by `begin`, and no thread is on it: the caller owns the
            // goroutine, which does not run.
            unsafe {
                let outer = Entered(__tsan_get_current_fiber());
                __tsan_switch_to_fiber(self.0.get(), ORDERED);
                outer
            }
        }

        pub(in crate::coro) fn end(&self) {
            // SAFETY: the goroutine has returned, so no thread is on its fiber.
            unsafe { __tsan_destroy_fiber(self.0.replace(null_mut())) }
        }
    }

    /// The thread that runs a goroutine.
    #[must_use]
    pub(in crate::coro) struct Entered(*mut c_void);

    impl Entered {
        #[inline(always)]
        pub(in crate::coro) fn leave(self) {
            // SAFETY: it is the fiber of the calling thread, which `enter` left.
            unsafe { __tsan_switch_to_fiber(self.0, ORDERED) }
        }
    }
}

#[cfg(not(heist_tsan))]
mod silent {
    /// Nothing.
    pub(in crate::coro) struct Fiber;

    /// Nothing.
    #[must_use]
    pub(in crate::coro) struct Entered;

    impl Entered {
        #[inline(always)]
        pub(in crate::coro) fn leave(self) {}
    }

    impl Fiber {
        #[inline(always)]
        pub(in crate::coro) const fn none() -> Self {
            Self
        }

        #[inline(always)]
        pub(in crate::coro) fn begin(&self) {}

        #[inline(always)]
        pub(in crate::coro) fn enter(&self) -> Entered {
            Entered
        }

        #[inline(always)]
        pub(in crate::coro) fn end(&self) {}
    }
}

#[cfg(heist_tsan)]
pub(super) use announced::Fiber;
#[cfg(not(heist_tsan))]
pub(super) use silent::Fiber;
