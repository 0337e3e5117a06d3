//! Hands the linker `order.ld`, which puts the functions that serving enters next to each other: see `hack/function-order.py`.
//!
//! Asked for where it can be had: by optimised builds for the processor that the list was made on, with a linker that
//! takes it, which is tried on a program of one line. Elsewhere functions lie as the linker likes, and nothing else is different.

use std::env;
use std::path::Path;
use std::process::{Command, Stdio};

fn main() {
    println!("cargo:rerun-if-changed=order.ld");
    println!("cargo:rerun-if-changed=build.rs");
    let variable = |name| env::var(name).expect("cargo sets it for build scripts");
    if variable("OPT_LEVEL") == "0" || variable("TARGET") != "x86_64-unknown-linux-gnu" {
        return;
    }
    // A copy: what cargo remembers of this script outlives a checkout that is moved, or that shares its target directory.
    let order = Path::new(&variable("OUT_DIR")).join("order.ld");
    std::fs::copy("order.ld", &order).expect("cargo has made OUT_DIR");
    // The second changes nothing and is lld's alone: other linkers refuse it, and so are not asked to match so many patterns.
    let arguments = [
        format!("-Wl,-T,{}", order.display()),
        "-Wl,--no-warn-symbol-ordering".to_owned(),
    ];
    if links(&arguments) {
        for argument in arguments {
            println!("cargo:rustc-link-arg-bin=lateen-proxy={argument}");
        }
    }
}

/// Whether a program is linked with these arguments, by the compiler, linker and flags of this build.
fn links(arguments: &[String]) -> bool {
    let variable = |name| env::var(name).unwrap_or_default();
    let out = Path::new(&variable("OUT_DIR")).to_owned();
    let source = out.join("tried.rs");
    if std::fs::write(&source, "fn main() {}\n").is_err() {
        return false;
    }
    let mut rustc = Command::new(variable("RUSTC"));
    rustc.arg("--target").arg(variable("TARGET"));
    let flags = variable("CARGO_ENCODED_RUSTFLAGS");
    rustc.args(flags.split('\u{1f}').filter(|flag| !flag.is_empty()));
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut chosen = std::ffi::OsString::from("-Clinker=");
        chosen.push(linker);
        rustc.arg(chosen);
    }
    for argument in arguments {
        rustc.arg(format!("-Clink-arg={argument}"));
    }
    rustc.arg("-o").arg(out.join("tried")).arg(source);
    rustc.stdout(Stdio::null()).stderr(Stdio::null());
    rustc.status().is_ok_and(|status| status.success())
}
