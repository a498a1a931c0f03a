//! The smallest tokio program: its stripped size is the row binary_size.

fn main() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("tokio runtime");
    runtime.block_on(async {
        tokio::spawn(async { println!("hello") }).await.expect("task panicked")
    });
}
