use heist_macros as heist;

#[heist::main]
fn main() {
    println!("never");
}
