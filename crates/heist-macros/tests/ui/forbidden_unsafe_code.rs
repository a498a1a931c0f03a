#![forbid(unsafe_code)]
#![allow(unused_unsafe, reason = "the stand-in for the runtime is safe to build")]

extern crate self as heist;

pub use heist_macros::main;

pub struct Runtime;

impl Runtime {
    pub fn builder() -> Self {
        Runtime
    }

    pub fn build(self) -> Result<Self, String> {
        Ok(self)
    }

    pub fn run_main(self, f: fn()) {
        f()
    }
}

#[heist::main(unsafe)]
fn main() {}
