use heist_macros as heist;

#[heist::main(unsafe, procs = 1, procs = 2)]
fn main() {}
