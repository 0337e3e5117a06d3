//! Which header lists are well-formed messages (RFC 9113 §8.1 to §8.5).

use crate::fields::Fields;

/// Which list it is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Request,
    Response,
    Trailers,
}

/// What a well-formed list says of its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Said {
    /// The request's method is CONNECT.
    pub(crate) connect: bool,
    /// Of a response, else 0.
    pub(crate) status: u16,
    /// How long the content is to be.
    pub(crate) length: Length,
}

/// What `content-length` says. Of tunnels it says nothing (RFC 9110 §9.3.6), whatever it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    /// It is not there.
    Open,
    /// So many bytes.
    Bytes(u64),
    /// No number, or different ones.
    Bad,
}

impl Length {
    /// With one more field of this name.
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
}

/// Judges a list; the error says what is wrong with it.
pub(crate) fn judge(fields: &Fields, shape: Shape) -> Result<Said, &'static str> {
    let mut seen = 0;
    let mut regular = false;
    let mut said = Said {
        connect: false,
        status: 0,
        length: Length::Open,
    };
    for (name, value) in fields.iter() {
        if !is_value(value) {
            return Err("a field's value has characters that http does not allow");
        }
        if name.first() != Some(&b':') {
            regular = true;
            judge_field(name, value)?;
            if name == b"content-length" {
                said.length = said.length.and(value);
            }
            continue;
        }
        if regular {
            return Err("a pseudo-header field behind others");
        }
        let bit = match (shape, name) {
            (Shape::Request, b":method") => {
                said.connect = value == b"CONNECT";
                pseudo::METHOD
            }
            (Shape::Request, b":scheme") => pseudo::SCHEME,
            (Shape::Request, b":authority") => pseudo::AUTHORITY,
            (Shape::Request, b":path") => pseudo::PATH,
            (Shape::Response, b":status") => {
                said.status = status(value).ok_or("a status that is no number")?;
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
        Shape::Request if said.connect => seen == pseudo::METHOD | pseudo::AUTHORITY,
        Shape::Request => {
            let needed = pseudo::METHOD | pseudo::SCHEME | pseudo::PATH;
            seen & needed == needed
        }
        // HTTP/2 switches to no other protocol (RFC 9113 §8.6).
        Shape::Response if said.status == 101 => false,
        Shape::Response => seen == pseudo::STATUS,
        Shape::Trailers => true,
    };
    match whole {
        true => Ok(said),
        false => Err("pseudo-header fields are missing, or too many for its method"),
    }
}

fn judge_field(name: &[u8], value: &[u8]) -> Result<(), &'static str> {
    if name.is_empty() || !name.iter().all(|byte| NAME[usize::from(*byte)]) {
        return Err("a field's name has characters that http/2 does not allow");
    }
    match name {
        b"connection" | b"proxy-connection" | b"keep-alive" | b"transfer-encoding" | b"upgrade" => {
            Err("a field that speaks of the connection")
        }
        b"te" if value != b"trailers" => Err("a field that speaks of the connection"),
        _ => Ok(()),
    }
}

/// No NUL, CR or LF, and no blank at either end (RFC 9113 §8.2.1).
fn is_value(value: &[u8]) -> bool {
    let blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    !value.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n'))
        && !blank(value.first())
        && !blank(value.last())
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

    fn judged(shape: Shape, list: &[(&str, &str)]) -> Result<Said, &'static str> {
        let mut fields = Fields::new(1 << 16);
        for (name, value) in list {
            fields.push(name.as_bytes(), value.as_bytes());
        }
        judge(&fields, shape)
    }

    const CONNECT: [(&str, &str); 2] = [(":method", "CONNECT"), (":authority", "10.0.0.7:80")];
    const GET: [(&str, &str); 3] = [(":method", "GET"), (":scheme", "http"), (":path", "/")];

    #[test]
    fn well_formed_messages_are_taken() {
        assert!(
            judged(Shape::Request, &CONNECT)
                .expect("it is good")
                .connect
        );
        assert!(!judged(Shape::Request, &GET).expect("it is good").connect);
        let said = judged(Shape::Response, &[(":status", "204"), ("te", "trailers")]);
        assert_eq!(said.expect("it is good").status, 204);
        assert!(judged(Shape::Trailers, &[("grpc-status", "0")]).is_ok());
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
            let said = judged(Shape::Response, &list).expect("it is well-formed");
            assert_eq!(said.length, length, "{values:?}");
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
            (Shape::Request, with(&CONNECT, (":path", "/"))),
            (Shape::Request, with(&CONNECT, (":scheme", "http"))),
            (Shape::Request, with(&CONNECT, (":protocol", "websocket"))),
            (Shape::Request, with(&CONNECT, (":authority", "b"))),
            (Shape::Request, CONNECT[..1].to_vec()),
            (Shape::Request, GET[..2].to_vec()),
            (Shape::Request, with(&GET, (":status", "200"))),
            (Shape::Request, with(&GET, ("connection", "close"))),
            (Shape::Request, with(&GET, ("te", "gzip"))),
            (Shape::Request, with(&GET, ("Host", "a"))),
            (Shape::Request, with(&GET, ("", "a"))),
            (Shape::Request, with(&GET, ("a b", "a"))),
            (Shape::Request, with(&GET, ("a", "b\r\nc: d"))),
            (Shape::Request, with(&GET, ("a", "b\0"))),
            (Shape::Request, with(&GET, ("a", " b"))),
            (Shape::Request, vec![("a", "b"), CONNECT[0], CONNECT[1]]),
            (Shape::Response, vec![]),
            (Shape::Response, vec![(":status", "20")]),
            (Shape::Response, vec![(":status", "2x0")]),
            (Shape::Response, vec![(":status", "099")]),
            (Shape::Response, vec![(":status", "101")]),
            (Shape::Trailers, vec![(":status", "200")]),
        ] {
            assert!(judged(shape, &list).is_err(), "{list:?}");
        }
    }
}
