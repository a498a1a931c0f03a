//! A service that works off jobs from a Redis stream, in as many processes and on as many machines
//! as are started: what takes a program on heist beyond one machine.
//!
//! ```console
//! cluster_worker work 127.0.0.1:6379 jobs NAME    # each process with a name of its own
//! cluster_worker add 127.0.0.1:6379 jobs 1000     # adds as many jobs
//! ```
//!
//! Redis hands every job to one process of the group and remembers it until it is acknowledged. A
//! goroutine works on each job; a semaphore bounds their number. A job that fails is tried again. A
//! process refreshes its claim on the jobs it works on; jobs whose process died are claimed by the
//! others after a while. So each job is done at least once: a job whose process died after the work
//! and before the acknowledgement is done twice. SIGTERM ends a process when its jobs are done.
//!
//! Results go to the stream `jobs:done`, jobs that were given up to `jobs:failed`.

mod settings;
mod store;
mod worker;

use heist::{context, signal};
use settings::Settings;
use std::error::Error;
use std::process::ExitCode;
use store::Store;

const USAGE: &str = "usage: cluster_worker work ADDRESS STREAM NAME
       cluster_worker add ADDRESS STREAM COUNT";

#[heist::main(unsafe)]
fn main() -> Result<ExitCode, Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["work", address, stream, name] => work(address, stream, name)?,
        ["add", address, stream, count] => {
            let store = Store::new(address, stream, "adder");
            (0..count.parse()?).try_for_each(|n: u64| store.add(&[("job", n.to_string())]))?;
        }
        _ => {
            eprintln!("{USAGE}");
            return Ok(ExitCode::from(2));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn work(address: &str, stream: &str, name: &str) -> Result<(), Box<dyn Error>> {
    let settings = Settings::from_environment()?;
    let (stop, canceller) = context::background().with_cancel();
    let signals = signal::notify(&[signal::INTERRUPT, signal::TERMINATE])?;
    heist::go(move || {
        if let Ok(signal) = signals.recv() {
            eprintln!("{signal}: finishing the jobs that run");
            canceller.cancel();
        }
    });
    let store = Store::new(address, stream, name);
    store.make_group()?;
    let left = worker::run(store, &settings, &stop);
    println!("{name}: {left:?}");
    Ok(())
}
