//! Regenerates `crates/proto/src/gen` from `proto/`.

mod codegen;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    std::fs::create_dir_all(codegen::checked_in())?;
    codegen::generate(&codegen::checked_in())
}
