use heist_macros as heist;

#[heist::test(unsafe, procs = [])]
fn never_runs() {}

fn main() {}
