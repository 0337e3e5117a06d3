//! A small HTTP/1 server for operators: few connections, small requests, answers that are whole or go on line by line.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{Either, Full, StreamBody};
use hyper::body::Frame;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};

/// Connections at once; more wait in the listener's backlog.
const CONNECTIONS: usize = 64;
/// Bytes of request line and headers.
const HEAD: usize = 16 << 10;
/// Time for a request's head to arrive.
const PATIENCE: Duration = Duration::from_secs(10);

/// A request, as far as pages look at it.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The method.
    pub method: Method,
    /// The path, without the query.
    pub path: String,
    /// The query, without the question mark.
    pub query: String,
}

impl Asked {
    /// The first value of a query parameter; a parameter without one is empty. `%XX` and `+` are decoded.
    pub fn parameter(&self, name: &str) -> Option<String> {
        parameters(&self.query).find_map(|(key, value)| (key == name).then_some(value))
    }
}

/// The parameters of a query, in order, `%XX` and `+` decoded.
pub fn parameters(query: &str) -> impl Iterator<Item = (String, String)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(key), decode(value))
    })
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        bytes.push(match (first, tail) {
            (b'+', _) => b' ',
            (b'%', [high, low, after @ ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => {
                    rest = after;
                    high << 4 | low
                }
                _ => b'%',
            },
            (other, _) => *other,
        });
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

/// A page's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The media type.
    pub media: &'static str,
    /// The whole body.
    pub body: String,
}

impl Answer {
    /// Plain text with a status.
    pub fn text(status: u16, body: impl Into<String>) -> Self {
        Self {
            status,
            media: "text/plain; charset=utf-8",
            body: body.into(),
        }
    }

    /// No such page.
    pub fn not_found() -> Self {
        Self::text(404, "")
    }

    /// The page does not take this method.
    pub fn wrong_method() -> Self {
        Self::text(405, "")
    }
}

/// What a page gives: all at once, or as it comes.
#[derive(Debug)]
pub enum Reply {
    /// All at once.
    Whole(Answer),
    /// Lines of JSON, until the sender is dropped. Whoever sends waits for the client to read, and hears of its end by
    /// the channel's.
    Lines(mpsc::Receiver<Bytes>),
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Self {
        Self::Whole(answer)
    }
}

/// What a server serves.
pub trait Pages: Send + Sync + 'static {
    /// Answers one request; must not block.
    fn answer(&self, asked: &Asked) -> impl Future<Output = Reply> + Send;
}

impl<P: Pages> Pages for Arc<P> {
    async fn answer(&self, asked: &Asked) -> Reply {
        P::answer(self, asked).await
    }
}

/// The pages of both; where both have one, the first one's.
#[derive(Debug)]
pub struct Both<A, B>(pub A, pub B);

impl<A: Pages, B: Pages> Pages for Both<A, B> {
    async fn answer(&self, asked: &Asked) -> Reply {
        match self.0.answer(asked).await {
            Reply::Whole(Answer { status: 404, .. }) => self.1.answer(asked).await,
            reply => reply,
        }
    }
}

/// Where clients come from.
pub trait Listening: Send + Sync + 'static {
    /// What is spoken over.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The next client.
    ///
    /// # Errors
    /// Those of accept(2); the next call may succeed.
    fn accept(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Listening for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<TcpStream> {
        Ok(Self::accept(self).await?.0)
    }
}

/// Binds a listener; the error names the address.
pub async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("bind {address}: {error}; another proxy may run in this network namespace"),
        )
    })
}

/// Serves `pages` until the future is dropped.
pub async fn serve(listener: impl Listening, pages: impl Pages) {
    let pages = Arc::new(pages);
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok(stream) => {
                let pages = Arc::clone(&pages);
                tokio::spawn(async move {
                    converse(stream, pages).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "accept a connection to the admin pages");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    pages: Arc<impl Pages>,
) {
    let service = service_fn(move |request: Request<hyper::body::Incoming>| {
        let pages = Arc::clone(&pages);
        let asked = Asked {
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            query: request.uri().query().unwrap_or_default().to_owned(),
        };
        async move { Ok::<_, std::convert::Infallible>(respond(pages.answer(&asked).await)) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a client of the admin pages");
    }
}

type Line = Result<Frame<Bytes>, std::convert::Infallible>;

/// Lines as hyper takes them.
struct Lines(mpsc::Receiver<Bytes>);

impl futures_util::Stream for Lines {
    type Item = Line;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Line>> {
        self.0
            .poll_recv(context)
            .map(|line| line.map(|line| Ok(Frame::data(line))))
    }
}

fn respond(reply: Reply) -> Response<Either<Full<Bytes>, StreamBody<Lines>>> {
    let (status, media, body) = match reply {
        Reply::Whole(answer) => {
            let body = Full::new(Bytes::from(answer.body));
            (answer.status, answer.media, Either::Left(body))
        }
        Reply::Lines(lines) => {
            let body = StreamBody::new(Lines(lines));
            (200, "application/x-ndjson", Either::Right(body))
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(media));
    response
}
