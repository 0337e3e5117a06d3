//! gRPC over HTTP/2: Fortio's ping service, an echo of our own and the standard health service. Ping and
//! echo answer each message with one, so that they serve single calls and streams alike; on the wire
//! these do not differ.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::header::{HeaderMap, HeaderValue};
use http::{Request, Response};
use prost::Message;

use super::frames::{Broken, Frames, frame};
use super::link::{Link, read, reserve, unless_reset};

/// The name of the health of this service, beside the empty one of the server as a whole; Fortio's.
const HEALTH: &str = "ping";

/// What Ping takes and gives back (Fortio's ping.proto).
#[derive(Clone, PartialEq, Message)]
pub struct PingMessage {
    /// Counts the messages of a client.
    #[prost(int64, tag = "1")]
    pub seq: i64,
    /// When it was sent, in nanoseconds since 1970; in the answer, when it was received.
    #[prost(int64, tag = "2")]
    pub ts: i64,
    /// Comes back as it is.
    #[prost(string, tag = "3")]
    pub payload: String,
    /// How long to hold the answer back, in nanoseconds.
    #[prost(int64, tag = "4")]
    pub delay_nanos: i64,
}

/// Whose health is asked for (grpc.health.v1).
#[derive(Clone, PartialEq, Message)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

/// How it is: 1 serving, 2 not serving, 3 unknown.
#[derive(Clone, PartialEq, Message)]
struct HealthCheckResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}

/// How a call ends: gRPC's status and what there is to say of it.
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

/// Whether a request is a call.
pub fn is_grpc(headers: &HeaderMap) -> bool {
    headers
        .get(http::header::CONTENT_TYPE)
        .is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

/// What can be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    Ping,
    Echo,
    Check,
    Watch,
}

fn method(path: &str) -> Option<Method> {
    match path {
        "/fgrpc.PingServer/Ping" => Some(Method::Ping),
        "/lateen.load.v1.Echo/Unary" | "/lateen.load.v1.Echo/Stream" => Some(Method::Echo),
        "/grpc.health.v1.Health/Check" => Some(Method::Check),
        "/grpc.health.v1.Health/Watch" => Some(Method::Watch),
        _ => None,
    }
}

/// Answers a call.
pub async fn answer(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    link: &Link,
) -> Result<(), h2::Error> {
    let (head, mut body) = request.into_parts();
    let encoding = head
        .headers
        .get("grpc-encoding")
        .map(|value| value.as_bytes());
    let gzip = encoding == Some(b"gzip");
    let known = gzip || encoding.is_none_or(|encoding| encoding == b"identity");
    let method = match method(head.uri.path()) {
        Some(method) if known => method,
        Some(_) => return refuse(&mut respond, &NO_SUCH_ENCODING),
        None => return refuse(&mut respond, &UNIMPLEMENTED),
    };
    let mut response = Response::new(());
    let fields = response.headers_mut();
    fields.insert(
        http::header::CONTENT_TYPE,
        HeaderValue::from_static("application/grpc"),
    );
    fields.insert("grpc-accept-encoding", HeaderValue::from_static("gzip"));
    if gzip {
        fields.insert("grpc-encoding", HeaderValue::from_static("gzip"));
    }
    // The head waits for the first message, so that a call of one message is one write.
    let mut call = Call {
        respond,
        response: Some(response),
        stream: None,
        gzip,
    };
    let mut frames = Frames::default();
    let end = loop {
        let message = match frames.next(gzip) {
            Ok(message) => message,
            Err(broken) => break End::from(broken),
        };
        let Some(message) = message else {
            match read(&mut body).await? {
                Some(piece) => frames.push(&piece),
                None if frames.is_empty() => break OK,
                None => break MALFORMED,
            }
            continue;
        };
        if let Err(end) = call.message(method, &message, link).await? {
            break end;
        }
    };
    call.end(&end)?;
    if end != OK {
        // Whatever else the client sends is of no use.
        drop(body);
    }
    Ok(())
}

/// The answering side of a call.
struct Call {
    respond: SendResponse<Bytes>,
    response: Option<Response<()>>,
    stream: Option<SendStream<Bytes>>,
    gzip: bool,
}

impl Call {
    /// Answers one message, or says why the call ends.
    async fn message(
        &mut self,
        method: Method,
        message: &[u8],
        link: &Link,
    ) -> Result<Result<(), End>, h2::Error> {
        if method == Method::Ping {
            let Ok(mut ping) = PingMessage::decode(message) else {
                return Ok(Err(MALFORMED));
            };
            ping.ts = now();
            if let Ok(delay) = u64::try_from(ping.delay_nanos) {
                let most = link.world.echo.limits.delay;
                let delay = link.alarms.sleep(Duration::from_nanos(delay).min(most));
                self.wait(delay).await?;
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
        match (method, status) {
            (Method::Check, None) => return Ok(Err(NO_SUCH_SERVICE)),
            (_, status) => {
                let status = status.unwrap_or(3);
                let health = HealthCheckResponse { status };
                self.send(&health.encode_to_vec()).await?;
            }
        }
        if method == Method::Watch {
            // Nothing ever changes: the call lasts for as long as client and service want it to.
            self.wait(link.stopped()).await?;
            return Ok(Err(UNAVAILABLE));
        }
        Ok(Ok(()))
    }

    async fn wait(&mut self, something: impl Future<Output = ()>) -> Result<(), h2::Error> {
        match &mut self.stream {
            Some(stream) => unless_reset(|context| stream.poll_reset(context), something).await,
            None => {
                let respond = &mut self.respond;
                unless_reset(|context| respond.poll_reset(context), something).await
            }
        }
    }

    async fn send(&mut self, message: &[u8]) -> Result<(), h2::Error> {
        let mut bytes = frame(message, self.gzip);
        let stream = self.open()?;
        while !bytes.is_empty() {
            let room = reserve(stream, bytes.len()).await?;
            stream.send_data(bytes.split_to(room), false)?;
        }
        Ok(())
    }

    /// The stream to answer on; sends the head, if it has not been.
    fn open(&mut self) -> Result<&mut SendStream<Bytes>, h2::Error> {
        if let Some(response) = self.response.take() {
            self.stream = Some(self.respond.send_response(response, false)?);
        }
        // The head leaves but once, and the stream is there from then on.
        self.stream
            .as_mut()
            .ok_or_else(|| Reason::INTERNAL_ERROR.into())
    }

    fn end(mut self, end: &End) -> Result<(), h2::Error> {
        if self.stream.is_none() && *end != OK {
            return refuse(&mut self.respond, end);
        }
        self.open()?.send_trailers(trailers(end))
    }
}

/// Ends a call that was not begun: head and trailers in one.
fn refuse(respond: &mut SendResponse<Bytes>, end: &End) -> Result<(), h2::Error> {
    let mut response = Response::new(());
    *response.headers_mut() = trailers(end);
    let fields = response.headers_mut();
    fields.insert(
        http::header::CONTENT_TYPE,
        HeaderValue::from_static("application/grpc"),
    );
    fields.insert("grpc-accept-encoding", HeaderValue::from_static("gzip"));
    respond.send_response(response, true).map(drop)
}

fn trailers(End(status, message): &End) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from(u16::from(*status)));
    if !message.is_empty() {
        trailers.insert("grpc-message", HeaderValue::from_static(message));
    }
    trailers
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(since.unwrap_or_default().as_nanos()).unwrap_or(i64::MAX)
}
