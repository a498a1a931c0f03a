//! APIs with std's names: files, pipes, sockets, signals.

use crate::child;
use crate::matrix;

use heist::fs::{self, File, OpenOptions};
use heist::net::{PipeReader, PipeWriter, PollFd, UdpSocket, UnixStream, is_closed, pipe};
use heist::process::Command;
use heist::signal::{self, Signal};
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// A folder for one test, which is removed after it.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("heist-{test}-{}", std::process::id()));
        fs::create_dir(&path).expect("a new folder");
        Self(path.canonicalize().expect("it is there"))
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let removed = fs::remove_dir_all(&self.0);
        assert!(removed.is_ok() || std::thread::panicking(), "{removed:?}");
    }
}

#[test]
fn files_open_as_the_options_say() {
    matrix::plain(2).run(|| {
        let folder = Folder::new("options");
        let path = folder.at("file");
        let open = |options: &mut OpenOptions| options.open(&path);
        let refused = |options: &mut OpenOptions| open(options).expect_err("refused").kind();

        assert_eq!(refused(OpenOptions::new().read(true)), ErrorKind::NotFound);
        let mut file = open(File::options().write(true).create_new(true).mode(0o600)).expect("new");
        assert_eq!(file.metadata().expect("is open").permissions().mode() & 0o777, 0o600);
        file.write_all(b"one").expect("writes");
        assert!(file.read(&mut [0]).is_err(), "it is not open for reading");
        assert_eq!(refused(File::options().write(true).create_new(true)), ErrorKind::AlreadyExists);

        let mut file = open(File::options().append(true).create(true)).expect("is there");
        file.write_all(b" two").expect("writes");
        assert_eq!(fs::read_to_string(&path).expect("reads"), "one two");

        let both = File::options().read(true).write(true).truncate(true).clone();
        let mut file = both.open(&path).expect("is there");
        assert_eq!(file.metadata().expect("is open").len(), 0);
        file.write_all(b"three").expect("writes");
        file.rewind().expect("seeks");
        assert_eq!(std::io::read_to_string(file).expect("reads"), "three");

        let mut of_std = std::fs::OpenOptions::new();
        let file = OpenOptions::from(of_std.read(true).clone()).open(&path).expect("is there");
        assert_eq!(std::io::read_to_string(file).expect("reads"), "three");
    });
}

#[test]
fn files_do_what_those_of_std_do() {
    matrix::plain(2).run(|| {
        let folder = Folder::new("files");
        let path = folder.at("file");
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path);
        let file = file.expect("opens");

        // By shared references, several slices at once.
        let slices = [IoSlice::new(b"abc"), IoSlice::new(b"defgh")];
        assert_eq!((&file).write_vectored(&slices).expect("writes"), 8);
        file.sync_data().expect("a disk");
        file.sync_all().expect("a disk");
        assert_eq!((&file).seek(SeekFrom::Start(1)).expect("seeks"), 1);
        let (mut a, mut b) = ([0; 2], [0; 4]);
        let mut slices = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)];
        assert_eq!((&file).read_vectored(&mut slices).expect("reads"), 6);
        assert_eq!((&a, &b), (b"bc", b"defg"));

        // A second handle continues at the position of the first.
        let mut clone = file.try_clone().expect("a descriptor");
        assert_ne!(clone.as_raw_fd(), file.as_raw_fd());
        let mut byte = [0];
        clone.read_exact(&mut byte).expect("reads");
        assert_eq!(&byte, b"h");
        assert_eq!((&file).read(&mut byte).expect("the end"), 0);

        file.set_len(2).expect("cuts");
        assert_eq!(fs::read(&path).expect("reads"), b"ab");
        file.set_len(4).expect("fills up");
        assert_eq!(fs::read(&path).expect("reads"), b"ab\0\0");

        let mode = || fs::metadata(&path).expect("is there").permissions().mode() & 0o777;
        file.set_permissions(PermissionsExt::from_mode(0o640)).expect("is mine");
        assert_eq!(mode(), 0o640);
        fs::set_permissions(&path, PermissionsExt::from_mode(0o604)).expect("is mine");
        assert_eq!(mode(), 0o604);

        // The same descriptor all the way.
        let number = file.as_raw_fd();
        assert_eq!(file.as_fd().as_raw_fd(), number);
        let of_std = std::fs::File::from(file);
        let descriptor = OwnedFd::from(File::from(of_std));
        assert_eq!(descriptor.as_raw_fd(), number);
    });
}

#[test]
fn folders_and_links_work_as_in_std() {
    matrix::plain(2).run(|| {
        let folder = Folder::new("folders");
        let (inner, file, link) = (folder.at("inner"), folder.at("inner/file"), folder.at("link"));
        assert!(!fs::exists(&inner).expect("may look"));
        let orphan = fs::create_dir(folder.at("no/inner")).expect_err("nothing above it");
        assert_eq!(orphan.kind(), ErrorKind::NotFound);
        fs::create_dir(&inner).expect("makes");
        assert_eq!(fs::create_dir(&inner).expect_err("there").kind(), ErrorKind::AlreadyExists);

        fs::write(&file, "text").expect("writes");
        assert!(fs::exists(&file).expect("may look"));
        let full = fs::remove_dir(&inner).expect_err("not empty");
        assert_eq!(full.kind(), ErrorKind::DirectoryNotEmpty);

        symlink(&file, &link).expect("links");
        assert_eq!(fs::read_link(&link).expect("a link"), file);
        assert!(fs::symlink_metadata(&link).expect("is there").is_symlink());
        assert!(fs::metadata(&link).expect("is there").is_file());
        assert_eq!(fs::canonicalize(folder.at("inner/../link")).expect("is there"), file);
        assert_eq!(fs::read_link(&file).expect_err("a file").kind(), ErrorKind::InvalidInput);

        let second = folder.at("second");
        fs::hard_link(&file, &second).expect("links");
        fs::remove_file(&file).expect("was there");
        assert_eq!(fs::read_to_string(&second).expect("the same file"), "text");
        assert!(!fs::exists(&link).expect("may look"), "it leads nowhere");
        assert!(fs::symlink_metadata(&link).is_ok(), "it is there itself");
        fs::remove_dir(&inner).expect("is empty now");
        assert!(!fs::exists(&inner).expect("may look"));
    });
}

#[test]
fn multicast_options_are_kept() {
    matrix::plain(2).run(|| {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("binds");
        for comes_back in [false, true] {
            socket.set_multicast_loop_v4(comes_back).expect("sets");
            assert_eq!(socket.multicast_loop_v4().expect("tells"), comes_back);
        }
        assert_eq!(socket.multicast_ttl_v4().expect("tells"), 1);
        socket.set_multicast_ttl_v4(7).expect("sets");
        assert_eq!(socket.multicast_ttl_v4().expect("tells"), 7);
        socket.set_multicast_ttl_v4(256).expect_err("too far");
        socket.set_multicast_loop_v6(true).expect_err("it speaks IPv4");

        // Not every machine has IPv6.
        if let Ok(socket) = UdpSocket::bind("[::1]:0") {
            for comes_back in [false, true] {
                socket.set_multicast_loop_v6(comes_back).expect("sets");
                assert_eq!(socket.multicast_loop_v6().expect("tells"), comes_back);
            }
        }
        socket.close().expect("closes");
        assert!(is_closed(&socket.multicast_ttl_v4().expect_err("closed")));
    });
}

#[test]
fn the_ends_of_a_pipe_can_be_cloned() {
    matrix::plain(2).run(|| {
        let (reader, writer) = pipe().expect("a pipe");
        reader.set_read_timeout(Some(Duration::from_secs(3600))).expect("a time");
        let mut second = reader.try_clone().expect("a descriptor");
        assert_eq!(second.read_timeout().expect("tells"), Some(Duration::from_secs(3600)));
        let waiting = heist::go(move || {
            let mut text = String::new();
            second.read_to_string(&mut text).expect("reads");
            text
        });
        matrix::until_parked(1, "IO wait");
        let writers = [writer.try_clone().expect("a descriptor"), writer];
        for mut writer in writers {
            writer.write_all(b"x").expect("writes");
        }
        assert_eq!(waiting.join().expect("ends well"), "xx");
        assert_eq!((&reader).read(&mut [0]).expect("the end"), 0);
        reader.close().expect("closes");
        assert!(is_closed(&reader.try_clone().expect_err("closed")));
    });
}

#[test]
fn pipes_go_to_std_and_back() {
    matrix::plain(2).run(|| {
        let (reader, writer) = pipe().expect("a pipe");
        let of_std: std::io::PipeReader = reader.try_into().expect("std's");
        let mut reader: PipeReader = of_std.try_into().expect("ours");
        let of_std: std::io::PipeWriter = writer.try_into().expect("std's");
        let mut writer: PipeWriter = of_std.try_into().expect("ours");
        // It waits as a goroutine: it is in non-blocking mode again.
        let waiting = heist::go(move || {
            let mut byte = [0];
            reader.read_exact(&mut byte).map(|()| byte)
        });
        matrix::until_parked(1, "IO wait");
        writer.write_all(b"x").expect("writes");
        assert_eq!(&waiting.join().expect("ends well").expect("reads"), b"x");
    });
}

/// The output of one program is the input of the next, which knows nothing of non-blocking pipes.
#[test]
fn programs_are_chained_by_pipes() {
    const NONBLOCK: u32 = 0o4000;
    matrix::plain(2).run(|| {
        let mut sh = Command::new("sh");
        sh.args(["-c", "read line; head -c 200000 /dev/zero"]);
        let mut first = sh.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
        let (mut reader, writer) = pipe().expect("a pipe");
        let mut count = Command::new("wc");
        count.arg("-c").stdin(first.stdout.take().expect("a pipe")).stdout(writer);
        let mut second = count.spawn().expect("starts");
        // It holds the end of the pipe that the program writes.
        drop(count);
        // Both are open until the first one gets its line.
        for fd in 0..2 {
            let path = format!("/proc/{}/fdinfo/{fd}", second.id());
            let info = fs::read_to_string(path).expect("is open");
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).expect("flags");
            assert_eq!(u32::from_str_radix(flags.trim(), 8).expect("a number") & NONBLOCK, 0);
        }
        first.stdin.take().expect("a pipe").write_all(b"go\n").expect("writes");
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("reads");
        assert_eq!(text.trim(), "200000");
        assert!(first.wait().expect("waits").success());
        assert!(second.wait().expect("waits").success());
    });
}

#[test]
fn a_program_gets_nothing_from_a_closed_pipe() {
    matrix::plain(2).run(|| {
        let (reader, writer) = pipe().expect("a pipe");
        reader.close().expect("closes");
        writer.close().expect("closes");
        let script = "cat; echo lost";
        let status = Command::new("sh").args(["-c", script]).stdin(reader).stdout(writer).status();
        assert!(status.expect("starts").success());
    });
}

#[test]
fn poll_fd_shows_what_it_holds_and_its_limits() {
    matrix::plain(2).run(|| {
        let (near, mut far) = UnixStream::pair().expect("a pair");
        let near = PollFd::new(near.into_std().expect("std's")).expect("can be polled");
        assert!(near.get_ref().peer_addr().expect("connected").is_unnamed());

        assert_eq!(near.read_timeout().expect("tells"), None);
        let (short, long) = (Duration::from_millis(2), Duration::from_secs(3600));
        near.set_read_timeout(Some(short)).expect("a time");
        near.set_write_timeout(Some(long)).expect("a time");
        assert_eq!(near.read_timeout().expect("tells"), Some(short));
        assert_eq!(near.write_timeout().expect("tells"), Some(long));
        assert_eq!((&near).read(&mut [0]).expect_err("late").kind(), ErrorKind::TimedOut);
        near.set_read_timeout(None).expect("no time");

        near.set_deadline(Some(Instant::now())).expect("a deadline");
        assert_eq!((&near).read(&mut [0]).expect_err("late").kind(), ErrorKind::TimedOut);
        assert_eq!((&near).write(b"x").expect_err("late").kind(), ErrorKind::TimedOut);
        near.set_deadline(None).expect("no deadline");

        let slices = [IoSlice::new(b"ab"), IoSlice::new(b"cde")];
        assert_eq!((&near).write_vectored(&slices).expect("writes"), 5);
        let mut all = [0; 5];
        far.read_exact(&mut all).expect("reads");
        assert_eq!(&all, b"abcde");
        far.write_all(&all).expect("writes");
        let (mut a, mut b) = ([0; 1], [0; 4]);
        let mut slices = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)];
        assert_eq!((&near).read_vectored(&mut slices).expect("reads"), 5);
        assert_eq!((&a, &b), (b"a", b"bcde"));

        near.close().expect("closes");
    });
}

/// Of two values that wait for one descriptor the second fails, whatever the first is; a duplicate
/// does not.
#[test]
fn a_descriptor_is_waited_for_by_one_value() {
    matrix::plain(2).run(|| {
        let soon = Some(Duration::from_millis(2));
        let (near, _far) = UnixStream::pair().expect("a pair");
        near.set_read_timeout(soon).expect("a time");
        assert_eq!((&near).read(&mut [0]).expect_err("late").kind(), ErrorKind::TimedOut);
        let second = PollFd::new(near.as_fd()).expect("can be polled");
        assert_eq!(second.wait_readable().expect_err("taken").kind(), ErrorKind::AlreadyExists);
        drop(second);

        let duplicate = near.as_fd().try_clone_to_owned().expect("a descriptor");
        let first = PollFd::new(duplicate).expect("can be polled");
        first.set_read_timeout(soon).expect("a time");
        assert_eq!(first.wait_readable().expect_err("late").kind(), ErrorKind::TimedOut);
        let second = PollFd::new(first.as_fd()).expect("can be polled");
        assert_eq!(second.wait_readable().expect_err("taken").kind(), ErrorKind::AlreadyExists);
    });
}

#[test]
fn signals_have_names() {
    let named = [
        (signal::HANGUP, "SIGHUP"),
        (signal::INTERRUPT, "SIGINT"),
        (signal::QUIT, "SIGQUIT"),
        (signal::USER1, "SIGUSR1"),
        (signal::USER2, "SIGUSR2"),
        (signal::TERMINATE, "SIGTERM"),
        (signal::CHILD, "SIGCHLD"),
        (signal::WINDOW_CHANGE, "SIGWINCH"),
        (Signal::from_raw(42), "signal 42"),
    ];
    for (signal, name) in named {
        assert_eq!(signal.to_string(), name);
    }
}

/// In a process of its own, because signals belong to the process.
#[test]
fn signals_come_one_after_the_other() {
    fn send(signal: &str) {
        let own = std::process::id().to_string();
        assert!(Command::new("kill").args([signal, &own]).status().expect("runs").success());
    }
    let ended = child::run(|| {
        matrix::plain(2).run(|| {
            let signals = signal::notify(&[signal::USER1, signal::USER2]).expect("asks");
            send("-USR1");
            let mut seen = Vec::new();
            for signal in &signals {
                seen.push(signal.to_string());
                match seen.len() {
                    1 => send("-USR2"),
                    2 => send("-USR1"),
                    _ => break,
                }
            }
            assert_eq!(seen, ["SIGUSR1", "SIGUSR2", "SIGUSR1"]);

            // One receives all of them, the other none: sixteen wait there.
            let late = signal::notify(&[signal::USER1]).expect("asks");
            for n in 0..20 {
                send("-USR1");
                assert_eq!(signals.recv(), Ok(signal::USER1), "{n}");
            }
            // Both are notified under one lock, which this call takes.
            drop(signals);
            assert_eq!(late.try_iter().count(), 16);
        });
    });
    ended.succeeded();
}

/// To close a `PollFd` that has a share of a descriptor leaves the descriptor to its owner.
#[test]
fn a_borrowed_descriptor_stays_open() {
    matrix::plain(2).run(|| {
        let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
        let borrowed = PollFd::new(reader.as_fd()).expect("can be waited for");
        borrowed.close().expect("closes");
        assert!(is_closed(&borrowed.wait_readable().expect_err("closed")));
        drop(borrowed);
        writer.write_all(b"x").expect("it is read");
        let mut byte = [0];
        reader.read_exact(&mut byte).expect("it is the same pipe");
        assert_eq!(&byte, b"x");
    });
}
