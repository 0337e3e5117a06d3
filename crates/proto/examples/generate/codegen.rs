//! Compiles `proto/` to Rust without a system protoc. Shared by the generator and by the test that proves that the
//! checked-in code is what the generator writes.

use std::error::Error;
use std::path::{Path, PathBuf};

/// Everything a proxy speaks; imports follow by themselves.
const SOURCES: [&str; 9] = [
    "istio/workload/workload.proto",
    "istio/security/authorization.proto",
    "istio/zds/zds.proto",
    "istio/auth/certificate.proto",
    "lateen/listener_store.proto",
    "lateen/l7.proto",
    "envoy/service/discovery/v3/discovery.proto",
    "opentelemetry/proto/collector/logs/v1/logs_service.proto",
    "opentelemetry/proto/collector/trace/v1/trace_service.proto",
];

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Where the generated code is checked in.
pub fn checked_in() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/gen")
}

/// Writes one file per proto package into `out`.
pub fn generate(out: &Path) -> Result<(), Box<dyn Error>> {
    let descriptors = protox::compile(SOURCES, [root().join("proto")])?;
    tonic_prost_build::configure()
        .bytes(".")
        // Ordered maps: equal messages encode to equal bytes.
        .btree_map(".")
        .client_mod_attribute(".", "#[cfg(feature = \"rpc\")]")
        .server_mod_attribute(".", "#[cfg(feature = \"rpc-server\")]")
        .out_dir(out)
        .compile_fds(descriptors)?;
    Ok(())
}
