//! Peers for a pool to dial.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::{echo, request, serve};
use lateen_hbone::{Pool, PoolError, PoolKey, RetryBudget, Settings, Stream, Users};
use lateen_types::{Identity, WorkloadUid};
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex,
};
use tokio::task::spawn_local;

pub fn identity(name: &str) -> Identity {
    Identity::new("cluster.local", "default", name).unwrap()
}

pub fn key() -> PoolKey {
    PoolKey {
        source: identity("client"),
        destinations: vec![identity("server")].into(),
        address: "10.0.0.7:15008".parse::<SocketAddr>().unwrap(),
        pod: WorkloadUid("client-1".into()),
        users: Users::All,
    }
}

/// A peer that answers dials, counts them, and serves echo on every stream.
#[derive(Clone)]
pub struct Peer {
    pub dials: Rc<Cell<usize>>,
    pub settings: Settings,
    pub failing: Rc<Cell<bool>>,
    pub delay: Duration,
    /// Dropping one shuts that connection down.
    pub connections: Rc<RefCell<Vec<tokio::task::AbortHandle>>>,
}

impl Peer {
    pub fn new(settings: Settings) -> Self {
        Peer {
            dials: Rc::default(),
            settings,
            failing: Rc::default(),
            delay: Duration::from_millis(5),
            connections: Rc::default(),
        }
    }

    pub async fn dial(self) -> Result<DuplexStream, String> {
        self.dials.set(self.dials.get() + 1);
        tokio::time::sleep(self.delay).await;
        if self.failing.get() {
            return Err("dial 10.0.0.7:15008: refused".to_owned());
        }
        let (near, far) = duplex(64 * 1024);
        let mut incoming = serve(far, self.settings.clone());
        let serving = spawn_local(async move {
            while let Some(incoming) = incoming.recv().await {
                spawn_local(echo(incoming.accept(None).unwrap()));
            }
        });
        self.connections.borrow_mut().push(serving.abort_handle());
        Ok(near)
    }

    pub async fn connect(
        &self,
        pool: &Pool<String>,
        key: &PoolKey,
    ) -> Result<Stream, PoolError<String>> {
        let dial = || self.clone().dial();
        let (stream, _) = pool
            .connect(key, &request(), &RetryBudget::default(), dial)
            .await?;
        Ok(stream)
    }

    /// As many streams as asked for, all asked for at once.
    pub async fn crowd(
        &self,
        pool: &Pool<String>,
        count: usize,
    ) -> Vec<Result<Stream, PoolError<String>>> {
        let asking: Vec<_> = (0..count)
            .map(|_| {
                let (peer, pool) = (self.clone(), pool.clone());
                spawn_local(async move { peer.connect(&pool, &key()).await })
            })
            .collect();
        let mut all = Vec::new();
        for asked in asking {
            all.push(asked.await.unwrap());
        }
        all
    }
}

pub fn pool() -> Pool<String> {
    Pool::new(Settings::client(), 100)
}

pub async fn says_hello(stream: &mut Stream) {
    stream.write_all(b"hello").await.unwrap();
    let mut got = [0; 5];
    stream.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"hello");
}

/// What is wrong with a connection while its flag is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It is cut without a word, as when the peer's node loses its power: nothing arrives, and what is
    /// written is lost.
    Cut,
    /// It takes nothing, and does not say when it does again.
    Stuck,
}

/// A connection with a fault that comes and goes with its flag.
pub struct Faulty(pub Fault, pub DuplexStream, pub Rc<Cell<bool>>);

impl Faulty {
    fn has(&self, fault: Fault) -> bool {
        self.2.get() && self.0 == fault
    }
}

impl AsyncRead for Faulty {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.has(Fault::Cut) {
            return Poll::Pending;
        }
        Pin::new(&mut self.1).poll_read(cx, buf)
    }
}

impl AsyncWrite for Faulty {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.has(Fault::Cut) {
            return Poll::Ready(Ok(buf.len()));
        }
        if self.has(Fault::Stuck) {
            return Poll::Pending;
        }
        Pin::new(&mut self.1).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.1).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.1).poll_shutdown(cx)
    }
}
