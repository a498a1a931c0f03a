use heist_macros as heist;

#[heist::main(unsafe, procs = [1, 2])]
fn main() {}
