//! gRPC over HTTP/2: Fortio's ping service, an echo of our own and the standard health service. Ping and
//! echo answer each message with one, so that they serve single calls and streams alike; on the wire
//! these do not differ.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use lateen_exchange::Error;
use lateen_exchange::server::Exchange;
use lateen_http::{
    FieldName, FieldValue, Known, Length, Limits, RawTrailers, RequestHead, Status, Trailers,
    Version,
};
use prost::Message;

use super::context::{Link, unless_gone};
use super::reply::field;
use crate::frames::{Broken, Frames, frame};

/// The name of the health of this service, beside the empty one of the server as a whole; Fortio's.
const HEALTH: &str = "ping";

/// The message that Ping takes and gives back (Fortio's ping.proto).
#[derive(Clone, PartialEq, Message)]
pub struct PingMessage {
    /// Counts the messages of a client.
    #[prost(int64, tag = "1")]
    pub seq: i64,
    /// The instant of sending, in nanoseconds since 1970; in the answer, that of receiving.
    #[prost(int64, tag = "2")]
    pub ts: i64,
    /// Comes back as it is.
    #[prost(string, tag = "3")]
    pub payload: String,
    /// The time to hold the answer back, in nanoseconds.
    #[prost(int64, tag = "4")]
    pub delay_nanos: i64,
}

/// The service whose health is asked for (grpc.health.v1).
#[derive(Clone, PartialEq, Message)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

/// The answer: 1 serving, 2 not serving, 3 unknown.
#[derive(Clone, PartialEq, Message)]
struct HealthCheckResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}

/// The end of a call: gRPC's status and its message.
#[derive(Debug, Clone, PartialEq, Eq)]
struct End(u8, &'static str);

const OK: End = End(0, "");
const NO_SUCH_SERVICE: End = End(5, "unknown service");
const TOO_LARGE: End = End(8, "a message is larger than 4 MiB");
const UNIMPLEMENTED: End = End(12, "unknown method");
const NO_SUCH_ENCODING: End = End(12, "only gzip and identity are understood here");
const UNAVAILABLE: End = End(14, "the service is ending");
const MALFORMED: End = End(13, "the message cannot be read");

impl From<Broken> for End {
    fn from(broken: Broken) -> End {
        match broken {
            Broken::TooLarge => TOO_LARGE,
            Broken::Malformed => MALFORMED,
        }
    }
}

/// True if a request is a call.
pub fn is_grpc(head: &RequestHead) -> bool {
    let content_type = head.fields().get(Known::ContentType);
    content_type.is_some_and(|value| value.starts_with(b"application/grpc"))
}

/// The methods of the services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    Ping,
    Echo,
    Check,
    Watch,
}

fn method(path: &[u8]) -> Option<Method> {
    match path {
        b"/fgrpc.PingServer/Ping" => Some(Method::Ping),
        b"/lateen.load.v1.Echo/Unary" | b"/lateen.load.v1.Echo/Stream" => Some(Method::Echo),
        b"/grpc.health.v1.Health/Check" => Some(Method::Check),
        b"/grpc.health.v1.Health/Watch" => Some(Method::Watch),
        _ => None,
    }
}

/// Answers a call.
///
/// # Errors
/// The exchange failed.
pub async fn answer(head: &RequestHead, exchange: &Exchange, link: &Link) -> Result<(), Error> {
    let encoding = head.fields().get(Known::GrpcEncoding);
    let gzip = encoding == Some(b"gzip");
    let known = gzip || encoding.is_none_or(|encoding| encoding == b"identity");
    let method = match method(head.path().as_bytes()) {
        Some(method) if known => method,
        Some(_) => return refuse(exchange, &NO_SUCH_ENCODING),
        None => return refuse(exchange, &UNIMPLEMENTED),
    };
    // The head waits for the first message: a call that fails before is refused with the head alone.
    let mut call = Call {
        exchange,
        link,
        gzip,
        is_open: false,
    };
    let mut frames = Frames::default();
    let end = loop {
        let message = match frames.next(gzip) {
            Ok(message) => message,
            Err(broken) => break End::from(broken),
        };
        let Some(message) = message else {
            match exchange.data().await? {
                Some(piece) => frames.push(&piece),
                None if frames.is_empty() => break OK,
                None => break MALFORMED,
            }
            continue;
        };
        if let Err(end) = call.message(method, &message).await? {
            break end;
        }
    };
    if !call.is_open && end != OK {
        return refuse(exchange, &end);
    }
    call.open()?;
    exchange.finish_with(&trailers(&end)?)
}

/// The answering side of a call.
struct Call<'a> {
    exchange: &'a Exchange,
    link: &'a Link,
    gzip: bool,
    /// The head was sent.
    is_open: bool,
}

impl Call<'_> {
    /// Answers one message, or says why the call ends.
    async fn message(&mut self, method: Method, message: &[u8]) -> Result<Result<(), End>, Error> {
        let session = &self.link.session;
        if method == Method::Ping {
            let Ok(mut ping) = PingMessage::decode(message) else {
                return Ok(Err(MALFORMED));
            };
            ping.ts = now();
            if let Ok(delay @ 1..) = u64::try_from(ping.delay_nanos) {
                let delay = Duration::from_nanos(delay).min(session.world.echo.limits.delay);
                unless_gone(self.exchange, session.delay(delay)).await?;
            }
            return self.send(&ping.encode_to_vec()).await.map(Ok);
        }
        if method == Method::Echo {
            return self.send(message).await.map(Ok);
        }
        let Ok(asked) = HealthCheckRequest::decode(message) else {
            return Ok(Err(MALFORMED));
        };
        let status = match asked.service.as_str() {
            "" | HEALTH => Some(1),
            "ping_down" => Some(2),
            _ => None,
        };
        if method == Method::Check && status.is_none() {
            return Ok(Err(NO_SUCH_SERVICE));
        }
        let status = status.unwrap_or(3);
        let health = HealthCheckResponse { status };
        self.send(&health.encode_to_vec()).await?;
        if method == Method::Watch {
            // Nothing ever changes: the call lasts for as long as client and service want it to.
            unless_gone(self.exchange, self.link.stop.cancelled()).await?;
            return Ok(Err(UNAVAILABLE));
        }
        Ok(Ok(()))
    }

    async fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        self.open()?;
        self.exchange.send(frame(message, self.gzip)).await
    }

    /// Sends the head, if it has not been.
    fn open(&mut self) -> Result<(), Error> {
        if std::mem::replace(&mut self.is_open, true) {
            return Ok(());
        }
        let gzip = field(Known::GrpcEncoding, "gzip");
        let [kind, accepts] = head_fields();
        let fields = [kind, accepts, gzip];
        let count = if self.gzip { 3 } else { 2 };
        let fields = &fields[..count];
        self.exchange.reply(Status::OK, fields, Length::Delimited)
    }
}

/// Ends a call that was not begun: head and trailers in one.
fn refuse(exchange: &Exchange, End(status, message): &End) -> Result<(), Error> {
    let [kind, accepts] = head_fields();
    let status = field(Known::GrpcStatus, status.to_string());
    let fields = [kind, accepts, status, field(Known::GrpcMessage, *message)];
    exchange.reply(Status::OK, &fields, Length::None)
}

/// The fields of every head.
fn head_fields() -> [(FieldName, FieldValue); 2] {
    [
        field(Known::ContentType, "application/grpc"),
        field(Known::GrpcAcceptEncoding, "gzip"),
    ]
}

fn trailers(End(status, message): &End) -> Result<Trailers, Error> {
    const STATUS: &str = "grpc-status";
    const MESSAGE: &str = "grpc-message";
    let status = status.to_string();
    let bytes: Bytes = [STATUS, &status, MESSAGE, message].concat().into();
    let mut raw = RawTrailers::new(bytes, Version::Http2, Limits::default())?;
    let name = STATUS.len() + status.len();
    raw.field(0..STATUS.len(), STATUS.len()..name)?;
    if !message.is_empty() {
        let value = name + MESSAGE.len();
        raw.field(name..value, value..value + message.len())?;
    }
    Ok(raw.canonical())
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(since.unwrap_or_default().as_nanos()).unwrap_or(i64::MAX)
}
