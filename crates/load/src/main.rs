//! lateen-load.
#![forbid(unsafe_code)]
fn main() {}
