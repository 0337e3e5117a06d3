//! The checked-in code is what the generator writes.

#[path = "../examples/generate/codegen.rs"]
mod codegen;

use std::collections::BTreeMap;
use std::path::Path;

fn files(folder: &Path) -> BTreeMap<String, String> {
    std::fs::read_dir(folder)
        .expect("the folder exists")
        .map(|entry| {
            let path = entry.expect("the folder is readable").path();
            let name = path
                .file_name()
                .expect("a file has a name")
                .to_string_lossy()
                .into_owned();
            (
                name,
                std::fs::read_to_string(&path).expect("generated code is text"),
            )
        })
        .collect()
}

#[test]
fn checked_in_code_is_current() {
    let fresh = tempfile::tempdir().expect("a temporary folder");
    codegen::generate(fresh.path()).expect("proto/ compiles");
    let (fresh, checked_in) = (files(fresh.path()), files(&codegen::checked_in()));
    assert_eq!(
        fresh.keys().collect::<Vec<_>>(),
        checked_in.keys().collect::<Vec<_>>(),
        "run `cargo run -p lateen-proto --example generate`"
    );
    for (name, text) in fresh {
        assert!(
            checked_in[&name] == text,
            "{name} is stale: run `cargo run -p lateen-proto --example generate`"
        );
    }
}
