use heist_macros as heist;

#[heist::main(unsafe, crate = heist, crate = heist)]
fn main() {}
