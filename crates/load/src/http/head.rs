//! Finds and reads the head of a message: its lines, its fields, and what they say about framing
//! (RFC 9112 §2 to §6).

use super::Malformed;
use super::body::Body;

/// The longest head that is accepted. Larger ones are refused so that a peer cannot make us buffer.
const MAX_HEAD: usize = 64 * 1024;

/// Collects bytes until the blank line that ends a head. A head that arrives in one piece, which is
/// nearly every head, is read in place and never copied.
#[derive(Debug, Default)]
pub struct HeadBuffer {
    held: Vec<u8>,
    complete: bool,
}

impl HeadBuffer {
    /// Takes a piece of input. Once the head is complete, returns it (without the blank line) and
    /// how many bytes of `input` belong to it.
    pub fn push<'a>(&'a mut self, input: &'a [u8]) -> Result<Option<(&'a [u8], usize)>, Malformed> {
        if self.complete {
            self.held.clear();
            self.complete = false;
        }
        if self.held.is_empty()
            && let Some(end) = blank_line(input, 0)?
        {
            self.complete = true;
            return Ok(Some((&input[..end - 2], end)));
        }
        let before = self.held.len();
        let room = (MAX_HEAD + 1).saturating_sub(before);
        self.held.extend_from_slice(&input[..input.len().min(room)]);
        // The blank line may straddle the two pieces by up to three bytes.
        match blank_line(&self.held, before.saturating_sub(3))? {
            Some(end) => {
                self.complete = true;
                Ok(Some((&self.held[..end - 2], end - before)))
            }
            None if self.held.len() > MAX_HEAD => Err(Malformed("head is larger than 64 KiB")),
            None => Ok(None),
        }
    }
}

/// The position just behind the first CRLFCRLF that ends after `from`. A line that ends in LF alone is
/// refused: parsers differ over whether it ends a line.
fn blank_line(bytes: &[u8], from: usize) -> Result<Option<usize>, Malformed> {
    let mut at = from;
    while let Some(offset) = bytes
        .get(at..)
        .and_then(|rest| rest.iter().position(|&byte| byte == b'\n'))
    {
        let end = at + offset + 1;
        if !bytes[..end].ends_with(b"\r\n") {
            return Err(Malformed("line ends without a carriage return"));
        }
        if bytes[..end].ends_with(b"\r\n\r\n") {
            return Ok(Some(end));
        }
        at = end;
    }
    Ok(None)
}

/// Splits a head, as [`HeadBuffer::push`] returns it, into its lines.
pub fn lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    head.split(|&byte| byte == b'\n')
        .filter_map(|line| line.strip_suffix(b"\r"))
}

/// Splits a field line into its name and its value without surrounding white space.
pub fn field(line: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let colon = line
        .iter()
        .position(|&byte| byte == b':')
        .ok_or(Malformed("field line without a colon"))?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    // A line that begins with white space is a folded one: forbidden since RFC 7230, and the oldest
    // way to smuggle a field past one of two parsers.
    if name.is_empty() || !name.iter().all(|&byte| is_token(byte)) {
        return Err(Malformed("field name is not a token"));
    }
    let value = value.trim_ascii();
    if value.iter().any(|&byte| byte == 0 || byte == b'\r') {
        return Err(Malformed("field value with a control character"));
    }
    Ok((name, value))
}

/// Whether a byte may stand in a token (RFC 9110 §5.6.2).
pub fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// What the fields of a head say about the body's framing and the connection's future.
#[derive(Debug, Default)]
pub struct Framing {
    length: Option<u64>,
    transfer_coding: Option<Coding>,
    close: bool,
    keep_alive: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coding {
    Chunked,
    Other,
}

impl Framing {
    /// Takes one field into account.
    pub fn observe(&mut self, name: &[u8], value: &[u8]) -> Result<(), Malformed> {
        if name.eq_ignore_ascii_case(b"content-length") {
            let length = decimal(value).ok_or(Malformed("content-length is not a number"))?;
            if self.length.is_some_and(|earlier| earlier != length) {
                return Err(Malformed("two content-length fields that differ"));
            }
            self.length = Some(length);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            // Only the last coding decides where the body ends (RFC 9112 §6.3).
            let last = value
                .rsplit(|&byte| byte == b',')
                .next()
                .unwrap_or(value)
                .trim_ascii();
            let chunked = last.eq_ignore_ascii_case(b"chunked");
            self.transfer_coding = Some(if chunked {
                Coding::Chunked
            } else {
                Coding::Other
            });
        } else if name.eq_ignore_ascii_case(b"connection") {
            for option in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
                self.close |= option.eq_ignore_ascii_case(b"close");
                self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            }
        }
        Ok(())
    }

    /// Whether the connection may carry another message after this one.
    pub fn persists(&self, http_1_1: bool) -> bool {
        !self.close && (http_1_1 || self.keep_alive)
    }

    /// The body of a response whose status allows one.
    pub fn response_body(&self) -> Body {
        match (self.transfer_coding, self.length) {
            (Some(Coding::Chunked), _) => Body::chunked(),
            (Some(Coding::Other), _) | (None, None) => Body::until_close(),
            (None, Some(length)) => Body::length(length),
        }
    }
}

fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |sum, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_blank_line_wherever_the_pieces_are_cut() {
        let message = b"GET / HTTP/1.1\r\nhost: a\r\n\r\nrest";
        for cut in 0..=message.len() {
            let mut buffer = HeadBuffer::default();
            let first = buffer
                .push(&message[..cut])
                .unwrap()
                .map(|(head, used)| (head.to_vec(), used));
            let (head, used) = match first {
                Some((head, used)) => (head, used),
                None => {
                    let (head, used) = buffer.push(&message[cut..]).unwrap().unwrap();
                    (head.to_vec(), cut + used)
                }
            };
            assert_eq!(
                (head.as_slice(), used),
                (&message[..25], 27),
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn a_head_without_end_is_refused() {
        let mut buffer = HeadBuffer::default();
        let refused = (0..100).find_map(|_| buffer.push(&[b'a'; 1024]).err());
        assert_eq!(refused, Some(Malformed("head is larger than 64 KiB")));
    }

    #[test]
    fn fields_are_split_and_bad_ones_refused() {
        assert_eq!(field(b"Host:  a b \t"), Ok((&b"Host"[..], &b"a b"[..])));
        assert_eq!(field(b"X:"), Ok((&b"X"[..], &b""[..])));
        for bad in [
            &b"no colon"[..],
            b": v",
            b" folded: v",
            b"a b: v",
            b"a : v",
            b"a: v\0",
        ] {
            assert!(field(bad).is_err(), "{}", String::from_utf8_lossy(bad));
        }
    }

    #[test]
    fn numbers_are_digits_only_and_may_not_overflow() {
        assert_eq!(decimal(b"18446744073709551615"), Some(u64::MAX));
        for bad in [
            &b""[..],
            b"-1",
            b"+1",
            b"1 2",
            b"0x1",
            b"18446744073709551616",
        ] {
            assert_eq!(decimal(bad), None, "{}", String::from_utf8_lossy(bad));
        }
    }
}
