//! The inputs that the macros refuse, and the exact text of the errors.
//!
//! Programs that compile need the runtime and are tested in the `heist` crate.

#[test]
fn refusals_explain_themselves_at_the_right_place() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
