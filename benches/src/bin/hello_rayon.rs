//! The smallest rayon program: its stripped size is the row binary_size.

fn main() {
    rayon::scope(|scope| scope.spawn(|_| println!("hello")));
}
