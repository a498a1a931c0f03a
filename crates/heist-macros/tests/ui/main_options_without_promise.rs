use heist_macros as heist;

#[heist::main(procs = 2)]
fn main() {}
