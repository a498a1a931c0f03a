//! Prints how often a goroutine that moved used the thread-local of another thread. Exit code 1 if
//! it ever did.

use heist_checks::offsets;
use heist_checks::thread_locals::{KINDS, PARKS, check};
use std::process::ExitCode;

#[heist::main(unsafe)]
fn main() -> ExitCode {
    let rounds = std::env::args().nth(1).map_or(Ok(300), |n| n.parse());
    let Ok(rounds) = rounds else {
        eprintln!("usage: thread_locals [ROUNDS]");
        return ExitCode::from(2);
    };
    let (mut wrong, mut moved) = (0, 0);
    for (i, park) in PARKS.iter().enumerate() {
        println!("{park}");
        for (kind, tally) in KINDS.iter().zip(check(i, rounds)) {
            println!("    {kind:<22} {tally}");
            wrong += tally.wrong();
            moved += tally.moved();
        }
    }
    let beyond = offsets::check(10 * rounds as usize);
    println!("addresses with an offset: {beyond} wrong");
    wrong += beyond;
    println!("{wrong} wrong of {moved} uses after a move");
    if wrong == 0 && moved > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
