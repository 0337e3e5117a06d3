//! Detection of a connection's protocol from its first bytes.

/// The most bytes of a first line that are looked at: as long as the longest request head.
const MOST: usize = 60 * 1024;

/// The client's preface of HTTP/2 (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The longest method that begins a request line.
const METHOD: usize = 64;

/// The protocol that the first bytes of a client begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detected {
    /// A request line of HTTP/1.
    Http1,
    /// The preface of HTTP/2.
    Http2,
    /// Neither.
    Other,
    /// More bytes decide.
    Undecided,
}

/// Judges the bytes that have come so far. More bytes never change a decision.
pub fn detect(bytes: &[u8]) -> Detected {
    if bytes.len() >= PREFACE.len() && bytes.starts_with(PREFACE) {
        return Detected::Http2;
    }
    if PREFACE.starts_with(bytes) {
        return Detected::Undecided;
    }
    let method = bytes.iter().take_while(|byte| is_token(**byte)).count();
    match bytes.get(method) {
        None if method <= METHOD => return Detected::Undecided,
        Some(b' ') if (1..=METHOD).contains(&method) => {}
        _ => return Detected::Other,
    }
    let rest = &bytes[method + 1..];
    let end = rest.iter().take(MOST).position(|byte| *byte == b'\n');
    let line = &rest[..end.unwrap_or(rest.len())];
    // Neither targets nor versions have control characters.
    let is_text = |byte: &u8| *byte >= b' ' && *byte != 0x7f || *byte == b'\r';
    if line.len() >= MOST || !line.iter().all(is_text) {
        return Detected::Other;
    }
    if end.is_none() {
        return Detected::Undecided;
    }
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let version = line.rsplit(|byte| *byte == b' ').next();
    let has_version = version.is_some_and(|version| version.starts_with(b"HTTP/1."));
    // A target comes before the version.
    match has_version && line.len() > b"HTTP/1.1 ".len() {
        true => Detected::Http1,
        false => Detected::Other,
    }
}

/// True for the characters of a token (RFC 9110 §5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn first_bytes_tell_the_protocol() {
        let cases: [(&[u8], Detected); 14] = [
            (b"", Detected::Undecided),
            (b"GET / HTTP/1.1\r\n", Detected::Http1),
            (b"PURGE /x?y HTTP/1.0\r\nhost: a\r\n", Detected::Http1),
            (b"OPTIONS * HTTP/1.1\n", Detected::Http1),
            (PREFACE, Detected::Http2),
            (b"PRI * HT", Detected::Undecided),
            (b"PRI * HTTP/1.1\r\n", Detected::Http1),
            (b"GET /a-path-without-its-en", Detected::Undecided),
            (b"get key\r\n", Detected::Other),
            (b"PING\r\n", Detected::Other),
            (b"*1\r\n$4\r\nPING\r\n", Detected::Other),
            (b"\x16\x03\x01\x02\x00", Detected::Other),
            (b"\r\nGET / HTTP/1.1\r\n", Detected::Other),
            (b"GET HTTP/1.1\r\n", Detected::Other),
        ];
        for (bytes, expected) in cases {
            let text = String::from_utf8_lossy(bytes);
            assert_eq!(detect(bytes), expected, "{text:?}");
        }
    }

    #[test]
    fn a_line_without_end_is_decided_within_the_bound() {
        let mut line = b"GET /".to_vec();
        line.resize(MOST + 100, b'a');
        assert_eq!(detect(&line), Detected::Other);
    }

    proptest! {
        #[test]
        fn every_request_line_is_detected_however_its_bytes_come(
            method in "[A-Za-z!#$%&'*+.^_`|~-]{1,64}",
            target in "[!-~]{1,40}",
            minor in "[0-9]",
            end in prop::sample::select(vec!["\r\n", "\n"]),
            rest in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let mut bytes = format!("{method} {target} HTTP/1.{minor}{end}").into_bytes();
            let line = bytes.len();
            for cut in 0..line {
                prop_assert_eq!(detect(&bytes[..cut]), Detected::Undecided, "{}", cut);
            }
            bytes.extend(rest);
            prop_assert_eq!(detect(&bytes), Detected::Http1);
        }

        #[test]
        fn tls_and_other_binary_protocols_are_decided_by_their_first_byte(
            first in prop::sample::select(vec![0x00_u8, 0x16, 0x10, 0x80, 0xff, b'(', b'\n']),
            rest in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let bytes: Vec<u8> = [first].into_iter().chain(rest).collect();
            prop_assert_eq!(detect(&bytes), Detected::Other);
            prop_assert_eq!(detect(&bytes[..1]), Detected::Other);
        }

        #[test]
        fn more_bytes_never_change_a_decision(
            bytes in prop::collection::vec(any::<u8>(), 0..40),
            text in "(PRI|GET|A{60,70}) ?[ -~]{0,20}( HTTP/1\\.1)?\r?\n?",
            cut in 0usize..100,
        ) {
            for whole in [bytes, text.into_bytes()] {
                let part = detect(&whole[..cut.min(whole.len())]);
                if part != Detected::Undecided {
                    prop_assert_eq!(detect(&whole), part);
                }
            }
        }
    }
}
