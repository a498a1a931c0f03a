use heist_macros as heist;

#[heist::main(unsafe, unsafe)]
fn main() {}
