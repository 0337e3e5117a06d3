//! Answer of the echo service before a protocol encodes it: status, fields, and a body that is either stored or generated.

use std::io::Write;
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use lateen_http::{FieldName, FieldValue, Known};

use super::params::{Limits, Params, Status};
use flate2::Compression;
use flate2::write::GzEncoder;
use rand::Rng;

/// The longest body that is compressed. All of it is compressed at once, and meanwhile nobody else is
/// served.
const MAX_GZIP: u64 = 1 << 20;

/// The length of [`PATTERN`]; a power of two, so that positions wrap cheaply.
pub const PATTERN_SIZE: usize = 64 * 1024;

/// The bytes of made-up bodies: lines of 64 that end in a line feed, so that a person can look at them.
pub static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let byte = |at: usize| {
        if at % 64 == 63 {
            b'\n'
        } else {
            b'a' + (at % 26) as u8
        }
    };
    (0..PATTERN_SIZE).map(byte).collect()
});

/// The facts of a request on which its answer depends.
#[derive(Debug, Default)]
pub struct Asked {
    /// Method GET, POST and so on matter only in so far as HEAD gets no body.
    pub head: bool,
    /// Path and query.
    pub target: String,
    /// The type of the body, to be echoed with it.
    pub content_type: Option<FieldValue>,
    /// Whether the client takes gzip.
    pub accepts_gzip: bool,
    /// The content.
    pub body: Bytes,
}

/// An answer.
#[derive(Debug)]
pub struct Reply {
    /// An answer without content that goes ahead.
    pub interim: Option<u16>,
    /// The status.
    pub status: u16,
    /// Fields, without those of framing, connection and date.
    pub fields: Vec<(FieldName, FieldValue)>,
    /// The content; none of it is sent in answer to HEAD or with a status that has none.
    pub body: Body,
    /// Whether content may be sent with it.
    pub has_content: bool,
}

/// Content.
#[derive(Debug)]
pub enum Body {
    /// These bytes.
    Held(Bytes),
    /// So many of [`PATTERN`], over and over.
    MadeUp(u64),
}

impl Body {
    /// Its length, in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Body::Held(bytes) => bytes.len() as u64,
            Body::MadeUp(length) => *length,
        }
    }

    /// The bytes from a position on, or as many of them as lie at hand: at most `most`.
    pub fn piece(&self, position: u64, most: usize) -> Bytes {
        match self {
            Body::Held(bytes) => {
                let from = usize::try_from(position).unwrap_or(usize::MAX);
                let from = from.min(bytes.len());
                bytes.slice(from..bytes.len().min(from.saturating_add(most)))
            }
            Body::MadeUp(length) => {
                let from = (position % PATTERN_SIZE as u64) as usize;
                let left = usize::try_from(length.saturating_sub(position)).unwrap_or(usize::MAX);
                Bytes::from_static(&PATTERN[from..][..left.min(most).min(PATTERN_SIZE - from)])
            }
        }
    }
}

/// Settings of the service as a whole.
#[derive(Debug, Default, clap::Args)]
pub struct Setup {
    /// The query of requests that have none, for example status=404&delay=3s
    #[arg(long, value_name = "QUERY")]
    default_params: Option<String>,
    #[command(flatten)]
    pub limits: Limits,
}

impl Setup {
    /// The answer to a request, as its parameters say; none if the connection shall end.
    pub fn answer(&self, mut asked: Asked, random: &mut impl Rng) -> (Option<Reply>, Params) {
        if asked.target.split('?').next() == Some("/health") {
            return (Some(Reply::text(200, "ok")), Params::default());
        }
        if let Some(standard) = &self.default_params
            && !asked.target.contains('?')
        {
            asked.target = format!("{}?{standard}", asked.target);
        }
        let params = Params::parse(&asked.target, &self.limits, random);
        (Reply::new(&params, asked), params)
    }
}

impl Reply {
    /// The answer to a request with these parameters, unless there shall be none.
    pub fn new(params: &Params, asked: Asked) -> Option<Reply> {
        let (interim, status) = match params.status {
            Status::Final(status) => (None, status),
            Status::Interim(status) => (Some(status), 200),
            Status::None => return None,
        };
        let mut fields = params.headers.clone();
        let body = match params.size {
            Some(size) => Body::MadeUp(size),
            None => Body::Held(asked.body),
        };
        if !fields.iter().any(is_content_type) {
            let name = FieldName::from(Known::ContentType);
            fields.extend(match (&body, asked.content_type) {
                (Body::Held(_), Some(theirs)) => Some((name, theirs)),
                (Body::Held(bytes), None) if bytes.is_empty() => None,
                (Body::Held(bytes), None) if str::from_utf8(bytes).is_ok() => Some(text_type()),
                _ => Some(field(Known::ContentType, "application/octet-stream")),
            });
        }
        let has_content = !matches!(status, 101 | 204 | 304);
        if status == 304 {
            // The client has the content; its type is known there.
            fields.retain(|field| !is_content_type(field));
        }
        let mut reply = Reply {
            interim,
            status,
            fields,
            body,
            has_content: has_content && !asked.head,
        };
        if params.gzip && asked.accepts_gzip && has_content && reply.body.len() <= MAX_GZIP {
            reply.compress();
        }
        Some(reply)
    }

    /// A plain answer with a text.
    pub fn text(status: u16, text: &str) -> Reply {
        Reply {
            interim: None,
            status,
            fields: vec![text_type()],
            body: Body::Held(format!("{text}\n").into()),
            has_content: true,
        }
    }

    fn compress(&mut self) {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        let mut position = 0;
        while position < self.body.len() {
            let piece = self.body.piece(position, usize::MAX);
            encoder.write_all(&piece).expect("memory takes every byte");
            position += piece.len() as u64;
        }
        let compressed = encoder.finish().expect("memory takes every byte");
        self.body = Body::Held(compressed.into());
        self.fields.push(field(Known::ContentEncoding, "gzip"));
    }
}

/// A field with a text of ours.
pub fn field(name: Known, value: impl Into<Bytes>) -> (FieldName, FieldValue) {
    let value = FieldValue::new(value).expect("our texts are visible");
    (name.into(), value)
}

/// The type of texts.
fn text_type() -> (FieldName, FieldValue) {
    field(Known::ContentType, "text/plain; charset=utf-8")
}

fn is_content_type((name, _): &(FieldName, FieldValue)) -> bool {
    name.known() == Some(Known::ContentType)
}

/// The time of day as HTTP writes it, formatted once a second.
#[derive(Debug, Default)]
pub struct Date {
    second: u64,
    text: Option<FieldValue>,
}

impl Date {
    /// The time now as a field value.
    pub fn now(&mut self) -> Option<FieldValue> {
        let now = SystemTime::now();
        let since = now.duration_since(UNIX_EPOCH);
        let second = since.map_or(0, |since| since.as_secs());
        if second != self.second || self.text.is_none() {
            self.second = second;
            self.text = FieldValue::new(httpdate::fmt_http_date(now));
        }
        self.text.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::time::Duration;

    fn reply(query: &str, asked: Asked) -> Reply {
        let params = Params::of(query, u64::MAX, Duration::MAX);
        Reply::new(&params, asked).unwrap()
    }

    #[test]
    fn the_type_of_the_content_is_the_clients_unless_it_is_asked_for_or_made_up() {
        let (bytes, own) = (Some("application/octet-stream"), Some("a/b"));
        let text = Some("text/plain; charset=utf-8");
        for (query, content_type, body, expected) in [
            ("", own, &b"x"[..], own),
            ("", None, b"x", text),
            ("", None, b"\xff", bytes),
            ("", None, b"", None),
            ("size=3", own, b"x", bytes),
            ("header=content-type:q/r", own, b"x", Some("q/r")),
        ] {
            let asked = Asked {
                content_type: content_type.and_then(FieldValue::new),
                body: body.to_vec().into(),
                ..Asked::default()
            };
            let reply = reply(query, asked);
            let types = reply.fields.into_iter().filter(is_content_type);
            let expected = expected.map(|value| field(Known::ContentType, value));
            assert_eq!(types.collect::<Vec<_>>(), expected.as_slice(), "{query}");
        }
    }

    #[test]
    fn gzip_is_used_when_asked_for_accepted_and_not_too_long() {
        for (gzip, accepts_gzip, size, expected) in [
            (true, true, 100_000, true),
            (false, true, 10, false),
            (true, false, 10, false),
            (true, true, MAX_GZIP, true),
            (true, true, MAX_GZIP + 1, false),
        ] {
            let asked = Asked {
                accepts_gzip,
                ..Asked::default()
            };
            let reply = reply(&format!("gzip={gzip}&size={size}"), asked);
            let gzip = field(Known::ContentEncoding, "gzip");
            assert_eq!(reply.fields.contains(&gzip), expected, "{size}");
            assert_eq!(matches!(reply.body, Body::Held(_)), expected, "{size}");
            if let Body::Held(bytes) = &reply.body {
                let mut plain = Vec::new();
                let mut decoder = flate2::read::GzDecoder::new(&bytes[..]);
                decoder.read_to_end(&mut plain).unwrap();
                assert_eq!(plain.len() as u64, size);
                let mut pairs = plain.iter().zip(PATTERN.iter().cycle());
                assert!(pairs.all(|(left, right)| left == right));
            }
        }
    }

    #[test]
    fn content_ends_where_it_shall() {
        let size = PATTERN_SIZE as u64;
        let made_up = Body::MadeUp(size + 2);
        let held = Body::Held(vec![b'x'; 4].into());
        for (body, position, most, expected) in [
            (&made_up, 0, usize::MAX, &PATTERN[..]),
            (&made_up, 0, 3, b"abc"),
            (&made_up, size, usize::MAX, b"ab"),
            (&made_up, size, 1, b"a"),
            (&made_up, size + 2, 3, b""),
            (&made_up, u64::MAX, 3, b""),
            (&held, 1, usize::MAX, b"xxx"),
            (&held, 1, 2, b"xx"),
            (&held, 4, 2, b""),
            (&held, u64::MAX, 2, b""),
        ] {
            assert_eq!(body.piece(position, most), expected, "{position} {most}");
        }
    }
}
