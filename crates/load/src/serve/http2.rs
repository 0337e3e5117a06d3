//! HTTP/2 on one connection: the `h2` library in the service's loop, each request a future that the
//! connection polls. A request is answered as over HTTP/1.1, except that `writes` and `nodelay` say
//! nothing about a connection that many share.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io::{ErrorKind, Write};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::header::{HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode};

use super::alarms::Alarms;
use super::context::{Next, Tools, World};
use super::grpc;
use super::link::{Link, read, reserve, unless_reset};
use super::pipe::Pipe;
use super::reply::{Asked, Course, Reply};
use super::wire::Wire;
use crate::http::MAX_BODY;

/// What a client may send on one request before it is read.
const STREAM_WINDOW: u32 = 1 << 20;

/// What a client may send on all of them.
const CONNECTION_WINDOW: u32 = 4 << 20;

/// How many requests may be under way on one connection.
const MAX_STREAMS: u32 = 1000;

/// The longest head of a request, in bytes.
const MAX_HEAD: u32 = 64 * 1024;

/// The most that is handed to the library at once.
const PIECE: usize = 64 * 1024;

/// How often one connection acts before others get their turn.
const TURN: usize = 64;

/// The server's side of HTTP/2.
pub struct Http2 {
    serving: Pin<Box<dyn Future<Output = ()>>>,
    pipe: Pipe,
    link: Rc<Link>,
    woken: Arc<Woken>,
    /// Everything was said.
    done: bool,
    /// The earliest instant that the loop was asked to come back at.
    armed: Option<Instant>,
}

impl fmt::Debug for Http2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http2")
            .field("done", &self.done)
            .finish_non_exhaustive()
    }
}

/// Notes that somebody can go on.
#[derive(Debug, Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Http2 {
    /// A connection on which this has arrived, the preface first.
    pub fn new(begin: &[u8], world: &Rc<World>) -> Http2 {
        let pipe = Pipe::default();
        pipe.0.borrow_mut().inbound.extend_from_slice(begin);
        let link = Rc::new(Link::new(world));
        Http2 {
            serving: Box::pin(serve(pipe.clone(), Rc::clone(&link))),
            pipe,
            link,
            woken: Arc::new(Woken(AtomicBool::new(true))),
            done: false,
            armed: None,
        }
    }

    /// Whether an answer waits for its time.
    pub fn is_delayed(&self) -> bool {
        self.link.alarms.first().is_some()
    }

    /// Takes no further request; the connection ends with those under way.
    pub fn stop(&mut self) {
        self.link.stop();
        self.woken.0.store(true, Ordering::Relaxed);
    }

    /// Reads, answers and writes until none of it can go on.
    pub fn act(&mut self, wire: &mut Wire, tools: &mut Tools<'_>) -> Next {
        let now = Instant::now();
        if self.armed.is_some_and(|armed| armed <= now) {
            self.armed = None;
        }
        self.link.alarms.ring(now);
        self.link.bodies.ring(now);
        for _ in 0..TURN {
            let Ok(mut progress) = self.send(wire) else {
                return Next::Close;
            };
            if self.done && self.pipe.0.borrow().outbound.is_empty() {
                return match wire.flush() {
                    Ok(false) => Next::Wait,
                    _ => Next::Close,
                };
            }
            if !self.done {
                match self.receive(wire, tools.buffer) {
                    Ok(received) => progress |= received,
                    Err(_) => return Next::Close,
                }
            }
            progress |= self.woken.0.swap(false, Ordering::Relaxed);
            if !progress {
                return self.rest();
            }
            if !self.done {
                let waker = Waker::from(Arc::clone(&self.woken));
                let poll = self.serving.as_mut().poll(&mut Context::from_waker(&waker));
                self.done = poll.is_ready();
            }
        }
        Next::WakeAt(Instant::now())
    }

    /// Waits for the socket or the next delay, whichever is first.
    fn rest(&mut self) -> Next {
        let next = [self.link.alarms.first(), self.link.bodies.first()];
        match next.into_iter().flatten().min() {
            Some(due) if self.armed.is_none_or(|armed| due < armed) => {
                self.armed = Some(due);
                Next::WakeAt(due)
            }
            _ => Next::Wait,
        }
    }

    /// Writes what is to be sent. Returns whether any of it left.
    fn send(&mut self, wire: &mut Wire) -> std::io::Result<bool> {
        let outbound = &mut self.pipe.0.borrow_mut().outbound;
        let mut progress = false;
        while !outbound.is_empty() {
            match wire.write(outbound) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => outbound.advance(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            progress = true;
        }
        Ok(progress)
    }

    /// Reads once the library has taken what was read before. Returns whether there was anything.
    fn receive(&mut self, wire: &mut Wire, buffer: &mut [u8]) -> std::io::Result<bool> {
        let pipe = &mut *self.pipe.0.borrow_mut();
        if pipe.ended || !pipe.inbound.is_empty() {
            return Ok(false);
        }
        match wire.read(buffer)? {
            None => return Ok(false),
            Some(0) => pipe.ended = true,
            Some(count) => pipe.inbound.extend_from_slice(&buffer[..count]),
        }
        Ok(true)
    }
}

/// All of a connection: takes requests and polls their answers until the peer or the service ends it.
async fn serve(pipe: Pipe, link: Rc<Link>) {
    let mut builder = h2::server::Builder::new();
    builder
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEAD);
    let Ok(mut connection) = builder.handshake::<_, Bytes>(pipe).await else {
        return;
    };
    let mut answers = FuturesUnordered::new();
    let mut stopping = false;
    poll_fn(|context| {
        loop {
            if link.is_stopped() && !stopping {
                stopping = true;
                connection.graceful_shutdown();
            }
            match connection.poll_accept(context) {
                Poll::Ready(Some(Ok((request, respond)))) => {
                    answers.push(answer(request, respond, Rc::clone(&link)));
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => match pin!(answers.next()).poll(context) {
                    Poll::Ready(Some(())) => {}
                    // What the answers wrote is sent when the connection is polled again, for which
                    // the library wakes it.
                    Poll::Ready(None) | Poll::Pending => return Poll::Pending,
                },
            }
        }
    })
    .await;
}

async fn answer(request: Request<RecvStream>, mut respond: SendResponse<Bytes>, link: Rc<Link>) {
    // An error here is the peer's: the stream or the connection is gone, and nobody waits for more.
    let _ = if grpc::is_grpc(request.headers()) {
        grpc::answer(request, respond, &link).await
    } else {
        echo(request, &mut respond, &link).await
    };
}

async fn echo(
    request: Request<RecvStream>,
    respond: &mut SendResponse<Bytes>,
    link: &Link,
) -> Result<(), h2::Error> {
    let (head, mut body) = request.into_parts();
    let text = |name: HeaderName| {
        let value = head.headers.get(name)?;
        Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    if head.method == Method::CONNECT {
        return send(Reply::text(405, "no tunnels here"), respond, link).await;
    }
    let content = within(&link.bodies, link.world.request_timeout, collect(&mut body)).await;
    let content = match content.transpose()? {
        Some(Some(content)) => content,
        Some(None) => {
            let reply = Reply::text(400, "body is larger than 1 MiB");
            return send(reply, respond, link).await;
        }
        None => {
            let reply = Reply::text(408, "the body did not arrive in time");
            return send(reply, respond, link).await;
        }
    };
    let asked = Asked {
        head: head.method == Method::HEAD,
        target: head
            .uri
            .path_and_query()
            .map_or("/", |path| path.as_str())
            .to_owned(),
        content_type: text(http::header::CONTENT_TYPE),
        accepts_gzip: text(http::header::ACCEPT_ENCODING)
            .is_some_and(|encodings| encodings.contains("gzip")),
        body: content,
    };
    let (reply, params) = match link.world.course(asked) {
        Course::Answer(reply, params) => (Some(reply), params),
        Course::HangUp(params) => (None, params),
    };
    let delay = link.alarms.sleep(params.delay);
    unless_reset(|context| respond.poll_reset(context), delay).await?;
    if params.close {
        link.stop();
    }
    match reply {
        // 101 changes the protocol of a connection, and there is no such thing here.
        Some(reply) if reply.status >= 200 => send(reply, respond, link).await,
        _ => {
            respond.send_reset(Reason::INTERNAL_ERROR);
            Ok(())
        }
    }
}

/// Waits for something, but no longer than so; `None` if it takes longer. A limit of zero is none.
async fn within<T>(
    alarms: &Alarms,
    limit: Duration,
    something: impl Future<Output = T>,
) -> Option<T> {
    let mut something = pin!(something);
    if limit.is_zero() {
        return Some(something.await);
    }
    // What is there already needs no alarm.
    let first = poll_fn(|context| Poll::Ready(something.as_mut().poll(context))).await;
    if let Poll::Ready(done) = first {
        return Some(done);
    }
    let mut over = pin!(alarms.sleep(limit));
    poll_fn(|context| {
        if let Poll::Ready(done) = something.as_mut().poll(context) {
            return Poll::Ready(Some(done));
        }
        over.as_mut().poll(context).map(|()| None)
    })
    .await
}

/// Reads a body that is held to be echoed; `None` if it is too long for that. Such a one is read to its
/// end all the same: a client that is cut short loses the answer, too.
async fn collect(body: &mut RecvStream) -> Result<Option<Bytes>, h2::Error> {
    let mut content = Vec::new();
    let mut fits = true;
    while let Some(piece) = read(body).await? {
        fits &= content.len() + piece.len() <= MAX_BODY;
        if fits {
            content.extend_from_slice(&piece);
        }
    }
    Ok(fits.then(|| content.into()))
}

async fn send(
    reply: Reply,
    respond: &mut SendResponse<Bytes>,
    link: &Link,
) -> Result<(), h2::Error> {
    if let Some(interim) = reply
        .interim
        .and_then(|status| StatusCode::from_u16(status).ok())
    {
        let mut response = Response::new(());
        *response.status_mut() = interim;
        respond.send_informational(response)?;
    }
    let mut response = Response::new(());
    *response.status_mut() =
        StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let fields = response.headers_mut();
    for (name, value) in &reply.fields {
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_str(value)) {
            fields.append(name, value);
        }
    }
    if !fields.contains_key(http::header::DATE)
        && let Ok(date) = HeaderValue::from_str(link.world.date.borrow_mut().now())
    {
        fields.insert(http::header::DATE, date);
    }
    if !matches!(reply.status, 204 | 304) {
        fields.insert(http::header::CONTENT_LENGTH, reply.body.len().into());
    }
    let length = if reply.has_content {
        reply.body.len()
    } else {
        0
    };
    let mut stream = respond.send_response(response, length == 0)?;
    let mut position = 0;
    while position < length {
        let left = usize::try_from(length - position).unwrap_or(usize::MAX);
        let room = reserve(&mut stream, left.min(PIECE)).await?;
        let piece = reply.body.piece(position, room);
        position += piece.len() as u64;
        stream.send_data(piece, position == length)?;
    }
    Ok(())
}
