//! The prime sieve of the Go tutorial: a chain of goroutines, one for each prime, that each pass on
//! the numbers that their prime does not divide.
//!
//! `cargo run --release -p heist --example prime_sieve -- 1000`

use heist::chan::{self, Receiver};

/// All numbers from two on.
fn numbers() -> Receiver<u64> {
    let (tx, rx) = chan::bounded(0);
    heist::go(move || (2..).try_for_each(|n| tx.send(n)));
    rx
}

/// Passes on the numbers that `prime` does not divide.
fn filter(numbers: Receiver<u64>, prime: u64) -> Receiver<u64> {
    let (tx, rx) = chan::bounded(0);
    heist::go(move || numbers.iter().filter(|n| n % prime != 0).try_for_each(|n| tx.send(n)));
    rx
}

/// The first `n` primes. When it returns, the chain ends: each goroutine finds that its receiver is
/// gone.
fn primes(n: usize) -> Vec<u64> {
    let mut chain = numbers();
    let mut primes = Vec::new();
    while primes.len() < n {
        let Ok(prime) = chain.recv() else { break };
        primes.push(prime);
        chain = filter(chain, prime);
    }
    primes
}

#[heist::main(unsafe)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let n = std::env::args().nth(1).map_or(Ok(25), |n| n.parse())?;
    let primes = primes(n);
    println!("{primes:?}");
    assert_eq!(primes.iter().take(5).copied().collect::<Vec<_>>(), [2, 3, 5, 7, 11][..n.min(5)]);
    Ok(())
}
