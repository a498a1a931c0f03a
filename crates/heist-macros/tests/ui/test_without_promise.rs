use heist_macros as heist;

#[heist::test]
fn never_runs() {}

fn main() {}
