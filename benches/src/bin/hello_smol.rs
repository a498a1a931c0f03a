//! The smallest smol program: its stripped size is the row binary_size.

fn main() {
    smol::block_on(smol::spawn(async { println!("hello") }));
}
