//! Questions to resolvers, sent from the network namespace of the one that asks: a pod's, or the proxy's own. A resolver that the
//! pod's network may not reach is not reached for the pod either.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use lateen_accept::FdQuota;
use lateen_dns::Code;
use lateen_netns::{Kind, SocketPool};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, UdpSocket};
use tokio::time::{Instant, timeout, timeout_at};

use super::resolvers::{File, Resolvers};
use crate::pod::{LastResolver, Pod};

/// What one question may take, over all resolvers and tries.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest reply that is taken over UDP. One byte more tells that there was more.
const DATAGRAM: usize = 4096;

/// The origin of sockets.
#[derive(Clone, Debug)]
pub enum Sockets {
    /// A pod's namespace.
    Pod(Arc<SocketPool>),
    /// The namespace of this process.
    Own,
}

impl Sockets {
    /// A socket for datagrams to a server, with a port of the kernel's choice.
    async fn datagram(&self, server: SocketAddr) -> io::Result<UdpSocket> {
        match self {
            Self::Pod(pool) => {
                let kind = match server {
                    SocketAddr::V4(_) => Kind::Datagram,
                    SocketAddr::V6(_) => Kind::Datagram6,
                };
                let socket: std::net::UdpSocket = pool.take(kind).await?.into();
                UdpSocket::from_std(socket)
            }
            Self::Own => {
                let any: IpAddr = match server {
                    SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                    SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
                };
                UdpSocket::bind((any, 0)).await
            }
        }
    }

    /// A socket for a connection to a server.
    async fn stream(&self, server: SocketAddr) -> io::Result<TcpSocket> {
        match (self, server) {
            (Self::Pod(pool), SocketAddr::V4(_)) => Ok(TcpSocket::from_std_stream(
                pool.take(Kind::Outbound).await?.into(),
            )),
            (Self::Pod(pool), SocketAddr::V6(_)) => Ok(TcpSocket::from_std_stream(
                pool.take(Kind::Outbound6).await?.into(),
            )),
            (Self::Own, SocketAddr::V4(_)) => TcpSocket::new_v4(),
            (Self::Own, SocketAddr::V6(_)) => TcpSocket::new_v6(),
        }
    }
}

/// The sockets of one that asks, and what they count against.
#[derive(Clone, Debug)]
pub struct From {
    /// Sockets in its namespace.
    pub sockets: Sockets,
    /// The descriptors that it may hold.
    pub share: Arc<FdQuota>,
    /// The resolver that it asks first.
    pub last_resolver: LastResolver,
}

impl From {
    /// From this pod.
    pub fn pod(pod: &Pod) -> Self {
        Self {
            sockets: Sockets::Pod(Arc::clone(&pod.sockets)),
            share: Arc::clone(&pod.share),
            last_resolver: pod.last_resolver.clone(),
        }
    }

    /// From this process, which may hold so many descriptors for it.
    pub fn own(descriptors: usize) -> Self {
        Self {
            sockets: Sockets::Own,
            share: FdQuota::new("names".to_owned(), descriptors),
            last_resolver: LastResolver::default(),
        }
    }
}

/// Why there is no reply.
#[derive(Debug, thiserror::Error)]
pub enum Unanswered {
    /// The file names none that can be asked.
    #[error("no resolver is configured; name one in the node proxy's resolv.conf")]
    NoResolver,
    /// The pod has used up its share.
    #[error("the pod holds its share of the proxy's descriptors")]
    Share,
    /// The last resolver's failure.
    #[error("resolver {server}: {source}")]
    Failed {
        /// Whom was asked last.
        server: SocketAddr,
        /// What went wrong.
        source: io::Error,
    },
}

/// The way to the resolvers.
#[derive(Debug)]
pub struct Upstream {
    file: RefCell<File>,
}

impl Upstream {
    /// Asks the resolvers that a file names.
    pub fn new(file: File) -> Self {
        Self {
            file: RefCell::new(file),
        }
    }

    /// Asks until a resolver answers. With `whole`, a reply that does not fit a datagram is asked for again over TCP. A
    /// failure that all resolvers agree on is a reply too. Its number is that of the question.
    pub async fn ask(
        &self,
        from: &From,
        question: &[u8],
        whole: bool,
    ) -> Result<Vec<u8>, Unanswered> {
        let resolvers = self.file.borrow_mut().current().clone();
        let _held = from.share.take(1).ok_or(Unanswered::Share)?;
        let deadline = Instant::now() + PATIENCE;
        let mut failure = Unanswered::NoResolver;
        let (mut refusal, mut refused) = (None, Vec::new());
        for server in order(&resolvers, from.last_resolver.get()) {
            if refused.contains(&server) {
                continue;
            }
            let until = deadline.min(Instant::now() + resolvers.timeout);
            match timeout_at(until, exchange(from, server, question, whole)).await {
                Ok(Ok(reply)) if Code::of(&reply).is_failure() => {
                    refusal = Some(reply);
                    refused.push(server);
                }
                Ok(Ok(reply)) => {
                    from.last_resolver.set(server);
                    return Ok(reply);
                }
                Ok(Err(source)) => failure = Unanswered::Failed { server, source },
                Err(_) => {
                    let source = io::Error::new(io::ErrorKind::TimedOut, "no answer in time");
                    failure = Unanswered::Failed { server, source };
                }
            }
            if Instant::now() >= deadline {
                break;
            }
        }
        refusal.ok_or(failure)
    }
}

/// All servers in turn, as often as each is to be tried; the one that answered last goes first.
fn order(resolvers: &Resolvers, answered: Option<SocketAddr>) -> Vec<SocketAddr> {
    let servers = &resolvers.servers;
    let first = servers
        .iter()
        .position(|server| Some(*server) == answered)
        .unwrap_or(0);
    let once = servers[first..].iter().chain(&servers[..first]);
    let mut order = Vec::new();
    for _ in 0..resolvers.attempts {
        order.extend(once.clone().copied());
    }
    order
}

async fn exchange(
    from: &From,
    server: SocketAddr,
    question: &[u8],
    whole: bool,
) -> io::Result<Vec<u8>> {
    let mut question = question.to_vec();
    let id = rand::random();
    lateen_dns::set_id(&mut question, id);
    let reply = datagram(from, server, &question).await?;
    if reply.len() > DATAGRAM || whole && lateen_dns::truncated(&reply) {
        return stream(from, server, &question).await;
    }
    Ok(reply)
}

/// Over UDP, from a port of the kernel's choice that nobody else uses and that hears this server alone.
async fn datagram(from: &From, server: SocketAddr, question: &[u8]) -> io::Result<Vec<u8>> {
    let socket = from.sockets.datagram(server).await?;
    socket.connect(server).await?;
    socket.send(question).await?;
    let mut buffer = vec![0; DATAGRAM + 1];
    loop {
        let length = socket.recv(&mut buffer).await?;
        // Anything else is somebody's guess, or an answer to somebody who had the port before.
        if lateen_dns::matches(question, &buffer[..length]) {
            buffer.truncate(length);
            return Ok(buffer);
        }
    }
}

/// Over TCP (RFC 1035 §4.2.2).
async fn stream(from: &From, server: SocketAddr, question: &[u8]) -> io::Result<Vec<u8>> {
    let socket = from.sockets.stream(server).await?;
    let mut stream = socket.connect(server).await?;
    stream.write_all(&framed(question)).await?;
    let length = stream.read_u16().await?;
    let mut reply = vec![0; usize::from(length)];
    stream.read_exact(&mut reply).await?;
    // It is the server that was asked, on a connection that carries one question: the reply is to it or it is none.
    if !lateen_dns::matches(question, &reply) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a reply to another question",
        ));
    }
    // An orderly end; the server may have closed it first.
    let _ = timeout(Duration::from_millis(100), stream.shutdown()).await;
    Ok(reply)
}

/// A message with its length in front.
pub fn framed(message: &[u8]) -> Vec<u8> {
    let length = u16::try_from(message.len()).unwrap_or(u16::MAX);
    let mut framed = Vec::with_capacity(message.len() + 2);
    framed.extend_from_slice(&length.to_be_bytes());
    framed.extend_from_slice(&message[..usize::from(length)]);
    framed
}
