//! Any bytes as a PROXY v2 header: nothing panics, a part of a header asks for more and never for less than there is, and
//! what was read and is not skipped is written the same again.
#![no_main]

use lateen_proxy_protocol::{Addresses, Command, MAX_HEADER, Parsed, encode, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| match parse(bytes) {
    Ok(Parsed::Complete { header, length }) => {
        assert!(length <= bytes.len() && length <= MAX_HEADER);
        if header.command == Command::Proxy && header.addresses != Addresses::Unspecified {
            let again = encode(&header).expect("what was read fits");
            assert_eq!(again[..], bytes[..length]);
        }
        // Not a byte less will do.
        assert!(matches!(parse(&bytes[..length - 1]), Ok(Parsed::Incomplete { needed }) if needed <= length));
    }
    Ok(Parsed::Incomplete { needed }) => assert!(needed > bytes.len() && needed <= MAX_HEADER),
    Err(_) => {}
});
