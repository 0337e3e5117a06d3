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
    Detector::default().judge(bytes)
}

/// Judges the first bytes of a client of HTTP: its version. Whatever is not the preface of HTTP/2 counts as HTTP/1, whose reader
/// refuses other bytes. More bytes never change a decision.
pub fn detect_version(bytes: &[u8]) -> Detected {
    if bytes.starts_with(PREFACE) {
        return Detected::Http2;
    }
    match PREFACE.starts_with(bytes) {
        true => Detected::Undecided,
        false => Detected::Http1,
    }
}

/// Detection over a first line that comes in pieces. Each byte of its target is looked at once, however many pieces there are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Detector {
    /// The place of the target behind the method. 0: the method is not known yet.
    target: usize,
    /// Bytes from the beginning in which the line does not end.
    searched: usize,
}

impl Detector {
    /// Judges all bytes that have come so far. They begin with those of earlier calls.
    pub fn judge(&mut self, bytes: &[u8]) -> Detected {
        if self.target == 0 {
            match method(bytes) {
                Ok(length) => self.target = length + 1,
                Err(decided) => return decided,
            }
            self.searched = self.target;
        }
        let most = self.target + MOST;
        let news = &bytes[self.searched..bytes.len().min(most)];
        let Some(at) = news.iter().position(|byte| ends_text(*byte)) else {
            self.searched += news.len();
            return match self.searched < most {
                true => Detected::Undecided,
                false => Detected::Other,
            };
        };
        match news[at] {
            b'\n' => judge_line(&bytes[self.target..self.searched + at]),
            _ => Detected::Other,
        }
    }
}

/// The length of the method that a request line begins with.
///
/// # Errors
/// The decision, which more bytes may make: there is no method yet, or none.
fn method(bytes: &[u8]) -> Result<usize, Detected> {
    if bytes.starts_with(PREFACE) {
        return Err(Detected::Http2);
    }
    if PREFACE.starts_with(bytes) {
        return Err(Detected::Undecided);
    }
    let length = bytes.iter().take_while(|byte| is_token(**byte)).count();
    match bytes.get(length) {
        None if length <= METHOD => Err(Detected::Undecided),
        Some(b' ') if (1..=METHOD).contains(&length) => Ok(length),
        _ => Err(Detected::Other),
    }
}

/// True for line feeds, and for control characters, which neither targets nor versions have.
fn ends_text(byte: u8) -> bool {
    (byte < b' ' && byte != b'\r') || byte == 0x7f
}

/// Judges a whole line behind its method.
fn judge_line(line: &[u8]) -> Detected {
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

    #[test]
    fn bytes_behind_the_method_are_searched_once() {
        let mut detector = Detector::default();
        let mut bytes = b"GET /a".to_vec();
        assert_eq!(detector.judge(&bytes), Detected::Undecided);
        // A second look at these bytes would find no text.
        bytes[4..].fill(0);
        bytes.extend(b"b HTTP/1.1");
        assert_eq!(detector.judge(&bytes), Detected::Undecided);
        bytes.extend(b"\r\n");
        assert_eq!(detector.judge(&bytes), Detected::Http1);
    }

    #[test]
    fn where_http_is_known_the_preface_alone_tells_the_version() {
        for (bytes, expected) in [
            (&b""[..], Detected::Undecided),
            (b"P", Detected::Undecided),
            (&PREFACE[..PREFACE.len() - 1], Detected::Undecided),
            (PREFACE, Detected::Http2),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\n", Detected::Http1),
            (b"PO", Detected::Http1),
            (b"GET /", Detected::Http1),
            (b"\x16\x03\x01", Detected::Http1),
        ] {
            let text = String::from_utf8_lossy(bytes);
            assert_eq!(detect_version(bytes), expected, "{text:?}");
        }
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
        fn pieces_are_judged_as_all_bytes_at_once(
            bytes in prop::collection::vec(any::<u8>(), 0..40),
            text in "(PRI|GET|A{60,70}) ?[ -~]{0,20}\t?( HTTP/1\\.1)?\r?\n?[a\n\t]{0,2}",
            cuts in prop::collection::vec(0usize..100, 0..6),
        ) {
            for whole in [bytes, text.into_bytes()] {
                let mut cuts: Vec<_> = cuts.iter().map(|cut| *cut.min(&whole.len())).collect();
                cuts.sort_unstable();
                let mut detector = Detector::default();
                for cut in cuts {
                    let judged = detector.judge(&whole[..cut]);
                    prop_assert_eq!(judged, detect(&whole[..cut]));
                    if judged != Detected::Undecided {
                        break;
                    }
                }
            }
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
