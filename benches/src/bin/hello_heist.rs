//! The smallest heist program: its stripped size is the row binary_size.

fn main() {
    // SAFETY: nothing here is bound to a thread.
    let runtime = unsafe { heist::Runtime::builder().build() }.expect("heist runtime");
    runtime.run(|| heist::go(|| println!("hello")).join().expect("goroutine panicked"));
}
