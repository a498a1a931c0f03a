use heist_macros as heist;

#[heist::main(unsafe)]
async fn main() {}
