//! Any bytes as a kernel's type information: refused or understood, never a panic.
#![no_main]

use lateen_bpf_splice::btf::Types;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(types) = Types::parse(data) {
        let _ = types.offset("tcp_sock", &["inet_conn", "icsk_inet", "sk"]);
        let _ = types.offset("tcp_sock", &["write_seq"]);
        let _ = types.number("SOCK_ZEROCOPY");
    }
});
