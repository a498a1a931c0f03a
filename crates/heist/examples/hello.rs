//! The smallest program: `main` is a goroutine, and it starts some more.
//!
//! ```console
//! cargo run --release -p heist --example hello
//! ```

use std::error::Error;

#[heist::main(unsafe)]
fn main() -> Result<(), Box<dyn Error>> {
    let greetings: Vec<_> = ["G", "M", "P"]
        .into_iter()
        .map(|name| heist::go(move || format!("hello from {name}")))
        .collect();
    for greeting in greetings {
        println!("{}", greeting.join()?);
    }
    Ok(())
}
