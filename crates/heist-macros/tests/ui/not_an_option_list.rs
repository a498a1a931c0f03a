use heist_macros as heist;

#[heist::main(unsafe, 2)]
fn main() {}
