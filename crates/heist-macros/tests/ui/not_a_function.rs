use heist_macros as heist;

#[heist::main(unsafe)]
struct Main;

fn main() {}
