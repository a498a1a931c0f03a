use heist_macros as heist;

#[heist::main(unsafe, threads = 2)]
fn main() {}
