//! The program as a service in a process of its own, and an HTTP/2 client of a few lines.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::SendRequest;
use http::{HeaderMap, Request, Response};

use crate::rig::program;

/// No wait of a test is longer.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// A service in a process of its own; dropping it ends the process.
pub struct Service {
    pub process: Child,
    /// Where it listens, in the order of the options' kinds: HTTP, TCP, UDP.
    pub addresses: Vec<SocketAddr>,
}

impl Service {
    pub fn start(line: &str) -> Service {
        let mut process = program(format!("serve --listen 127.0.0.1:0 {line}"))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let addresses = lines
            .take(1 + line.matches("-echo=").count())
            .map(|line| line.unwrap().rsplit(' ').next().unwrap().parse().unwrap())
            .collect();
        Service { process, addresses }
    }

    pub fn http(&self) -> SocketAddr {
        self.addresses[0]
    }

    pub fn url(&self, target: &str) -> String {
        format!("http://{}{target}", self.http())
    }

    /// A connection to one of its addresses.
    pub fn connect_to(&self, index: usize) -> TcpStream {
        let stream = TcpStream::connect(self.addresses[index]).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream
    }

    /// A connection on which these bytes were sent.
    pub fn told(&self, bytes: impl AsRef<[u8]>) -> TcpStream {
        let mut stream = self.connect_to(0);
        stream.write_all(bytes.as_ref()).unwrap();
        stream
    }

    /// A connection on which a GET was sent, with more fields.
    pub fn ask(&self, target: &str, fields: &str) -> TcpStream {
        self.told(format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"))
    }

    /// Sends a GET on a connection of its own and returns all of the answer.
    pub fn get(&self, target: &str) -> String {
        rest(self.ask(target, "Connection: close\r\n"))
    }

    pub fn signal(&self) {
        crate::rig::signal(&self.process, nix::sys::signal::Signal::SIGINT);
    }

    /// Waits for its end. Whether that was in order.
    pub fn wait(&mut self) -> bool {
        wait_until("it stops", || self.process.try_wait().unwrap().is_some());
        self.process.wait().unwrap().success()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// All that arrives until the service ends the connection.
pub fn rest(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    if let Err(error) = stream.read_to_end(&mut answer) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
    String::from_utf8_lossy(&answer).into_owned()
}

pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(DEADLINE, future).await.unwrap() })
}

pub async fn connect(address: SocketAddr) -> SendRequest<Bytes> {
    let socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let (requests, connection) = h2::client::handshake(socket).await.unwrap();
    tokio::spawn(connection);
    requests.ready().await.unwrap()
}

/// A whole answer: head, body, trailers.
pub type Answer = (http::response::Parts, Vec<u8>, HeaderMap);

pub async fn content(response: Response<h2::RecvStream>) -> Result<Answer, h2::Error> {
    let (head, mut body) = response.into_parts();
    let mut content = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece?;
        body.flow_control().release_capacity(piece.len())?;
        content.extend_from_slice(&piece);
    }
    let trailers = body.trailers().await?.unwrap_or_default();
    Ok((head, content, trailers))
}

/// Sends a request with a body and returns all of the answer.
pub async fn exchange(
    requests: &mut SendRequest<Bytes>,
    request: http::request::Builder,
    body: &[u8],
) -> Result<Answer, h2::Error> {
    let (response, mut stream) = requests.send_request(request.body(()).unwrap(), false)?;
    stream.send_data(Bytes::copy_from_slice(body), true)?;
    content(response.await?).await
}

pub fn post(address: SocketAddr, path: &str) -> http::request::Builder {
    Request::post(format!("http://{address}{path}"))
}
