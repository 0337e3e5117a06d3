//! A client and a server over an in-memory connection, on one thread as in a worker.
#![allow(dead_code)]

pub mod heap;
pub mod hostile;
pub mod messages;
pub mod pooled;
pub mod wire;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use lateen_hbone::{ConnectRequest, Connection, Incoming, Settings, Stream, Tunnel, client};
use lateen_relay::{Chunk, Duplex, ReadSize};
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex,
};
use tokio::sync::mpsc;
use tokio::task::{LocalSet, spawn_local};

pub const TARGET: &str = "10.0.0.7:8080";

pub fn target() -> SocketAddr {
    TARGET.parse().unwrap()
}

pub fn request() -> ConnectRequest {
    ConnectRequest::new(target())
}

/// Runs a test where `spawn_local` works, and ends it when it hangs.
pub async fn local<T>(test: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(3600), LocalSet::new().run_until(test))
        .await
        .expect("the test hangs")
}

/// What a client uses, and what a server uses.
pub fn settings() -> (Settings, Settings) {
    (Settings::client(), Settings::server())
}

/// A tunnel and the requests that come out of its other end.
pub async fn tunnel(
    ours: Settings,
    theirs: Settings,
) -> (Tunnel, mpsc::UnboundedReceiver<Incoming>) {
    let (near, far) = duplex(256 * 1024);
    let incoming = serve(far, theirs);
    let (tunnel, driver) = client::handshake(near, ours).await.unwrap();
    spawn_local(driver);
    (tunnel, incoming)
}

/// Serves one connection; dropping the receiver shuts it down in order.
pub fn serve(io: DuplexStream, settings: Settings) -> mpsc::UnboundedReceiver<Incoming> {
    let (sender, receiver) = mpsc::unbounded_channel();
    spawn_local(async move {
        let Ok(mut connection) = Connection::accept(io, settings).await else {
            return;
        };
        loop {
            tokio::select! {
                biased;
                () = sender.closed() => break,
                next = connection.next() => match next {
                    Ok(Some(incoming)) => sender.send(incoming).expect("checked just before"),
                    Ok(None) | Err(_) => return,
                },
            }
        }
        connection.drain();
        // What was on its way when the client had not heard yet is served too.
        while let Ok(Some(incoming)) = connection.next().await {
            spawn_local(echo(incoming.accept(None).unwrap()));
        }
    });
    receiver
}

/// The two ends of a path of any bandwidth on which every byte takes so long.
pub fn path(delay: Duration) -> (DuplexStream, DuplexStream) {
    const ROOM: usize = 8 << 20;
    let ((near, left), (right, far)) = (duplex(ROOM), duplex(ROOM));
    let (from_left, to_left) = tokio::io::split(left);
    let (from_right, to_right) = tokio::io::split(right);
    spawn_local(carry(from_left, to_right, delay));
    spawn_local(carry(from_right, to_left, delay));
    (near, far)
}

async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin + 'static,
    delay: Duration,
) {
    let (sender, mut receiver) = mpsc::unbounded_channel::<(tokio::time::Instant, Vec<u8>)>();
    spawn_local(async move {
        while let Some((due, bytes)) = receiver.recv().await {
            tokio::time::sleep_until(due).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
        // Fails when the other end is closed already.
        let _ = to.shutdown().await;
    });
    let mut buffer = vec![0; 256 * 1024];
    while let Ok(n @ 1..) = from.read(&mut buffer).await {
        let due = tokio::time::Instant::now() + delay;
        if sender.send((due, buffer[..n].to_vec())).is_err() {
            return;
        }
    }
}

/// A stream's two ends.
pub async fn stream(
    tunnel: &Tunnel,
    incoming: &mut mpsc::UnboundedReceiver<Incoming>,
) -> (Stream, Stream) {
    let request = request();
    let accept = async { incoming.recv().await.unwrap().accept(None).unwrap() };
    let (near, far) = tokio::join!(tunnel.connect(&request), accept);
    (near.unwrap().0, far)
}

/// Sends back whatever comes, to its end.
pub async fn echo(mut stream: Stream) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(n) => {
                if stream.write_all(&buffer[..n]).await.is_err() {
                    return;
                }
            }
        }
    }
    let _ = stream.shutdown().await;
}

pub fn noise(length: usize, seed: u32) -> Vec<u8> {
    let byte = |i: u32| (i.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 11) as u8;
    (0..length as u32).map(byte).collect()
}

/// An application that reads nothing until it is told to.
#[derive(Clone, Default)]
pub struct Busy {
    pub reads: Rc<Cell<bool>>,
    pub got: Rc<RefCell<Vec<u8>>>,
    /// Bytes that it takes all the same.
    pub room: Rc<Cell<usize>>,
}

impl Duplex for Busy {
    const QUEUES: bool = false;
    const GRACE: Duration = Duration::from_secs(1);

    fn poll_read<T>(
        &mut self,
        _: &mut Context<'_>,
        _: &mut ReadSize,
        _: bool,
        _: impl FnOnce(&mut Context<'_>, Chunk<'_>) -> T,
    ) -> Poll<io::Result<T>> {
        Poll::Pending
    }

    fn poll_write(&mut self, _: &mut Context<'_>, bytes: &mut Bytes) -> Poll<io::Result<()>> {
        let room = match self.reads.get() {
            true => bytes.len(),
            false => self.room.get().min(bytes.len()),
        };
        self.room.set(self.room.get().saturating_sub(room));
        let taken = bytes.split_to(room);
        self.got.borrow_mut().extend_from_slice(&taken);
        match bytes.is_empty() {
            true => Poll::Ready(Ok(())),
            false => Poll::Pending,
        }
    }

    fn poll_write_borrowed(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut left = Bytes::copy_from_slice(bytes);
        let _ = self.poll_write(cx, &mut left);
        match bytes.len() - left.len() {
            0 if !bytes.is_empty() => Poll::Pending,
            taken => Poll::Ready(Ok(taken)),
        }
    }

    fn hold(&mut self, _: &mut Context<'_>) -> Poll<io::Error> {
        Poll::Pending
    }

    fn poll_gone(&mut self, _: &mut Context<'_>) -> Poll<io::Error> {
        Poll::Pending
    }

    fn poll_finish(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn abort(&mut self) {}
}

/// Counts the flushes that reach a connection.
pub struct Flushes(DuplexStream, Rc<Cell<usize>>);

impl Flushes {
    pub fn new(io: DuplexStream) -> (Self, Rc<Cell<usize>>) {
        let count = Rc::new(Cell::new(0));
        (Flushes(io, Rc::clone(&count)), count)
    }
}

impl AsyncRead for Flushes {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Flushes {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.1.set(self.1.get() + 1);
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
