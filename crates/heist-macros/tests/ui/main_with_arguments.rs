use heist_macros as heist;

#[heist::main(unsafe)]
fn main(argc: i32, argv: *const *const u8) {}
