//! The smallest go-lib program: its stripped size is the row binary_size.

use go_lib::chan::chan;
use go_lib::go;

#[go_lib::main]
fn main() {
    let (tx, rx) = chan(1);
    go!(move || {
        println!("hello");
        tx.send(());
    });
    rx.recv().expect("goroutine panicked");
}
