//! The `lateen-load` program.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    lateen_load::main()
}
