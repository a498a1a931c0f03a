use heist_macros as heist;

#[heist::test(unsafe)]
const fn constant() {}

#[heist::test(unsafe)]
extern "C" fn foreign() {}

fn main() {}
