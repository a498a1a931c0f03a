//! Descriptors that are bound to contexts, non-blocking mode, and owned descriptors.

use crate::matrix;

use heist::context::{self, ContextError};
use heist::net::{
    PipeReader, PipeWriter, TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixStream,
    context_error, pipe,
};
use heist::sync::WaitGroup;
use heist::{go, time};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

fn by(error: io::Error) -> ContextError {
    context_error(&error).unwrap_or_else(|| panic!("{error:?} is not the context's"))
}

/// A cancelled context ends reads and writes that wait, on goroutines and threads, and those that
/// come; without the guard the stream is as before.
#[test]
fn a_context_ends_operations_and_leaves_the_stream() {
    matrix::run(|| {
        let (ctx, canceller) = context::background().with_cancel();
        let (stream, mut other) = UnixStream::pair().unwrap();
        let stream = Arc::new(stream);
        let bound = ctx.bind(&*stream);
        let reader = {
            let stream = Arc::clone(&stream);
            go(move || (&*stream).read(&mut [0; 8]))
        };
        let writer = {
            let stream = Arc::clone(&stream);
            go(move || {
                loop {
                    if let Err(error) = (&*stream).write(&[0; 1 << 16]) {
                        break error;
                    }
                }
            })
        };
        matrix::until_parked(2, "IO wait");
        canceller.cancel();
        assert_eq!(by(reader.join().unwrap().unwrap_err()), ContextError::Canceled);
        assert_eq!(by(writer.join().unwrap()), ContextError::Canceled);
        other.write_all(b"there").unwrap();
        let error = (&*stream).read(&mut [0; 8]).unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string()),
            (ErrorKind::Other, "context canceled".into())
        );
        drop(bound);
        let mut buffer = [0; 5];
        (&*stream).read_exact(&mut buffer).unwrap();
        assert_eq!(&buffer, b"there");
        // A context that is done already.
        let bound = ctx.bind(&*stream);
        assert_eq!(by((&*stream).write(b"x").unwrap_err()), ContextError::Canceled);
        drop(bound);
        other.set_nonblocking(true).unwrap();
        assert_eq!((&*stream).read(&mut []).unwrap(), 0);
    });
}

/// The error tells a deadline of the context from a timeout of the stream, and both from a
/// cancellation.
#[test]
fn the_error_tells_cancelled_from_timed_out() {
    matrix::run(|| {
        let start = Instant::now();
        let (ctx, _canceller) = context::background().with_timeout(2 * MS);
        let (mut stream, _other) = UnixStream::pair().unwrap();
        let bound = ctx.bind(&stream);
        let error = (&stream).read(&mut [0]).unwrap_err();
        assert!(start.elapsed() >= 2 * MS);
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!(by(io::Error::other(error)), ContextError::DeadlineExceeded);
        drop(bound);
        stream.set_read_timeout(Some(MS)).unwrap();
        let error = stream.read(&mut [0]).unwrap_err();
        assert_eq!((error.kind(), context_error(&error)), (ErrorKind::TimedOut, None));
    });
}

/// A descriptor that is bound twice fails as long as one of the contexts that are done binds it.
#[test]
fn several_contexts_bind_a_descriptor() {
    matrix::run(|| {
        let (one, cancel_one) = context::background().with_cancel();
        let (other, cancel_other) = context::background().with_cancel();
        let (mut reader, mut writer) = pipe().unwrap();
        writer.write_all(b"x").unwrap();
        let first = one.bind(&reader);
        let second = other.bind(&reader);
        cancel_other.cancel();
        assert!((&reader).read(&mut [0]).is_err());
        drop(first);
        assert!((&reader).read(&mut [0]).is_err());
        drop(second);
        let first = one.bind(&reader);
        std::mem::forget(first);
        assert_eq!(reader.read(&mut [0]).unwrap(), 1);
        // A guard that was leaked keeps the binding, also when the value has moved.
        let mut moved = Box::new(reader);
        cancel_one.cancel();
        assert_eq!(by(moved.read(&mut [0]).unwrap_err()), ContextError::Canceled);
        drop(moved);
        cancel_one.cancel();
    });
}

/// Accepting, connecting and a plain thread's read can be ended.
#[test]
fn every_wait_for_a_descriptor_can_be_ended() {
    matrix::run(|| {
        let (ctx, canceller) = context::background().with_cancel();
        let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
        let (reader, _writer) = pipe().unwrap();
        let thread = {
            let ctx = ctx.clone();
            std::thread::spawn(move || {
                let _bound = ctx.bind(&reader);
                by((&reader).read(&mut [0]).unwrap_err())
            })
        };
        let accepts = {
            let (listener, ctx) = (Arc::clone(&listener), ctx.clone());
            go(move || {
                let _bound = ctx.bind(&*listener);
                by(listener.accept().unwrap_err())
            })
        };
        matrix::until_parked(1, "IO wait");
        canceller.cancel();
        assert_eq!(accepts.join().unwrap(), ContextError::Canceled);
        assert_eq!(heist::blocking(|| thread.join().unwrap()), ContextError::Canceled);
        let address = listener.local_addr().unwrap();
        let error = TcpStream::connect_context(&ctx, address).unwrap_err();
        assert_eq!(by(error), ContextError::Canceled);
        let connected = TcpStream::connect_context(&context::background(), address).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        drop((connected, accepted));
    });
}

/// Streams that are bound, cancelled, closed and dropped at the same time: every operation ends.
#[test]
fn bindings_race_with_ends() {
    matrix::run(|| {
        let group = WaitGroup::new();
        for i in 0..40_u64 {
            let (ctx, canceller) = context::background().with_cancel();
            let (stream, other) = UnixStream::pair().unwrap();
            let stream = Arc::new(stream);
            let reader = Arc::clone(&stream);
            group.go(move || {
                let bound = ctx.bind(&*reader);
                assert!((&*reader).read(&mut [0]).map_or(true, |n| n == 0));
                drop(bound);
            });
            group.go(move || {
                time::sleep(Duration::from_micros(i % 7 * 10));
                canceller.cancel();
            });
            group.go(move || {
                time::sleep(Duration::from_micros(i % 5 * 10));
                if i % 2 == 0 {
                    let _ = stream.close();
                }
                drop(stream);
                drop(other);
            });
        }
        group.wait();
    });
}

/// In non-blocking mode an operation that would wait fails with `WouldBlock`, on goroutines and
/// threads.
#[test]
fn nonblocking_operations_do_not_wait() {
    let check = || {
        let (mut stream, mut other) = UnixStream::pair().unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut buffer = [0; 8];
        assert_eq!(stream.read(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
        other.write_all(b"abc").unwrap();
        assert_eq!(stream.read(&mut buffer).unwrap(), 3);
        assert_eq!(stream.read(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
        let full = loop {
            if let Err(error) = stream.write(&[0; 1 << 16]) {
                break error;
            }
        };
        assert_eq!(full.kind(), ErrorKind::WouldBlock);
        stream.set_read_deadline(Some(Instant::now())).unwrap();
        assert_eq!(stream.read(&mut buffer).unwrap_err().kind(), ErrorKind::TimedOut);
        stream.set_read_deadline(None).unwrap();
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(MS)).unwrap();
        assert_eq!(stream.read(&mut buffer).unwrap_err().kind(), ErrorKind::TimedOut);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    };
    check();
    matrix::run(check);
}

/// A direction that another goroutine waits for is one that would have to be waited for.
#[test]
fn a_busy_direction_would_block() {
    matrix::run(|| {
        let (stream, mut other) = UnixStream::pair().unwrap();
        let stream = Arc::new(stream);
        let reader = {
            let stream = Arc::clone(&stream);
            go(move || (&*stream).read(&mut [0]).unwrap())
        };
        matrix::until_parked(1, "IO wait");
        stream.set_nonblocking(true).unwrap();
        assert_eq!((&*stream).read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        other.write_all(b"x").unwrap();
        assert_eq!(reader.join().unwrap(), 1);
    });
}

/// Each type is made from a descriptor and gives it back, in blocking mode; also after a close.
#[test]
fn descriptors_are_taken_over_and_given_back() {
    matrix::run(|| {
        fn there_and_back<T>(value: T)
        where
            T: From<OwnedFd> + IntoRawFd + AsRawFd,
            OwnedFd: From<T>,
        {
            let number = value.as_raw_fd();
            let fd = OwnedFd::from(value);
            assert_eq!(fd.as_raw_fd(), number);
            let again = T::from(fd);
            assert_eq!(again.into_raw_fd(), number);
            // The number is the caller's: it becomes a value again, which closes it.
            // SAFETY: it was just given up.
            drop(T::from(unsafe { std::os::fd::FromRawFd::from_raw_fd(number) }));
        }
        let (a, b) = UnixStream::pair().unwrap();
        there_and_back(a);
        b.close().unwrap();
        drop(OwnedFd::from(b));
        let (reader, writer) = pipe().unwrap();
        there_and_back::<PipeReader>(reader);
        there_and_back::<PipeWriter>(writer);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        there_and_back(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        there_and_back(listener);
        there_and_back(UdpSocket::bind("127.0.0.1:0").unwrap());
        there_and_back(UnixDatagram::unbound().unwrap());
        let (raw, mut other) = UnixStream::pair().unwrap();
        let mut std = std::os::unix::net::UnixStream::from(OwnedFd::from(raw));
        let thread = std::thread::spawn(move || {
            let mut byte = [0];
            std.read_exact(&mut byte).map(|()| byte[0])
        });
        other.write_all(b"x").unwrap();
        assert_eq!(heist::blocking(|| thread.join().unwrap()).unwrap(), b'x');
    });
}
