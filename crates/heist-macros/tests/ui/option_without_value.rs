use heist_macros as heist;

#[heist::main(unsafe, procs)]
fn main() {}
