//! `panic = "abort"`: nothing can be unwound there. A program of that kind is built and run.

use std::path::PathBuf;
use std::process::{Command, Output};

/// The scenes of the program.
const MAIN: &str = r#"
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

struct Loud;
impl Drop for Loud {
    fn drop(&mut self) {
        eprintln!("dropped");
    }
}

fn park() {
    heist::chan::never::<()>().recv().unwrap();
}

/// A goroutine that is parked, or soon will be.
fn parked() -> heist::JoinHandle<()> {
    let began = heist::sync::WaitGroup::new();
    began.add(1);
    let begin = began.clone();
    let handle = heist::go(move || {
        begin.done();
        park();
    });
    began.wait();
    handle
}

fn main() {
    let scene = std::env::args().nth(1).unwrap();
    let rt = unsafe { heist::Runtime::builder().procs(2).build() }.unwrap();
    // A scene that hangs fails.
    std::thread::spawn(|| {
        std::thread::sleep(Duration::from_secs(60));
        std::process::abort();
    });
    match &*scene {
        "leave" => rt.run(|| drop(parked())),
        "cancel" => rt.run(|| {
            let handle = parked();
            handle.cancel();
            for _ in 0..100 {
                heist::yield_now();
            }
            assert!(!handle.is_finished());
            // One that has not begun is dropped, and one that asks learns of it.
            let unborn = heist::time::after_func(Duration::from_secs(3600), || unreachable!());
            assert!(unborn.stop());
            static BEGAN: AtomicBool = AtomicBool::new(false);
            let asks = heist::go(|| {
                BEGAN.store(true, Ordering::SeqCst);
                while !heist::goroutine::is_cancelled() {
                    heist::yield_now();
                }
                7
            });
            while !BEGAN.load(Ordering::SeqCst) {
                heist::yield_now();
            }
            asks.cancel();
            assert_eq!(asks.join().unwrap(), 7);
        }),
        "shutdown" => {
            let loud = Loud;
            rt.run(|| {
                drop(parked());
                heist::time::after_func(Duration::from_secs(3600), move || drop(loud));
            });
            // Computes until it is told to end.
            drop(rt.handle().spawn(|| while !heist::goroutine::is_cancelled() {}));
            drop(rt);
            eprintln!("shut down");
            return;
        }
        "semaphore" => rt.run(|| {
            let semaphore = heist::sync::Semaphore::new(1);
            let held = semaphore.acquire(1);
            let (ctx, _canceller) =
                heist::context::background().with_timeout(Duration::from_millis(5));
            assert!(semaphore.acquire_context(&ctx, 1).is_err());
            drop(held);
            assert_eq!(semaphore.available(), 1);
        }),
        "server" => rt.run(|| {
            let listener = heist::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let server = heist::net::Server::new();
            let serves = server.clone();
            let serving = heist::go(move || {
                serves.serve(listener, |mut stream, _| {
                    assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0, "it was shut down");
                })
            });
            let silent = heist::net::TcpStream::connect(address).unwrap();
            while server.connections() == 0 {
                heist::yield_now();
            }
            assert_eq!(server.shutdown(Duration::from_millis(5)).cancelled, 1);
            serving.join().unwrap().unwrap();
            drop(silent);
        }),
        "exit" => rt.run(|| drop(heist::go(|| heist::exit_current()).join())),
        scene => panic!("no scene {scene}"),
    }
    eprintln!("left");
}
"#;

/// Builds the program once.
fn program() -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("abort_mode");
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let manifest = format!(
        "[package]\nname = \"abort_mode\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
         [dependencies]\nheist = {{ path = {own:?} }}\n\n[profile.dev]\npanic = \"abort\"\n"
    );
    std::fs::create_dir_all(folder.join("src")).expect("a folder");
    std::fs::write(folder.join("Cargo.toml"), manifest).expect("a manifest");
    std::fs::write(folder.join("src/main.rs"), MAIN).expect("a program");
    // The same versions, which are there already.
    let _ = std::fs::copy(own.join("../../Cargo.lock"), folder.join("Cargo.lock"));
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--offline", "--quiet"]).current_dir(&folder);
    let built =
        build.env("CARGO_TARGET_DIR", folder.join("target")).output().expect("cargo starts");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    folder.join("target/debug/abort_mode")
}

fn said(output: &Output) -> String {
    format!("{}\n{}", output.status, String::from_utf8_lossy(&output.stderr))
}

/// Leaving `main` beside a parked goroutine, cancelling one and shutting down do not end the
/// process: goroutines that cannot be unwound are left where they are. Waits that a context or a
/// server ends need no unwinding. `exit_current` says why it cannot work.
#[test]
fn goroutines_that_cannot_be_unwound_are_left() {
    let program = program();
    let play = |scene: &str, debug: &str| {
        let mut command = Command::new(&program);
        command.arg(scene).env("HEIST_DEBUG", debug).output().expect("it starts")
    };
    for scene in ["leave", "cancel", "semaphore", "server"] {
        let output = play(scene, "");
        assert!(output.status.success(), "{scene}: {}", said(&output));
        assert_eq!(String::from_utf8_lossy(&output.stderr), "left\n", "{scene}");
    }
    let output = play("shutdown", "");
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "dropped\nshut down\n");
    // With a trace the number is reported.
    let output = play("leave", "schedtrace=3600000");
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("heist: 1 goroutines did not end"), "{}", said(&output));
    let output = play("exit", "");
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("exit_current"), "{}", said(&output));
}
