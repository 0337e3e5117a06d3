//! Reads responses: status, whether the connection may be used again, and where the body ends.

use super::Malformed;
use super::body::Body;
use super::head::{self, Framing, HeadBuffer};

/// A response that was read to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Response {
    /// The status code, 200 to 599 (interim responses are skipped).
    pub status: u16,
    /// Bytes of content, without framing.
    pub content: u64,
    /// Whether the connection may carry another request.
    pub reusable: bool,
}

/// An incremental parser of the responses on one connection, one after the other.
#[derive(Debug, Default)]
pub struct ResponseParser {
    head: HeadBuffer,
    bodiless: bool,
    reading: Option<Reading>,
}

#[derive(Debug)]
struct Reading {
    response: Response,
    body: Body,
}

impl ResponseParser {
    /// Says whether the next responses are to HEAD: they have no body whatever their fields say
    /// (RFC 9112 §6.3).
    pub fn expect_bodiless(&mut self, bodiless: bool) {
        self.bodiless = bodiless;
    }

    /// Takes a piece of input. When a response is complete, returns it and how many bytes of
    /// `input` belong to it; otherwise all of `input` was taken.
    pub fn feed(&mut self, input: &[u8]) -> Result<Option<(Response, usize)>, Malformed> {
        let mut at = 0;
        loop {
            if let Some(reading) = &mut self.reading {
                let content = &mut reading.response.content;
                at += reading
                    .body
                    .decode(&input[at..], |bytes| *content += bytes.len() as u64)?;
                if !reading.body.is_complete() {
                    return Ok(None);
                }
                let response = reading.response;
                self.reading = None;
                return Ok(Some((response, at)));
            }
            let Some((head, used)) = self.head.push(&input[at..])? else {
                return Ok(None);
            };
            at += used;
            self.reading = read_head(head, self.bodiless)?;
        }
    }

    /// Tells the parser that the connection ended. That completes a response without a length;
    /// anything else that has begun is cut short, and the result is `None`.
    pub fn finish(&mut self) -> Option<Response> {
        let reading = self.reading.take()?;
        reading
            .body
            .ends_with_connection()
            .then_some(reading.response)
    }
}

/// Reads a head; an interim response (1xx) gives `None`.
fn read_head(head: &[u8], bodiless: bool) -> Result<Option<Reading>, Malformed> {
    let mut lines = head::lines(head);
    let (http_1_1, status) = status_line(lines.next().ok_or(Malformed("no status line"))?)?;
    let mut framing = Framing::default();
    for line in lines {
        let (name, value) = head::field(line)?;
        framing.observe(name, value)?;
    }
    if status == 101 {
        return Err(Malformed(
            "the server switched protocols without being asked to",
        ));
    }
    if status < 200 {
        return Ok(None);
    }
    let body = if bodiless || matches!(status, 204 | 304) {
        Body::length(0)
    } else {
        framing.response_body()
    };
    let reusable = framing.persists(http_1_1) && !body.ends_with_connection();
    Ok(Some(Reading {
        response: Response {
            status,
            content: 0,
            reusable,
        },
        body,
    }))
}

/// `HTTP/1.x SP 3DIGIT SP [reason]`; the second space is missing from some servers.
fn status_line(line: &[u8]) -> Result<(bool, u16), Malformed> {
    let bad = Malformed("not an HTTP/1 status line");
    let rest = line.strip_prefix(b"HTTP/1.").ok_or(bad)?;
    let (&[minor, b' ', a, b, c], reason) = rest.split_first_chunk::<5>().ok_or(bad)? else {
        return Err(bad);
    };
    if !matches!(minor, b'0' | b'1') || reason.first().is_some_and(|&byte| byte != b' ') {
        return Err(bad);
    }
    let mut status = 0;
    for digit in [a, b, c] {
        status = status * 10 + u16::from(digit.is_ascii_digit().then(|| digit - b'0').ok_or(bad)?);
    }
    if !(100..600).contains(&status) {
        return Err(Malformed("status is not between 100 and 599"));
    }
    Ok((minor == b'1', status))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Feeds `input` in pieces and collects the complete responses.
    fn parse(input: &[u8], piece: usize) -> Result<Vec<Response>, Malformed> {
        let mut parser = ResponseParser::default();
        let mut responses = Vec::new();
        for mut part in input.chunks(piece.max(1)) {
            while let Some((response, used)) = parser.feed(part)? {
                responses.push(response);
                part = &part[used..];
                if part.is_empty() {
                    break;
                }
            }
        }
        responses.extend(parser.finish());
        Ok(responses)
    }

    fn one(input: &str) -> Response {
        let responses = parse(input.as_bytes(), 4096).unwrap();
        assert_eq!(responses.len(), 1, "{input:?}");
        responses[0]
    }

    #[test]
    fn reads_every_framing() {
        let table = [
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
                200,
                5,
                true,
            ),
            ("HTTP/1.1 200 \r\ncontent-length: 0\r\n\r\n", 200, 0, true),
            ("HTTP/1.1 200\r\ncontent-length: 0\r\n\r\n", 200, 0, true),
            ("HTTP/1.1 204 No Content\r\n\r\n", 204, 0, true),
            (
                "HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n",
                304,
                0,
                true,
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
                200,
                3,
                true,
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\nContent-Length: 9\r\n\r\n0\r\n\r\n",
                200,
                0,
                true,
            ),
            (
                "HTTP/1.1 503 Busy\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno",
                503,
                2,
                false,
            ),
            ("HTTP/1.1 200 OK\r\n\r\nuntil the end", 200, 13, false),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nuntil the end",
                200,
                13,
                false,
            ),
            (
                "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx",
                200,
                1,
                false,
            ),
            (
                "HTTP/1.0 200 OK\r\nContent-Length: 1\r\nConnection: Keep-Alive\r\n\r\nx",
                200,
                1,
                true,
            ),
            (
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
                200,
                1,
                true,
            ),
        ];
        for (input, status, content, reusable) in table {
            assert_eq!(
                one(input),
                Response {
                    status,
                    content,
                    reusable
                },
                "{input:?}"
            );
        }
    }

    #[test]
    fn refuses_what_is_not_http() {
        let table = [
            "SSH-2.0-OpenSSH\r\n\r\n",
            "HTTP/2.0 200 OK\r\n\r\n",
            "HTTP/1.1 2000 OK\r\n\r\n",
            "HTTP/1.1 099 OK\r\n\r\n",
            "HTTP/1.1 600 OK\r\n\r\n",
            "HTTP/1.1 20x OK\r\n\r\n",
            "HTTP/1.1 101 Switching Protocols\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\n folded: 1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            "\r\n\r\n",
        ];
        for input in table {
            assert!(parse(input.as_bytes(), 4096).is_err(), "{input:?}");
        }
    }

    #[test]
    fn a_response_cut_short_is_not_a_response() {
        for input in [
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
            "HTTP/1.1 200 OK\r\nContent-Le",
            "",
        ] {
            let mut parser = ResponseParser::default();
            assert_eq!(parser.feed(input.as_bytes()), Ok(None));
            assert_eq!(parser.finish(), None, "{input:?}");
        }
    }

    #[test]
    fn a_response_to_head_has_no_body() {
        let mut parser = ResponseParser::default();
        parser.expect_bodiless(true);
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        let (response, used) = parser.feed(head).unwrap().unwrap();
        assert_eq!((response.content, used), (0, head.len()));
        assert!(response.reusable);
    }

    proptest! {
        #[test]
        fn pieces_do_not_change_the_result(
            messages in prop::collection::vec((200u16..600, prop::collection::vec(any::<u8>(), 0..200), any::<bool>()), 1..6),
            piece in 1usize..80,
        ) {
            let mut input = Vec::new();
            let mut expected = Vec::new();
            for (status, content, chunked) in &messages {
                let empty = matches!(status, 204 | 304);
                let content: &[u8] = if empty { &[] } else { content };
                input.extend_from_slice(format!("HTTP/1.1 {status} reason\r\nserver: test\r\n").as_bytes());
                if *chunked && !empty {
                    input.extend_from_slice(b"transfer-encoding: chunked\r\n\r\n");
                    for chunk in content.chunks(7) {
                        input.extend_from_slice(format!("{:X}\r\n", chunk.len()).as_bytes());
                        input.extend_from_slice(chunk);
                        input.extend_from_slice(b"\r\n");
                    }
                    input.extend_from_slice(b"0\r\n\r\n");
                } else {
                    input.extend_from_slice(format!("content-length: {}\r\n\r\n", content.len()).as_bytes());
                    input.extend_from_slice(content);
                }
                expected.push(Response { status: *status, content: content.len() as u64, reusable: true });
            }
            prop_assert_eq!(parse(&input, piece), Ok(expected));
        }

        #[test]
        fn no_bytes_make_it_panic(input in prop::collection::vec(any::<u8>(), 0..500), piece in 1usize..60) {
            let _ = parse(&input, piece);
        }

        #[test]
        fn bytes_that_resemble_http_do_not_make_it_panic(
            input in "HTTP/1.[01] [0-9]{2,4} ?[a-z]{0,3}\r\n(content-length: [0-9]{0,20}\r\n|transfer-encoding: (chunked|gzip)\r\n|connection: (close|keep-alive)\r\n| ?[a-z:]{0,5}\r?\n){0,4}\r\n([0-9a-f]{0,2}\r\n[a-z]{0,9}){0,5}",
            piece in 1usize..60,
        ) {
            let _ = parse(input.as_bytes(), piece);
        }
    }
}
