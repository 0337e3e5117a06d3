//! Reads requests: method, target and body, for the echo service.

use super::Malformed;
use super::body::Body;
use super::head::{self, Framing, HeadBuffer};

/// The largest body that is kept to be echoed, in bytes.
pub const MAX_BODY: usize = 1024 * 1024;

/// A request that was read to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The method, as sent.
    pub method: String,
    /// The request target, as sent.
    pub target: String,
    /// What the content is, as sent.
    pub content_type: Option<String>,
    /// Whether the sender takes gzip for the response.
    pub accepts_gzip: bool,
    /// The content.
    pub body: Vec<u8>,
    /// Whether the sender allows another request on this connection.
    pub persists: bool,
}

/// An incremental parser of the requests on one connection, one after the other.
#[derive(Debug, Default)]
pub struct RequestParser {
    head: HeadBuffer,
    reading: Option<Reading>,
}

#[derive(Debug)]
struct Reading {
    request: Request,
    body: Body,
    expects_continue: bool,
}

impl RequestParser {
    /// Takes a piece of input. When a request is complete, returns it and how many bytes of
    /// `input` belong to it; otherwise all of `input` was taken.
    pub fn feed(&mut self, input: &[u8]) -> Result<Option<(Request, usize)>, Malformed> {
        let mut at = 0;
        let mut reading = match self.reading.take() {
            Some(reading) => reading,
            None => {
                // Empty lines before a request are to be ignored (RFC 9112 §2.2).
                if !self.head.has_begun() {
                    at = input
                        .iter()
                        .take_while(|&&byte| matches!(byte, b'\r' | b'\n'))
                        .count();
                }
                match self.head.push(&input[at..])? {
                    None => return Ok(None),
                    Some((head, used)) => {
                        at += used;
                        read_head(head)?
                    }
                }
            }
        };
        let content = &mut reading.request.body;
        let mut too_large = false;
        at += reading.body.decode(&input[at..], |bytes| {
            too_large |= content.len() + bytes.len() > MAX_BODY;
            if !too_large {
                content.extend_from_slice(bytes);
            }
        })?;
        if too_large {
            return Err(Malformed("body is larger than 1 MiB"));
        }
        if reading.body.is_complete() {
            return Ok(Some((reading.request, at)));
        }
        self.reading = Some(reading);
        Ok(None)
    }

    /// Whether the sender holds its body back until it gets an interim response; true once.
    pub fn take_expectation(&mut self) -> bool {
        self.reading
            .as_mut()
            .is_some_and(|reading| std::mem::take(&mut reading.expects_continue))
    }

    /// Whether part of a request has arrived.
    pub fn has_begun(&self) -> bool {
        self.reading.is_some() || self.head.has_begun()
    }
}

fn read_head(head: &[u8]) -> Result<Reading, Malformed> {
    let mut lines = head::lines(head);
    let (method, target, http_1_1) =
        request_line(lines.next().ok_or(Malformed("no request line"))?)?;
    let mut framing = Framing::default();
    let mut hosts = 0;
    let mut content_type = None;
    let mut accepts_gzip = false;
    for line in lines {
        let (name, value) = head::field(line)?;
        framing.observe(name, value)?;
        hosts += usize::from(name.eq_ignore_ascii_case(b"host"));
        if name.eq_ignore_ascii_case(b"content-type") && !value.iter().any(u8::is_ascii_control) {
            content_type = Some(String::from_utf8_lossy(value).into_owned());
        } else if name.eq_ignore_ascii_case(b"accept-encoding") {
            accepts_gzip |= value.windows(4).any(|part| part == b"gzip");
        }
    }
    if hosts > 1 || (http_1_1 && hosts == 0) {
        return Err(Malformed("a request needs exactly one host field"));
    }
    let request = Request {
        method,
        target,
        content_type,
        accepts_gzip,
        body: Vec::new(),
        persists: framing.persists(http_1_1),
    };
    Ok(Reading {
        request,
        body: framing.request_body()?,
        expects_continue: framing.expects_continue(),
    })
}

fn request_line(line: &[u8]) -> Result<(String, String, bool), Malformed> {
    let bad = Malformed("not an HTTP/1 request line");
    let mut words = line.split(|&byte| byte == b' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(bad);
    };
    let http_1_1 = match version {
        b"HTTP/1.1" => true,
        b"HTTP/1.0" => false,
        _ => return Err(bad),
    };
    if method.is_empty() || !method.iter().all(|&byte| head::is_token(byte)) {
        return Err(Malformed("method is not a token"));
    }
    if target.is_empty() || !target.iter().all(u8::is_ascii_graphic) {
        return Err(Malformed(
            "request target has bytes that a URL may not have",
        ));
    }
    let text = |bytes: &[u8]| bytes.iter().map(|&byte| byte as char).collect();
    Ok((text(method), text(target), http_1_1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(input: &[u8], piece: usize) -> Result<Vec<Request>, Malformed> {
        let mut parser = RequestParser::default();
        let mut requests = Vec::new();
        for mut part in input.chunks(piece.max(1)) {
            while let Some((request, used)) = parser.feed(part)? {
                requests.push(request);
                part = &part[used..];
            }
        }
        Ok(requests)
    }

    fn request(method: &str, target: &str, body: &[u8], persists: bool) -> Request {
        Request {
            method: method.into(),
            target: target.into(),
            content_type: None,
            accepts_gzip: false,
            body: body.to_vec(),
            persists,
        }
    }

    #[test]
    fn reads_every_framing() {
        let table = [
            (
                "GET /a?b=c HTTP/1.1\r\nHost: x\r\n\r\n",
                request("GET", "/a?b=c", b"", true),
            ),
            (
                "\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
                request("GET", "/", b"", true),
            ),
            (
                "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
                request("GET", "/", b"", false),
            ),
            ("GET / HTTP/1.0\r\n\r\n", request("GET", "/", b"", false)),
            (
                "GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n",
                request("GET", "/", b"", true),
            ),
            (
                "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc",
                request("POST", "/", b"abc", true),
            ),
            (
                "PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
                request("PUT", "/", b"ab", true),
            ),
        ];
        for (input, expected) in table {
            assert_eq!(
                parse(input.as_bytes(), 4096),
                Ok(vec![expected]),
                "{input:?}"
            );
        }
    }

    #[test]
    fn reads_what_an_echo_depends_on() {
        let input = "POST / HTTP/1.1\r\nHost: x\r\ncontent-type: a/b\r\nAccept-encoding: br, gzip;q=1\r\n\r\n";
        let requests = parse(input.as_bytes(), 4096).unwrap();
        assert_eq!(requests[0].content_type.as_deref(), Some("a/b"));
        assert!(requests[0].accepts_gzip);
    }

    #[test]
    fn refuses_what_could_be_read_in_two_ways() {
        let table = [
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
            "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/3\r\nHost: a\r\n\r\n",
            "G(T / HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /\u{e9} HTTP/1.1\r\nHost: a\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3, 3\r\n\r\nabc",
        ];
        for input in table {
            assert!(parse(input.as_bytes(), 4096).is_err(), "{input:?}");
        }
    }

    #[test]
    fn a_body_beyond_the_limit_is_refused_before_it_is_held() {
        let mut input = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\n".to_vec();
        input.resize(1_500_000, b'x');
        assert_eq!(
            parse(&input, 65536),
            Err(Malformed("body is larger than 1 MiB"))
        );
    }

    #[test]
    fn an_expectation_is_reported_once() {
        let mut parser = RequestParser::default();
        let head =
            b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n";
        assert_eq!(parser.feed(head), Ok(None));
        assert!(parser.take_expectation());
        assert!(!parser.take_expectation());
        assert!(parser.feed(b"x").unwrap().is_some());
    }

    proptest! {
        #[test]
        fn pieces_do_not_change_the_result(
            messages in prop::collection::vec(("[A-Z]{1,7}", "/[a-z?=&]{0,20}", prop::collection::vec(any::<u8>(), 0..100)), 1..5),
            piece in 1usize..70,
        ) {
            let mut input = Vec::new();
            for (method, target, body) in &messages {
                input.extend_from_slice(format!("{method} {target} HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", body.len()).as_bytes());
                input.extend_from_slice(body);
            }
            let expected: Vec<_> = messages.iter().map(|(method, target, body)| request(method, target, body, true)).collect();
            prop_assert_eq!(parse(&input, piece), Ok(expected));
        }

        #[test]
        fn no_bytes_make_it_panic(input in prop::collection::vec(any::<u8>(), 0..500), piece in 1usize..60) {
            let _ = parse(&input, piece);
        }

        #[test]
        fn bytes_that_resemble_http_do_not_make_it_panic(
            input in "[A-Z]{0,4} ?/?[a-z]{0,4} HTTP/1.[01]\r\n(host: a\r\n|content-length: [0-9]{0,3}\r\n|transfer-encoding: chunked\r\n|[ a-z:]{0,6}\r?\n){0,4}\r\n[0-9a-f\r\n]{0,30}",
            piece in 1usize..60,
        ) {
            let _ = parse(input.as_bytes(), piece);
        }
    }
}
