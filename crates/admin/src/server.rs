//! A small HTTP/1 server for operators: few connections, small requests, whole answers.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

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
        self.query
            .split('&')
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .find(|(key, _)| decode(key) == name)
            .map(|(_, value)| decode(value))
    }
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

/// What a server serves.
pub trait Pages: Send + Sync + 'static {
    /// Answers one request; must not block.
    fn answer(&self, asked: &Asked) -> impl Future<Output = Answer> + Send;
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
pub async fn serve(listener: TcpListener, pages: impl Pages) {
    let pages = Arc::new(pages);
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
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

async fn converse(stream: TcpStream, pages: Arc<impl Pages>) {
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

fn respond(answer: Answer) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(answer.body)));
    *response.status_mut() =
        StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(answer.media));
    response
}
