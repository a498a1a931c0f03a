//! The smallest program with a thread: its stripped size is the row binary_size.

fn main() {
    std::thread::spawn(|| println!("hello")).join().expect("thread panicked");
}
