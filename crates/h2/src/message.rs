//! Validation of header lists as messages (RFC 9113 §8.1 to §8.5).

use crate::hpack::{FieldPlace, Fields, Known};

/// The kind of message that a list must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Request {
        /// The list may have `:protocol` (RFC 8441 §4).
        extended_connect: bool,
    },
    Response,
    Trailers,
}

/// Facts about a stream from its well-formed list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MessageSummary {
    /// The request's method is CONNECT.
    pub(crate) connect: bool,
    /// The request's method is HEAD.
    pub(crate) head: bool,
    /// The status of a response; 0 otherwise.
    pub(crate) status: u16,
    /// The announced length of the content.
    pub(crate) length: Length,
}

/// The value of `content-length`. It has no meaning for tunnels (RFC 9110 §9.3.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    /// The field is absent.
    Open,
    /// The number of bytes.
    Bytes(u64),
    /// The value is no number, or several values differ.
    Bad,
}

impl Length {
    /// Adds one more field of this name.
    fn and(self, value: &[u8]) -> Self {
        let digits = (1..=19).contains(&value.len()) && value.iter().all(u8::is_ascii_digit);
        let number = value.iter().fold(0u64, |sum, digit| {
            sum.wrapping_mul(10).wrapping_add(u64::from(digit & 0xf))
        });
        match self {
            Length::Open if digits => Length::Bytes(number),
            Length::Bytes(before) if digits && before == number => self,
            _ => Length::Bad,
        }
    }
}

/// Pseudo-header fields, one bit each.
mod pseudo {
    pub(super) const METHOD: u8 = 1;
    pub(super) const SCHEME: u8 = 2;
    pub(super) const AUTHORITY: u8 = 4;
    pub(super) const PATH: u8 = 8;
    pub(super) const STATUS: u8 = 16;
    pub(super) const PROTOCOL: u8 = 32;
    pub(super) const EXTENDED: u8 = METHOD | SCHEME | AUTHORITY | PATH | PROTOCOL;
}

/// The fault of a value that has a blank at either end.
pub(crate) const BLANK: &str = "a field's value begins or ends with a space or a tab";

/// Validates a list. The error names the fault.
pub(crate) fn validate(fields: &Fields, shape: Shape) -> Result<MessageSummary, &'static str> {
    let mut seen = 0;
    let mut regular = false;
    let mut summary = MessageSummary {
        connect: false,
        head: false,
        status: 0,
        length: Length::Open,
    };
    // One search of all names and values costs less than one of each value.
    let is_clean = !may_have_control(fields.buffer());
    let bytes = fields.buffer();
    for FieldPlace {
        known, name, value, ..
    } in fields.places()
    {
        let value = &bytes[value];
        if has_blank(value) {
            return Err(BLANK);
        }
        if !is_clean && !is_value(value) {
            return Err("a field's value has characters that http does not allow");
        }
        if known.is_some_and(|known| PLAIN[known as usize]) {
            regular = true;
            continue;
        }
        let pseudo = match known {
            Some(known) if known.is_pseudo() => Some(known),
            None if bytes[name.clone()].first() == Some(&b':') => {
                return Err("a pseudo-header field that has no place here");
            }
            Some(Known::ContentLength) => {
                summary.length = summary.length.and(value);
                None
            }
            Some(known) => {
                validate_known(known, value)?;
                None
            }
            None => {
                validate_name(&bytes[name])?;
                None
            }
        };
        let Some(known) = pseudo else {
            regular = true;
            continue;
        };
        if regular {
            return Err("a pseudo-header field behind others");
        }
        let bit = match (shape, known) {
            (Shape::Request { .. }, Known::Method) => {
                summary.connect = value == b"CONNECT";
                summary.head = value == b"HEAD";
                pseudo::METHOD
            }
            (Shape::Request { .. }, Known::Scheme) => pseudo::SCHEME,
            (Shape::Request { .. }, Known::Authority) => pseudo::AUTHORITY,
            (Shape::Request { .. }, Known::Path) => pseudo::PATH,
            (
                Shape::Request {
                    extended_connect: true,
                },
                Known::Protocol,
            ) => pseudo::PROTOCOL,
            (Shape::Response, Known::Status) => {
                summary.status = status(value).ok_or("a status that is no number")?;
                pseudo::STATUS
            }
            _ => return Err("a pseudo-header field that has no place here"),
        };
        if seen & bit != 0 || value.is_empty() {
            return Err("a pseudo-header field that is empty or comes twice");
        }
        seen |= bit;
    }
    let whole = match shape {
        Shape::Request { .. } if summary.connect && seen & pseudo::PROTOCOL == 0 => {
            seen == pseudo::METHOD | pseudo::AUTHORITY
        }
        // An extended CONNECT has all of them (RFC 8441 §4).
        Shape::Request { .. } if summary.connect => seen == pseudo::EXTENDED,
        Shape::Request { .. } => {
            let needed = pseudo::METHOD | pseudo::SCHEME | pseudo::PATH;
            seen & (needed | pseudo::PROTOCOL) == needed
        }
        // HTTP/2 switches to no other protocol (RFC 9113 §8.6).
        Shape::Response if summary.status == 101 => false,
        Shape::Response => seen == pseudo::STATUS,
        Shape::Trailers => true,
    };
    match whole {
        true => Ok(summary),
        false => Err("pseudo-header fields are missing, or too many for its method"),
    }
}

/// Judges a field whose name is well-formed (RFC 9113 §8.2.2).
#[inline]
fn validate_known(known: Known, value: &[u8]) -> Result<(), &'static str> {
    match known {
        Known::Connection
        | Known::ProxyConnection
        | Known::KeepAlive
        | Known::TransferEncoding
        | Known::Upgrade => Err("a field that speaks of the connection"),
        Known::Te if value != b"trailers" => Err("a field that speaks of the connection"),
        _ => Ok(()),
    }
}

/// Judges a name that has no number (RFC 9113 §8.2.1).
fn validate_name(name: &[u8]) -> Result<(), &'static str> {
    match !name.is_empty() && name.iter().all(|byte| NAME[usize::from(*byte)]) {
        true => Ok(()),
        false => Err("a field's name has characters that http/2 does not allow"),
    }
}

/// Numbers of regular fields whose values mean nothing here.
static PLAIN: [bool; Known::ALL.len()] = {
    let mut plain = [true; Known::ALL.len()];
    let mut n = 0;
    while n < plain.len() {
        plain[n] = !matches!(
            Known::ALL[n],
            Known::Connection
                | Known::ContentLength
                | Known::KeepAlive
                | Known::ProxyConnection
                | Known::Te
                | Known::TransferEncoding
                | Known::Upgrade
        ) && !Known::ALL[n].is_pseudo();
        n += 1;
    }
    plain
};

/// A blank at either end, which no value has (RFC 9113 §8.2.1).
#[inline]
fn has_blank(value: &[u8]) -> bool {
    matches!(value, [b' ' | b'\t', ..] | [.., b' ' | b'\t'])
}

/// No NUL, CR or LF (RFC 9113 §8.2.1).
fn is_value(value: &[u8]) -> bool {
    let fine = |bytes: &[u8]| !bytes.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n'));
    !may_have_control(value) || fine(value)
}

/// True if a byte is below 0x20, or if there are less than four bytes. The ends of the words that are looked at overlap.
#[inline]
fn may_have_control(value: &[u8]) -> bool {
    if let Some(last) = value.last_chunk::<16>() {
        // The compiler makes vector instructions of it.
        let (large, rest) = value.as_chunks::<64>();
        return large.iter().any(has_low)
            || rest.as_chunks::<16>().0.iter().any(has_low)
            || has_low(last);
    }
    if let (Some(front), Some(back)) = (value.first_chunk::<8>(), value.last_chunk::<8>()) {
        return has_control(u64::from_le_bytes(*front)) || has_control(u64::from_le_bytes(*back));
    }
    match (value.first_chunk::<4>(), value.last_chunk::<4>()) {
        (Some(front), Some(back)) => {
            let (front, back) = (u32::from_le_bytes(*front), u32::from_le_bytes(*back));
            has_control(u64::from(front) | u64::from(back) << 32)
        }
        _ => true,
    }
}

/// True if a byte is below 0x20.
#[inline(always)]
fn has_low<const N: usize>(chunk: &[u8; N]) -> bool {
    chunk.iter().fold(false, |any, byte| any | (*byte < 0x20))
}

/// True if one of eight bytes is below 0x20.
#[inline]
const fn has_control(word: u64) -> bool {
    const ONES: u64 = u64::MAX / 0xff;
    word.wrapping_sub(ONES * 0x20) & !word & (ONES * 0x80) != 0
}

fn status(value: &[u8]) -> Option<u16> {
    match value {
        [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] => Some(
            [a, b, c]
                .iter()
                .fold(0, |sum, digit| sum * 10 + u16::from(**digit - b'0')),
        ),
        _ => None,
    }
}

/// Characters of a token (RFC 9110 §5.6.2) but capital letters (RFC 9113 §8.2).
const NAME: [bool; 256] = {
    let mut table = [false; 256];
    let marks = b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz";
    let mut n = 0;
    while n < marks.len() {
        table[marks[n] as usize] = true;
        n += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hpack::Limits;

    const REQUEST: Shape = Shape::Request {
        extended_connect: false,
    };
    const EXTENDED: Shape = Shape::Request {
        extended_connect: true,
    };

    fn validated(shape: Shape, list: &[(&str, &str)]) -> Result<MessageSummary, &'static str> {
        let mut fields = Fields::new(Limits {
            size: 1 << 16,
            fields: 100,
        });
        for (name, value) in list {
            fields.push(
                Known::of(name.as_bytes()),
                name.as_bytes(),
                value.as_bytes(),
            );
        }
        validate(&fields, shape)
    }

    const CONNECT: [(&str, &str); 2] = [(":method", "CONNECT"), (":authority", "10.0.0.7:80")];
    const GET: [(&str, &str); 3] = [(":method", "GET"), (":scheme", "http"), (":path", "/")];

    #[test]
    fn well_formed_messages_are_taken() {
        assert!(validated(REQUEST, &CONNECT).expect("it is good").connect);
        assert!(!validated(REQUEST, &GET).expect("it is good").connect);
        let summary = validated(Shape::Response, &[(":status", "204"), ("te", "trailers")]);
        assert_eq!(summary.expect("it is good").status, 204);
        assert!(validated(Shape::Trailers, &[("grpc-status", "0")]).is_ok());
    }

    #[test]
    fn a_forbidden_byte_is_found_wherever_it_is() {
        for length in 1..20 {
            for at in 0..length {
                for byte in 0..=255u8 {
                    let mut value = vec![b'a'; length];
                    value[at] = byte;
                    let edge = at == 0 || at + 1 == length;
                    let bad =
                        matches!(byte, 0 | b'\r' | b'\n') || edge && matches!(byte, b' ' | b'\t');
                    assert_eq!(!has_blank(&value) && is_value(&value), !bad, "{value:?}");
                }
            }
        }
    }

    /// RFC 8441 §4.
    #[test]
    fn an_extended_connect_has_every_part_of_its_target() {
        let whole = [
            (":method", "CONNECT"),
            (":protocol", "websocket"),
            (":scheme", "https"),
            (":path", "/chat"),
            (":authority", "a"),
        ];
        assert!(validated(EXTENDED, &whole).expect("it is good").connect);
        assert!(validated(REQUEST, &whole).is_err());
        for missing in 0..whole.len() {
            let mut list = whole.to_vec();
            list.remove(missing);
            assert!(validated(EXTENDED, &list).is_err(), "{list:?}");
        }
        let mut get = whole;
        get[0].1 = "GET";
        assert!(validated(EXTENDED, &get).is_err());
        // Without a protocol it is an ordinary one.
        assert!(validated(EXTENDED, &CONNECT).expect("it is good").connect);
        assert!(validated(EXTENDED, &GET).is_ok());
        assert!(validated(Shape::Response, &[(":status", "200"), whole[1]]).is_err());
    }

    #[test]
    fn a_head_request_is_known() {
        let mut list = GET;
        list[0].1 = "HEAD";
        assert!(validated(REQUEST, &list).expect("it is good").head);
        assert!(!validated(REQUEST, &GET).expect("it is good").head);
    }

    #[test]
    fn a_length_is_one_number() {
        for (values, length) in [
            (&[][..], Length::Open),
            (&["0"], Length::Bytes(0)),
            (&["0042", "42"], Length::Bytes(42)),
            (
                &["9999999999999999999"],
                Length::Bytes(9_999_999_999_999_999_999),
            ),
            (&["99999999999999999999"], Length::Bad),
            (&["42", "43"], Length::Bad),
            (&["42", "x", "42"], Length::Bad),
            (&["+1"], Length::Bad),
            (&["1,1"], Length::Bad),
            (&[""], Length::Bad),
        ] {
            let mut list = vec![(":status", "200")];
            list.extend(values.iter().map(|value| ("content-length", *value)));
            let summary = validated(Shape::Response, &list).expect("it is well-formed");
            assert_eq!(summary.length, length, "{values:?}");
        }
    }

    #[test]
    fn others_are_not() {
        let with = |list: &[(&'static str, &'static str)], more: (&'static str, &'static str)| {
            let mut list = list.to_vec();
            list.push(more);
            list
        };
        for (shape, list) in [
            (REQUEST, with(&CONNECT, (":path", "/"))),
            (REQUEST, with(&CONNECT, (":scheme", "http"))),
            (REQUEST, with(&CONNECT, (":protocol", "websocket"))),
            (REQUEST, with(&CONNECT, (":authority", "b"))),
            (REQUEST, CONNECT[..1].to_vec()),
            (REQUEST, GET[..2].to_vec()),
            (REQUEST, with(&GET, (":status", "200"))),
            (REQUEST, with(&GET, ("connection", "close"))),
            (REQUEST, with(&GET, ("te", "gzip"))),
            (REQUEST, with(&GET, ("Host", "a"))),
            (REQUEST, with(&GET, ("", "a"))),
            (REQUEST, with(&GET, ("a b", "a"))),
            (REQUEST, with(&GET, ("a", "b\r\nc: d"))),
            (REQUEST, with(&GET, ("a", "b\0"))),
            (REQUEST, with(&GET, ("a", " b"))),
            (REQUEST, vec![("a", "b"), CONNECT[0], CONNECT[1]]),
            (Shape::Response, vec![]),
            (Shape::Response, vec![(":status", "20")]),
            (Shape::Response, vec![(":status", "2x0")]),
            (Shape::Response, vec![(":status", "099")]),
            (Shape::Response, vec![(":status", "101")]),
            (Shape::Trailers, vec![(":status", "200")]),
        ] {
            assert!(validated(shape, &list).is_err(), "{list:?}");
        }
    }
}
