//! Requests in the form that HTTP/2 sends, and the parameters of connections that carry them.

use bytes::Bytes;
use lateen_h2::{Abuse, Allowance, Allowances, Config, Known, SharedConfig};

use crate::client::interface::{Request, USER_AGENT};
use crate::frames::frame;

/// The bytes that a server may send before it hears that they were read; all of them are dropped at once.
pub(super) const WINDOW: u32 = 1 << 30;

/// The most bytes of decoded fields of one answer, as RFC 9113 §6.5.2 counts them.
pub(super) const MAX_FIELDS: u32 = 1024 * 1024;

/// The content of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A request of HTTP.
    Http,
    /// One message of gRPC there and one back.
    Unary,
    /// Messages of gRPC, each answered by one, on streams that stay.
    Streaming,
}

/// Requests as HTTP/2 sends them.
#[derive(Debug)]
pub struct Requests {
    pub(super) form: Form,
    pub(super) config: SharedConfig,
    pub(super) messages: Vec<Message>,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) fields: Vec<(Option<Known>, String, String)>,
    pub(super) body: Bytes,
    pub(super) head: bool,
}

impl Requests {
    /// Prepares requests for `http` or `https`.
    pub fn new(requests: &[Request], scheme: &str, form: Form) -> Requests {
        let messages = requests.iter().map(|request| {
            let headers = request.headers.iter();
            let given = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.clone()));
            let (host, more): (Vec<_>, Vec<_>) = given.partition(|(name, _)| name == "host");
            let authority = host.last().map_or(&request.authority, |(_, value)| value);
            let length = request.body.len().to_string();
            let mut fields = vec![
                (":method", &*request.method),
                (":scheme", scheme),
                (":path", &request.path),
                (":authority", authority),
            ];
            if form != Form::Http {
                fields.extend([("content-type", "application/grpc"), ("te", "trailers")]);
            } else if !request.body.is_empty() {
                fields.push(("content-length", &length));
            }
            if !more.iter().any(|(name, _)| name == "user-agent") {
                fields.push(("user-agent", USER_AGENT));
            }
            let own = fields.into_iter();
            let own = own.map(|(name, value)| (name.to_owned(), value.to_owned()));
            let known = |(name, value): (String, String)| (Known::of(name.as_bytes()), name, value);
            Message {
                fields: own.chain(more).map(known).collect(),
                body: match form {
                    Form::Http => Bytes::copy_from_slice(&request.body),
                    Form::Unary | Form::Streaming => frame(&request.body, false),
                },
                head: request.method == "HEAD",
            }
        });
        Requests {
            form,
            config: config().share(),
            messages: messages.collect(),
        }
    }
}

/// The limits of a load generator, which measures servers and does not defend itself against them.
fn config() -> Config {
    let (burst, per_second) = (u32::MAX, u32::MAX);
    let all = Allowance { burst, per_second };
    let without = |allowances: Allowances, abuse| allowances.with(abuse, all);
    Config {
        max_frame: 16 * 1024,
        max_header_list: MAX_FIELDS,
        max_fields: u32::MAX,
        // Fields that are sent again and again are indices of the server's table.
        pins: u8::MAX,
        max_streams: u32::MAX,
        stream_first: WINDOW,
        stream_most: WINDOW,
        first_windows: 0,
        connection_first: WINDOW,
        connection_most: WINDOW,
        allowance: u32::MAX,
        header_pieces: u8::MAX,
        settings_entries: u16::MAX,
        unread_replies: usize::MAX,
        allowances: Abuse::ALL.into_iter().fold(Allowances::tunnel(), without),
        ..Config::requests()
    }
}
