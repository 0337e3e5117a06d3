//! Any bytes as the first of a TLS client that is relayed by its server name. However they come, the decision is that about all of
//! them, and a name is in lower case.
//!
//! Files: crates/tls/src/client_hello.rs
#![no_main]

use lateen_tls::{Hello, HelloReader, LONGEST_HELLO};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // One that goes on for longer is given up on the way.
    let bytes = &bytes[..bytes.len().min(LONGEST_HELLO - 1)];
    let whole = HelloReader::default().read(bytes);
    if let Hello::Whole(Some(name)) = &whole {
        assert!(!name.is_empty() && !name.bytes().any(|byte| byte.is_ascii_uppercase()));
    }
    // Cuts of long inputs are tried here and there.
    let mut reader = HelloReader::default();
    for cut in (0..bytes.len()).step_by(bytes.len() / 32 + 1) {
        for part in [HelloReader::default().read(&bytes[..cut]), reader.read(&bytes[..cut])] {
            assert!(part == Hello::Partial || part == whole, "{part:?} at {cut}, then {whole:?}");
        }
    }
});
