//! Communication of goroutines: channels, select, timers, sockets, and cancellation meanwhile.

use heist::net::{TcpListener, TcpStream, UnixStream, pipe};
use heist::{JoinHandle, chan, go, select, yield_now};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

/// Several senders and receivers at one channel: everything arrives once.
pub fn through_a_channel(n: u64) {
    const SENDERS: u64 = 3;
    const EACH: u64 = 20;
    let (tx, rx) = match n % 4 {
        0 => chan::unbounded(),
        1 => chan::bounded(0),
        capacity => chan::bounded(capacity as usize),
    };
    let receivers: Vec<_> = (0..2)
        .map(|_| {
            let rx = rx.clone();
            go(move || rx.iter().sum::<u64>())
        })
        .collect();
    drop(rx);
    for sender in 0..SENDERS {
        let tx = tx.clone();
        go(move || {
            for i in 0..EACH {
                tx.send(sender * EACH + i).unwrap();
            }
        });
    }
    // One that is a plain thread.
    let (outside, sent) = (tx.clone(), n % 100);
    drop(tx);
    let outside = n.is_multiple_of(20).then(|| thread::spawn(move || outside.send(sent).unwrap()));
    let received: u64 = receivers.into_iter().map(|receiver| receiver.join().unwrap()).sum();
    let mut expected = (0..SENDERS * EACH).sum();
    if let Some(outside) = outside {
        outside.join().unwrap();
        expected += sent;
    }
    assert_eq!(received, expected);
}

/// Waits for two channels, a timer and a timeout until both channels are closed.
pub fn through_a_select(n: u64) {
    const EACH: u64 = 10;
    let (left_tx, left) = chan::bounded((n % 3) as usize);
    let (right_tx, right) = chan::bounded(0);
    let pause = Duration::from_micros(n % 300);
    for (tx, pauses) in [(left_tx, false), (right_tx, true)] {
        go(move || {
            for i in 0..EACH {
                if pauses && i % 4 == 0 {
                    heist::time::sleep(pause);
                }
                tx.send(i).unwrap();
            }
        });
    }
    let (back_tx, back) = chan::bounded(1);
    let ticks = chan::tick(Duration::from_micros(200));
    let (mut sum, mut open) = (0, [true, true]);
    while open[0] || open[1] {
        let one = if open[0] { left.clone() } else { chan::never() };
        let other = if open[1] { right.clone() } else { chan::never() };
        select! {
            recv(one) -> got => match got { Ok(i) => sum += i, Err(_) => open[0] = false },
            recv(other) -> got => match got { Ok(i) => sum += i, Err(_) => open[1] = false },
            send(back_tx, 1) -> sent => sent.unwrap(),
            recv(ticks) -> _ => assert!(back.try_recv().is_ok_and(|n| n == 1) || back.is_empty()),
            default(Duration::from_micros(100)) => yield_now(),
        }
    }
    assert_eq!(sum, 2 * (0..EACH).sum::<u64>());
}

/// Timers that fire, are stopped, are reset and run out.
pub fn with_timers(n: u64) {
    let short = Duration::from_micros(n % 500);
    let from = Instant::now();
    let due = chan::after(short).recv().unwrap();
    assert!(due >= from + short, "{:?} early of {short:?}", (from + short) - due);
    let (tx, rx) = chan::bounded::<()>(0);
    assert!(rx.recv_timeout(short).is_err());
    drop(tx);
    let timer = heist::time::Timer::new(Duration::from_secs(3600));
    assert!(timer.reset(short));
    let fired = go(move || {
        timer.receiver().recv().unwrap();
        timer.reset(Duration::from_secs(3600));
        assert!(timer.stop());
    });
    let (done, wait) = chan::bounded(1);
    let _function = heist::time::after_func(short, move || done.send(()).unwrap());
    wait.recv().unwrap();
    fired.join().unwrap();
    assert!(from.elapsed() >= 2 * short);
}

/// Sends to an echo server, through one kind of connection or another.
pub fn over_a_socket(n: u64, echo: SocketAddr) {
    let text = vec![n as u8; 1 + (n % 30_000) as usize];
    match n % 4 {
        // A socket of heist: the goroutine waits, not its thread.
        0 => {
            let stream = TcpStream::connect(echo).unwrap();
            echoed(stream.try_clone().unwrap(), stream, text);
        }
        1 => {
            let (near, far) = UnixStream::pair().unwrap();
            let far = go(move || echo_all(far));
            echoed(near.try_clone().unwrap(), near, text);
            far.join().unwrap();
        }
        2 => {
            let (mut reader, mut writer) = pipe().unwrap();
            let expected = text.clone();
            let writes = go(move || writer.write_all(&text).unwrap());
            let mut got = Vec::new();
            reader.read_to_end(&mut got).unwrap();
            writes.join().unwrap();
            assert!(got == expected, "{} bytes of {}", got.len(), expected.len());
        }
        // A socket of std: the thread blocks, without an announcement.
        _ => {
            let mut stream = std::net::TcpStream::connect(echo).unwrap();
            stream.write_all(&text[..1]).unwrap();
            let mut byte = [!text[0]];
            stream.read_exact(&mut byte).unwrap();
            assert_eq!(byte[0], text[0]);
        }
    }
}

fn echoed(mut reader: impl Read, mut writer: impl Write + Send + 'static, text: Vec<u8>) {
    let expected = text.clone();
    let writes = go(move || writer.write_all(&text).unwrap());
    let mut got = vec![0; expected.len()];
    reader.read_exact(&mut got).unwrap();
    assert!(got == expected, "something else came back");
    writes.join().unwrap();
}

fn echo_all(mut stream: impl Read + Write) {
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            // A reader that has left does not read the rest.
            Ok(n) => drop(stream.write_all(&buffer[..n])),
        }
    }
}

/// A server that echoes everything until it is cancelled.
pub fn start_echo() -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = go(move || {
        loop {
            let (stream, _) = listener.accept().unwrap();
            go(move || echo_all(stream));
        }
    });
    (address, server)
}

/// Waits of every kind are cancelled, perhaps before they begin.
pub fn cancelled(n: u64) {
    const LONG: Duration = Duration::from_secs(3600);
    let victim: JoinHandle<()> = go(move || {
        match n % 5 {
            0 => heist::time::sleep(LONG),
            1 => drop(chan::never::<()>().recv()),
            2 => {
                let (tx, rx) = chan::bounded(0);
                select! {
                    send(tx, 1) -> _ => {}
                    recv(chan::after(LONG)) -> _ => {}
                }
                drop(rx);
            }
            3 => {
                let (mut near, far) = UnixStream::pair().unwrap();
                drop(near.read(&mut [0]));
                drop(far);
            }
            _ => {
                let mutex = heist::sync::Mutex::new(());
                drop(heist::sync::Condvar::new().wait(mutex.lock()));
            }
        }
        unreachable!("only a cancellation wakes it");
    });
    if n.is_multiple_of(2) {
        heist::time::sleep(Duration::from_micros(n % 200));
    }
    victim.cancel();
    assert!(victim.join().unwrap_err().is_cancelled());
}
