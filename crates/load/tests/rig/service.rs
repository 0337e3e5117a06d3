//! The program as a service in a process of its own, and an HTTP/2 client of a few lines.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::SendRequest;
use http::{HeaderMap, Request, Response};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::program;

/// No wait of a test is longer.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// A service in a process of its own; dropping it ends the process.
pub struct Service {
    pub process: Child,
    /// Where it listens, in the order of the options' kinds: HTTP, TCP, UDP.
    pub addresses: Vec<SocketAddr>,
}

impl Service {
    pub fn start(places: usize, args: &[&str]) -> Service {
        let mut process = program()
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(args)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let addresses = lines
            .take(places)
            .map(|line| line.unwrap().rsplit(' ').next().unwrap().parse().unwrap())
            .collect();
        Service { process, addresses }
    }

    pub fn http(&self) -> SocketAddr {
        self.addresses[0]
    }

    pub fn signal(&self) {
        let pid = Pid::from_raw(i32::try_from(self.process.id()).unwrap());
        kill(pid, Signal::SIGINT).unwrap();
    }

    pub fn wait(&mut self) -> bool {
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status.success();
            }
            assert!(Instant::now() < deadline, "it does not stop");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async { tokio::time::timeout(DEADLINE, future).await.unwrap() })
}

pub async fn connect(address: SocketAddr) -> SendRequest<Bytes> {
    let socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let (requests, connection) = h2::client::handshake(socket).await.unwrap();
    tokio::spawn(connection);
    requests.ready().await.unwrap()
}

pub async fn content(
    response: Response<h2::RecvStream>,
) -> Result<(http::response::Parts, Vec<u8>, HeaderMap), h2::Error> {
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
) -> Result<(http::response::Parts, Vec<u8>, HeaderMap), h2::Error> {
    let (response, mut stream) = requests.send_request(request.body(()).unwrap(), false)?;
    stream.send_data(Bytes::copy_from_slice(body), true)?;
    content(response.await?).await
}

pub fn post(address: SocketAddr, path: &str) -> http::request::Builder {
    Request::post(format!("http://{address}{path}"))
}
