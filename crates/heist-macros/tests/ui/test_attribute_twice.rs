use heist_macros as heist;

#[heist::test(unsafe)]
#[test]
fn runs_twice() {}

fn main() {}
