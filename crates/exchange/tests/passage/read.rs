//! Requests as parsers of others read them: httparse for heads, with its own reading of chunks; hyper's server; kawa, which shares no
//! code with the two.

use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use http_body_util::{BodyExt as _, Empty};
use hyper::rt::ReadBufCursor;
use hyper::service::service_fn;
use kawa::h1::NoCallbacks;
use kawa::{Block, Buffer, Kawa, Kind, SliceBuffer, StatusLine, Store};

use super::message::Message;
use super::rest;

/// The most fields of a head that a reader has room for.
const FIELDS: usize = 256;

/// The messages that a reader has read.
#[derive(Debug)]
pub struct Reading {
    /// The requests. The last one may be incomplete.
    pub messages: Vec<Message>,
    /// Something behind them is no request, or the beginning of one.
    pub has_rest: bool,
    /// The reader has refused what follows.
    is_refused: bool,
    reader: Reader,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reader {
    Httparse,
    Hyper,
    Kawa,
}

impl Reading {
    fn new(reader: Reader) -> Self {
        Reading {
            messages: Vec::new(),
            has_rest: false,
            is_refused: false,
            reader,
        }
    }

    /// True if the reader has refused a request for a reason that is known.
    pub fn may_refuse(&self, message: &Message) -> bool {
        self.is_refused
            && match self.reader {
                Reader::Httparse => false,
                // It takes fewer characters for those of a URI than RFC 3986 and browsers use.
                Reader::Hyper => hyper::Uri::try_from(&message.target[..]).is_err(),
                // It is made for ASCII, and for cookies without tabs.
                Reader::Kawa => {
                    let mut fields = message.fields.iter();
                    let has_tab = |(name, value): &(Vec<u8>, Vec<u8>)| {
                        name == b"cookie" && value.contains(&b'\t')
                    };
                    !message.texts().all(<[u8]>::is_ascii) || fields.any(has_tab)
                }
            }
    }

    /// The parts of a message that the reader tells.
    pub fn scope(&self, message: &Message) -> Message {
        let mut message = message.clone();
        if self.reader == Reader::Kawa {
            // It takes cookies apart.
            message.fields.retain(|(name, _)| name != b"cookie");
            message.trailers.retain(|(name, _)| name != b"cookie");
        }
        message
    }
}

/// Judges the lines of a head or of trailers, with the empty one at the end.
fn check_lines(section: &[u8], begins_with_request: bool) {
    let lines = section
        .strip_suffix(b"\r\n")
        .expect("the section has an end");
    let (mut lengths, mut hosts) = (0, 0);
    let mut rest = lines;
    let mut number = 0;
    while !rest.is_empty() {
        let end = rest.windows(2).position(|pair| pair == b"\r\n");
        let line = &rest[..end.expect("each line has an end")];
        rest = &rest[line.len() + 2..];
        let text = line.escape_ascii();
        let is_text = |byte: &u8| *byte == b'\t' || !byte.is_ascii_control();
        assert!(line.iter().all(is_text), "a control character: {text}");
        if begins_with_request && number == 0 {
            assert_eq!(
                line.iter().filter(|byte| **byte == b' ').count(),
                2,
                "{text}"
            );
        } else {
            let colon = line.iter().position(|&byte| byte == b':');
            let name = line[..colon.expect("each line has a colon")].to_ascii_lowercase();
            let is_token =
                |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
            assert!(
                !name.is_empty() && name.iter().all(is_token),
                "no name: {text}"
            );
            let is_length = matches!(&name[..], b"content-length" | b"transfer-encoding");
            lengths += usize::from(is_length);
            hosts += usize::from(name == b"host");
        }
        number += 1;
    }
    match begins_with_request {
        true => assert!(hosts == 1 && lengths < 2, "{}", section.escape_ascii()),
        false => assert!(hosts + lengths == 0, "{}", section.escape_ascii()),
    }
}

/// The value of a field of a head.
fn value<'a>(fields: &[httparse::Header<'a>], name: &str) -> Option<&'a [u8]> {
    let mut fields = fields.iter();
    let found = fields.find(|field| field.name.eq_ignore_ascii_case(name));
    found.map(|field| field.value)
}

/// Reads heads and trailers by httparse, and judges their bytes.
pub fn by_httparse(bytes: &[u8]) -> Reading {
    let mut reading = Reading::new(Reader::Httparse);
    let mut rest = bytes;
    while !rest.is_empty() {
        let mut lines = [httparse::EMPTY_HEADER; FIELDS];
        let mut head = httparse::Request::new(&mut lines);
        let length = match head.parse(rest) {
            Ok(httparse::Status::Complete(length)) => length,
            parsed => {
                reading.is_refused = parsed.is_err();
                reading.has_rest = true;
                return reading;
            }
        };
        check_lines(&rest[..length], true);
        let mut message = Message {
            method: head.method.unwrap_or_default().into(),
            target: head.path.unwrap_or_default().into(),
            ..Message::default()
        };
        for field in head.headers.iter() {
            message.add(field.name.as_bytes(), field.value);
        }
        assert_eq!(head.version, Some(1));
        let fields = &*head.headers;
        rest = &rest[length..];
        let after = match value(fields, "transfer-encoding") {
            Some(coding) => {
                assert_eq!(coding, b"chunked");
                chunks(rest, &mut message)
            }
            None => {
                let length = value(fields, "content-length").unwrap_or(b"0");
                let length: u64 = std::str::from_utf8(length)
                    .ok()
                    .and_then(|digits| digits.parse().ok())
                    .expect("the length is a number");
                let most = usize::try_from(length)
                    .unwrap_or(usize::MAX)
                    .min(rest.len());
                message.content = rest[..most].to_vec();
                message.is_complete = most as u64 == length;
                Some(&rest[most..])
            }
        };
        reading.messages.push(message);
        match after {
            Some(after) => rest = after,
            None => return reading,
        }
    }
    reading
}

/// Reads chunked content with its trailers (RFC 9112 §7.1). None if it is incomplete.
fn chunks<'a>(mut rest: &'a [u8], message: &mut Message) -> Option<&'a [u8]> {
    loop {
        let size = httparse::parse_chunk_size(rest).expect("the size is hexadecimal");
        let httparse::Status::Complete((line, size)) = size else {
            return None;
        };
        rest = &rest[line..];
        if size == 0 {
            break;
        }
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let Some((chunk, behind)) = rest.split_at_checked(size) else {
            message.content.extend_from_slice(rest);
            return None;
        };
        message.content.extend_from_slice(chunk);
        rest = match behind {
            [b'\r', b'\n', behind @ ..] => behind,
            [] | [b'\r'] => return None,
            other => panic!("a chunk has no end: {}", other.escape_ascii()),
        };
    }
    let mut lines = [httparse::EMPTY_HEADER; FIELDS];
    let trailers = httparse::parse_headers(rest, &mut lines).expect("trailers are fields");
    let httparse::Status::Complete((length, trailers)) = trailers else {
        return None;
    };
    check_lines(&rest[..length], false);
    for field in trailers {
        message.add_trailer(field.name.as_bytes(), field.value);
    }
    message.is_complete = true;
    Some(&rest[length..])
}

/// Bytes that are at hand, and a place for those that are written.
struct Wire<'a> {
    input: &'a [u8],
}

impl hyper::rt::Read for Wire<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let length = self.input.len().min(buffer.remaining());
        let (front, rest) = self.input.split_at(length);
        buffer.put_slice(front);
        self.input = rest;
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Write for Wire<'_> {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Reads requests as hyper's server does.
pub fn by_hyper(bytes: &[u8]) -> Reading {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&seen);
    let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let seen = Arc::clone(&heard);
        async move {
            let message = understood(request).await;
            seen.lock().expect("nobody panics").push(message);
            let mut answer = hyper::Response::new(Empty::<&[u8]>::new());
            // Success would open a tunnel behind CONNECT.
            *answer.status_mut() = hyper::StatusCode::FORBIDDEN;
            Ok::<_, Infallible>(answer)
        }
    });
    let mut serving = pin!(
        hyper::server::conn::http1::Builder::new()
            .half_close(true)
            .max_headers(FIELDS)
            .serve_connection(Wire { input: bytes }, service)
    );
    let served = rest::run(|cx| serving.as_mut().poll(cx));
    let messages = std::mem::take(&mut *seen.lock().expect("nobody panics"));
    let is_refused = served.as_ref().is_err_and(hyper::Error::is_parse);
    Reading {
        messages,
        has_rest: served.is_err(),
        is_refused,
        reader: Reader::Hyper,
    }
}

async fn understood(request: hyper::Request<hyper::body::Incoming>) -> Message {
    let (head, mut body) = request.into_parts();
    let target = match head.uri.path_and_query() {
        Some(target) => target.to_string(),
        None => head.uri.to_string(),
    };
    let mut message = Message {
        method: head.method.as_str().into(),
        target: target.into(),
        ..Message::default()
    };
    for (name, value) in &head.headers {
        message.add(name.as_str().as_bytes(), value.as_bytes());
    }
    loop {
        match body.frame().await {
            None => {
                message.is_complete = true;
                return message;
            }
            Some(Err(_)) => return message,
            Some(Ok(frame)) => match frame.into_data() {
                Ok(bytes) => message.content.extend_from_slice(&bytes),
                Err(frame) => {
                    for (name, value) in frame.trailers_ref().into_iter().flatten() {
                        message.add_trailer(name.as_str().as_bytes(), value.as_bytes());
                    }
                }
            },
        }
    }
}

/// Reads requests by kawa.
pub fn by_kawa(bytes: &[u8]) -> Reading {
    let mut reading = Reading::new(Reader::Kawa);
    let mut at = 0;
    while at < bytes.len() {
        let mut room = bytes[at..].to_vec();
        let length = room.len();
        let mut storage = Buffer::new(SliceBuffer(&mut room));
        storage.fill(length);
        let mut kawa = Kawa::new(Kind::Request, storage);
        kawa::h1::parse(&mut kawa, &mut NoCallbacks);
        if kawa.is_error() || !kawa.is_main_phase() {
            reading.is_refused = kawa.is_error();
            reading.has_rest = true;
            return reading;
        }
        reading.messages.push(told(&kawa));
        if !kawa.is_terminated() {
            return reading;
        }
        at += kawa.storage.head;
    }
    reading
}

fn told(kawa: &Kawa<SliceBuffer<'_>>) -> Message {
    let buffer = kawa.storage.buffer();
    let data = |store: &Store| store.data_opt(buffer).unwrap_or_default().to_vec();
    let mut message = Message {
        is_complete: kawa.is_terminated(),
        ..Message::default()
    };
    if let StatusLine::Request {
        method,
        uri,
        authority,
        ..
    } = &kawa.detached.status_line
    {
        (message.method, message.target) = (data(method), data(uri));
        message.host = data(authority);
    }
    let mut is_behind = false;
    for block in &kawa.blocks {
        match block {
            Block::Header(pair) if pair.is_elided() => {}
            Block::Header(pair) if is_behind => {
                message.add_trailer(&data(&pair.key), &data(&pair.val));
            }
            Block::Header(pair) => message.add(&data(&pair.key), &data(&pair.val)),
            Block::Chunk(chunk) => message.content.extend(data(&chunk.data)),
            Block::Flags(flags) => is_behind |= flags.end_body,
            _ => {}
        }
    }
    message
}
