//! Any bytes as the first of a TLS client that is relayed by its server name. However they come, the decision is that about all of
//! them, and a name is in lower case.
#![no_main]

use lateen_tls::{Hello, LONGEST_HELLO, read_hello};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // One that goes on for longer is given up on the way.
    let bytes = &bytes[..bytes.len().min(LONGEST_HELLO - 1)];
    let whole = read_hello(bytes);
    if let Hello::Whole(Some(name)) = &whole {
        assert!(!name.is_empty() && !name.bytes().any(|byte| byte.is_ascii_uppercase()));
    }
    // Cuts of long inputs are tried here and there.
    for cut in (0..bytes.len()).step_by(bytes.len() / 32 + 1) {
        let part = read_hello(&bytes[..cut]);
        assert!(part == Hello::Partial || part == whole, "{part:?} at {cut}, then {whole:?}");
    }
});
