//! Threads on the places of `sys::place`: those that run goroutines.
//!
//! std cannot start a thread at a given place, so these are started by the C library. They differ
//! from std's in two ways: `std::thread::current()` has no name there, and the output of a test
//! there is not captured.

use super::memory::PAGE_MAX_BYTES;
use super::place::Place;
use super::{thread, tls};
use std::ffi::CStr;
use std::fmt;
use std::io;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::Deref;
use std::ptr::null_mut;
use std::sync::OnceLock;

/// The stack of an M: only the scheduler, signal handlers and destructors of thread-locals run
/// there.
const STACK_BYTES: usize = 256 << 10;
/// The C library refuses a place in which the thread-locals of the program leave no room for a
/// stack.
const PLACE_MAX_BYTES: usize = 64 << 20;
/// The maximum number of bytes at the low end of a stack that are needed before the thread runs.
const BEGINNING_MAX_BYTES: usize = 256;

/// The bytes that a thread needs besides its stack, at least: mostly its thread-locals. The C
/// library has a private function for std, which asks in the same way.
pub(super) fn needed_bytes() -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    *BYTES.get_or_init(|| {
        let mut attr = MaybeUninit::uninit();
        // SAFETY: the function has this type wherever there is one. The first call on the
        // attributes initialises them, the last one frees what they hold.
        unsafe {
            let found = libc::dlsym(libc::RTLD_DEFAULT, c"__pthread_get_minstack".as_ptr());
            type Ask = unsafe extern "C" fn(*const libc::pthread_attr_t) -> libc::size_t;
            let Some(ask) = std::mem::transmute::<*mut libc::c_void, Option<Ask>>(found) else {
                return 0;
            };
            libc::pthread_attr_init(attr.as_mut_ptr());
            let bytes = ask(attr.as_ptr());
            libc::pthread_attr_destroy(attr.as_mut_ptr());
            bytes.next_multiple_of(PAGE_MAX_BYTES)
        }
    })
}

/// A thread that was started and not joined yet. If this is dropped, the thread continues to run
/// and keeps its place forever.
#[derive(Debug)]
pub(crate) struct PlacedThread {
    id: libc::pthread_t,
    place: ManuallyDrop<Place>,
}

// SAFETY: the number of a thread may be used by any thread.
unsafe impl Send for PlacedThread {}

/// The arguments of a new thread. They are at the low end of the thread's stack until the thread
/// has fetched them: starting a thread must not use the allocator, whose lock a preempted goroutine
/// may hold.
struct Beginning<F> {
    main: F,
    name: Name,
    top: usize,
    stack_end: usize,
}

impl PlacedThread {
    /// Starts a thread and passes it the lowest address of its stack. The C library allocates for
    /// it, and may block, so only the helper thread calls this.
    pub(crate) fn spawn<F>(name: fmt::Arguments<'_>, main: F) -> io::Result<Self>
    where
        F: FnOnce(usize) + Send + 'static,
    {
        let mut bytes = STACK_BYTES + needed_bytes();
        thread::check_room(bytes)?;
        let name = Name::new(name);
        let mut main = Some(main);
        loop {
            match Self::spawn_on(Place::take(bytes)?, name, &mut main) {
                Err(error)
                    if error.raw_os_error() == Some(libc::EINVAL) && bytes < PLACE_MAX_BYTES =>
                {
                    bytes *= 2;
                }
                spawned => return spawned,
            }
        }
    }

    /// One attempt. `main` is taken if it succeeds.
    fn spawn_on<F>(place: Place, name: Name, main: &mut Option<F>) -> io::Result<Self>
    where
        F: FnOnce(usize) + Send + 'static,
    {
        let Some(f) = main.take() else {
            heist_core::throw!("spawn_on: nothing to run");
        };
        let (base, len) = place.stack();
        let stack_end = base.addr().get();
        let at = base.cast::<Beginning<F>>();
        const { assert!(size_of::<Beginning<F>>() <= BEGINNING_MAX_BYTES) };
        let mut attr = MaybeUninit::uninit();
        let mut id = 0;
        // SAFETY: no other thread has the place until this one is joined, and what it begins with
        // is far below its first frames. The first call initialises the attributes, the last one
        // frees what they hold.
        let error = unsafe {
            at.write(Beginning { main: f, name, top: place.top(), stack_end });
            let attr = attr.as_mut_ptr();
            libc::pthread_attr_init(attr);
            let mut error = libc::pthread_attr_setstack(attr, base.as_ptr().cast(), len);
            if error == 0 {
                error = libc::pthread_create(&raw mut id, attr, begin::<F>, at.as_ptr().cast());
            }
            libc::pthread_attr_destroy(attr);
            error
        };
        if error == 0 {
            return Ok(Self { id, place: ManuallyDrop::new(place) });
        }
        // SAFETY: no thread has taken it.
        *main = Some(unsafe { at.read() }.main);
        place.give_back();
        Err(io::Error::from_raw_os_error(error))
    }

    /// Waits for its end.
    pub(crate) fn join(self) {
        // SAFETY: it was not joined yet.
        let error = unsafe { libc::pthread_join(self.id, null_mut()) };
        self.joined(error);
    }

    /// Joins it if it has ended.
    pub(crate) fn try_join(self) -> Result<(), Self> {
        // SAFETY: it was not joined yet.
        match unsafe { libc::pthread_tryjoin_np(self.id, null_mut()) } {
            libc::EBUSY => Err(self),
            error => {
                self.joined(error);
                Ok(())
            }
        }
    }

    fn joined(self, error: libc::c_int) {
        if error == 0 {
            let mut thread = ManuallyDrop::new(self);
            // SAFETY: taken once: the thread is forgotten.
            unsafe { ManuallyDrop::take(&mut thread.place) }.give_back();
        }
    }
}

impl Drop for PlacedThread {
    fn drop(&mut self) {
        // SAFETY: it was not joined.
        unsafe { libc::pthread_detach(self.id) };
    }
}

/// The first function of a thread.
extern "C" fn begin<F>(beginning: *mut libc::c_void) -> *mut libc::c_void
where
    F: FnOnce(usize) + Send + 'static,
{
    // SAFETY: written by `spawn_on`, for this thread alone, which reads it once.
    let Beginning { main, name, top, stack_end } =
        unsafe { beginning.cast::<Beginning<F>>().read() };
    tls::learn_area(top);
    name.take();
    main(stack_end);
    null_mut()
}

/// The name of the calling thread, from the kernel. No allocation.
pub(crate) fn name() -> Name {
    let mut name = [0; NAME_BYTES];
    // SAFETY: there is as much room as the kernel fills.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    Name(name)
}

/// The name of a thread: the part that the kernel keeps, and a zero byte.
#[derive(Clone, Copy)]
pub(crate) struct Name([u8; NAME_BYTES]);

const NAME_BYTES: usize = 16;

impl Name {
    fn new(text: fmt::Arguments<'_>) -> Self {
        let mut name = [0; NAME_BYTES];
        // The rest does not fit.
        let _ = io::Write::write_fmt(&mut &mut name[..NAME_BYTES - 1], text);
        Self(name)
    }

    /// Makes it the name of the calling thread.
    fn take(self) {
        // SAFETY: the text ends with a zero byte.
        unsafe { libc::prctl(libc::PR_SET_NAME, self.0.as_ptr()) };
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        let name = CStr::from_bytes_until_nul(&self.0).ok().and_then(|name| name.to_str().ok());
        name.unwrap_or("?")
    }
}

#[cfg(test)]
mod tests {
    use super::super::registers::thread_pointer;
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_thread_has_its_name_and_ends() {
        let (send, names) = mpsc::channel();
        let main = move |_| send.send((*name()).to_owned()).expect("the test waits");
        PlacedThread::spawn(format_args!("placed-thread-with-a-long-name"), main)
            .expect("spawns")
            .join();
        assert_eq!(names.recv().expect("it has run"), "placed-thread-w");
    }

    #[test]
    fn the_next_thread_has_its_variables_where_an_ended_one_had_them() {
        let places = std::iter::repeat_with(|| {
            let (send, pointers) = mpsc::channel();
            let main = move |_| send.send(thread_pointer()).expect("the test waits");
            PlacedThread::spawn(format_args!("placed"), main).expect("spawns").join();
            pointers.recv().expect("it has run")
        });
        // Other tests take places too.
        let mut places: Vec<_> = places.take(50).collect();
        assert!(places.iter().all(|place| place % (64 << 10) == places[0] % (64 << 10)));
        places.sort_unstable();
        places.dedup();
        assert!(places.len() < 50, "ended threads leave their places to others");
    }

    #[test]
    fn a_thread_that_runs_cannot_be_joined_yet() {
        let (end, ended) = mpsc::channel::<()>();
        let main = move |_| assert!(ended.recv().is_err());
        let thread = PlacedThread::spawn(format_args!("placed"), main).expect("spawns");
        let mut thread = thread.try_join().expect_err("it runs");
        drop(end);
        while let Err(running) = thread.try_join() {
            thread = running;
            std::thread::yield_now();
        }
    }
}
