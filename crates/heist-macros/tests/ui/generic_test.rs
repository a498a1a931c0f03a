use heist_macros as heist;

#[heist::test(unsafe)]
fn generic<T: Default>() {
    let _ = T::default();
}

fn main() {}
