//! The smallest may program: its stripped size is the row binary_size.

fn main() {
    may::go!(|| println!("hello")).join().expect("coroutine panicked");
}
