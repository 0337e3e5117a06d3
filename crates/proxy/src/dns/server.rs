//! Server of one pod: it takes questions over UDP and TCP, within limits, and answers from the mesh or through a resolver.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{FutureExt, LocalBoxFuture, Shared};
use futures_util::stream::{FuturesUnordered, StreamExt};
use lateen_accept::Held;
use lateen_dns::{Answer, Code, Query, Transport, Unusable, View};
use lateen_netns::DnsSockets;
use lateen_telemetry::{DnsLabels, DnsMetrics, DnsShed, known};
use lateen_types::Strng;
use rand::seq::SliceRandom;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::upstream::{From, Unanswered, Upstream, framed};
use crate::current::Current;
use crate::pod::Pod;

/// Questions of one pod that may wait for a resolver.
const POD_QUESTIONS: usize = 256;
/// Questions of all pods that may wait for a resolver.
pub const ALL_QUESTIONS: usize = 4096;
/// Connections of one pod.
const POD_CONNECTIONS: usize = 64;
/// Questions of one connection that are answered at a time.
const PIPELINE: usize = 16;
/// The longest question over UDP; more is cut off, and then malformed.
const DATAGRAM: usize = 4096;
/// How long a connection may be silent (RFC 7766 §6.2.3 asks for a few seconds), and how long it may take our replies.
const SILENCE: Duration = Duration::from_secs(10);

/// What the servers of all pods share.
#[derive(Debug)]
pub struct Common {
    /// What is known of the mesh.
    pub current: Current,
    /// The resolvers.
    pub upstream: Rc<Upstream>,
    /// Counters.
    pub metrics: DnsMetrics,
    /// Questions that wait for a resolver.
    pub questions: Arc<Semaphore>,
    /// How names are understood.
    pub naming: Naming,
}

/// How names are understood.
#[derive(Clone, Debug)]
pub struct Naming {
    /// The cluster's domain.
    pub domain: Strng,
    /// The namespace whose services are preferred after the client's own.
    pub preferred: Option<Strng>,
    /// The network that this node is on.
    pub network: Strng,
    /// Whether addresses of IPv6 are handed out.
    pub ipv6: bool,
}

/// A reply that several may wait for.
type Flight = Shared<LocalBoxFuture<'static, Result<Rc<[u8]>, NoReply>>>;

/// Why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NoReply {
    /// No resolver gave one, or there is none.
    Failed,
    /// None was asked: the pod holds its share.
    Share,
}

/// A question that a resolver is being asked; its number does not matter.
struct Asked {
    question: Rc<[u8]>,
    whole: bool,
}

impl Asked {
    fn key(&self) -> (&[u8], bool) {
        const NUMBER: usize = 2;
        (&self.question[NUMBER..], self.whole)
    }
}

impl PartialEq for Asked {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Asked {}

impl Hash for Asked {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

/// One pod's server.
struct Server {
    pod: Arc<Pod>,
    from: From,
    common: Rc<Common>,
    questions: Arc<Semaphore>,
    connections: Arc<Semaphore>,
    /// What resolvers are being asked.
    flights: RefCell<HashMap<Asked, Flight>>,
}

/// What becomes of a message.
enum Step {
    /// Nothing.
    Ignore,
    /// This is the reply.
    Reply(Vec<u8>),
    /// A resolver must be asked.
    Forward(Box<Forward>),
}

struct Forward {
    query: Query,
    labels: DnsLabels,
    question: Rc<[u8]>,
    exists: bool,
    _permits: [OwnedSemaphorePermit; 2],
}

/// Its `changed` fails once a pod's loops are to read nothing more: the sender, which sends nothing, is dropped then.
pub type Stopped = watch::Receiver<()>;

/// Serves a pod until it is stopped, and then ends once all questions that were read by then are answered. A resolver bounds that: one that
/// does not answer is given up.
pub async fn serve(
    pod: Arc<Pod>,
    sockets: DnsSockets,
    common: Rc<Common>,
    stopped: Stopped,
) -> io::Result<()> {
    let server = Rc::new(Server {
        from: From::pod(&pod),
        pod,
        common,
        questions: Arc::new(Semaphore::new(POD_QUESTIONS)),
        connections: Arc::new(Semaphore::new(POD_CONNECTIONS)),
        flights: RefCell::default(),
    });
    let mut loops = JoinSet::new();
    for socket in sockets.udp {
        let socket = UdpSocket::from_std(socket.into())?;
        loops.spawn_local(datagrams(Rc::clone(&server), socket, stopped.clone()));
    }
    for socket in sockets.tcp {
        let listener = TcpListener::from_std(socket.into())?;
        loops.spawn_local(connections(Rc::clone(&server), listener, stopped.clone()));
    }
    while loops.join_next().await.is_some() {}
    Ok(())
}

async fn datagrams(server: Rc<Server>, socket: UdpSocket, mut stopped: Stopped) {
    let mut buffer = vec![0; DATAGRAM];
    let mut waiting = FuturesUnordered::new();
    let mut reads = true;
    while reads || !waiting.is_empty() {
        tokio::select! {
            // Questions that are not read by now are left to the next process, which has the same socket.
            _ = stopped.changed(), if reads => reads = false,
            received = socket.recv_from(&mut buffer), if reads => match received {
                Ok((length, client)) => match server.step(&buffer[..length], Transport::Udp) {
                    Step::Ignore => {}
                    // A client that has no room for a reply asks again.
                    Step::Reply(reply) => drop(socket.try_send_to(&reply, client)),
                    Step::Forward(forward) => {
                        let server = Rc::clone(&server);
                        waiting.push(async move { (server.forward(*forward).await, client) });
                    }
                },
                // Linux tells an unconnected socket of nothing that belongs to one client; what is left passes.
                Err(error) => {
                    tracing::debug!(pod = %server.pod.uid, %error, "receive a DNS question");
                    tokio::task::yield_now().await;
                }
            },
            Some((reply, client)) = waiting.next() => drop(socket.try_send_to(&reply, client)),
        }
    }
}

async fn connections(server: Rc<Server>, listener: TcpListener, mut stopped: Stopped) {
    let mut open = JoinSet::new();
    let mut accepts = true;
    while accepts || !open.is_empty() {
        tokio::select! {
            _ = stopped.changed(), if accepts => accepts = false,
            accepted = listener.accept(), if accepts => match accepted {
                Ok((stream, _)) => {
                    match server.admit() {
                        Ok(held) => {
                            let server = Rc::clone(&server);
                            let stopped = stopped.clone();
                            open.spawn_local(async move {
                                let _held = held;
                                // Its end, whatever the reason, is the client's business.
                                let _ = connection(server, stream, stopped).await;
                            });
                        }
                        Err(reason) => server.common.metrics.shed(reason),
                    }
                }
                Err(error) => {
                    tracing::debug!(pod = %server.pod.uid, %error, "accept a connection for DNS");
                    // Without a descriptor the next attempt would fail at once.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
            Some(_) = open.join_next() => {}
        }
    }
}

async fn connection(
    server: Rc<Server>,
    mut stream: TcpStream,
    mut stopped: Stopped,
) -> io::Result<()> {
    const LENGTH: usize = 2;
    let (mut reader, mut writer) = stream.split();
    let mut buffer: Vec<u8> = Vec::new();
    let mut waiting = FuturesUnordered::new();
    let mut ended = false;
    loop {
        while waiting.len() < PIPELINE
            && let Some((length, rest)) = buffer.split_first_chunk::<LENGTH>()
            && let Some(message) = rest.get(..usize::from(u16::from_be_bytes(*length)))
        {
            let step = server.step(message, Transport::Tcp);
            let taken = LENGTH + message.len();
            buffer.drain(..taken);
            match step {
                Step::Ignore => {}
                Step::Reply(reply) => {
                    timeout(SILENCE, writer.write_all(&framed(&reply))).await??;
                }
                Step::Forward(forward) => {
                    let server = Rc::clone(&server);
                    waiting.push(async move { server.forward(*forward).await });
                }
            }
        }
        if ended && waiting.is_empty() {
            return Ok(());
        }
        let room = waiting.len() < PIPELINE;
        tokio::select! {
            _ = stopped.changed(), if !ended => ended = true,
            read = timeout(SILENCE, reader.read_buf(&mut buffer)), if !ended && room => match read {
                Ok(Ok(0)) => ended = true,
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return Err(error),
                Err(_) if waiting.is_empty() => return Ok(()),
                Err(_) => {}
            },
            Some(reply) = waiting.next() => {
                timeout(SILENCE, writer.write_all(&framed(&reply))).await??;
            }
        }
    }
}

impl Server {
    /// What can be said at once.
    fn step(&self, message: &[u8], transport: Transport) -> Step {
        let query = match lateen_dns::read(message, transport) {
            Ok(query) => query,
            Err(Unusable::Ignored) => return Step::Ignore,
            Err(Unusable::Refused { reply, code }) => {
                tracing::debug!(target: "dns", pod = %self.pod.uid, code, "refused");
                return Step::Reply(reply);
            }
        };
        let labels = self.labels(&query);
        self.common.metrics.asked(&labels);
        let Some(snapshot) = self.common.current.get() else {
            return Step::Reply(lateen_dns::serv_fail(&query, message));
        };
        let naming = &self.common.naming;
        let view = View {
            snapshot: &snapshot,
            namespace: &self.pod.info.namespace,
            network: &naming.network,
            preferred: naming.preferred.as_deref(),
            domain: &naming.domain,
            ipv6: naming.ipv6,
        };
        let shuffle = |addresses: &mut [IpAddr]| addresses.shuffle(&mut rand::rng());
        match lateen_dns::answer(&query, &view, shuffle) {
            Answer::Reply { message, addresses } => {
                self.log(&query, "answered", addresses);
                Step::Reply(message)
            }
            Answer::Forward { exists } => match self.permits() {
                Some(permits) => Step::Forward(Box::new(Forward {
                    query,
                    labels,
                    question: message.into(),
                    exists,
                    _permits: permits,
                })),
                None => {
                    self.common.metrics.shed(DnsShed::Questions);
                    self.log(&query, "too many questions wait for a resolver", 0);
                    Step::Reply(lateen_dns::serv_fail(&query, message))
                }
            },
        }
    }

    /// Room for a connection.
    fn admit(&self) -> Result<(OwnedSemaphorePermit, Held), DnsShed> {
        let permit = Arc::clone(&self.connections)
            .try_acquire_owned()
            .map_err(|_| DnsShed::Connections)?;
        let held = self.from.share.take(1).ok_or(DnsShed::Descriptors)?;
        Ok((permit, held))
    }

    fn permits(&self) -> Option<[OwnedSemaphorePermit; 2]> {
        let own = Arc::clone(&self.questions).try_acquire_owned().ok()?;
        let all = Arc::clone(&self.common.questions)
            .try_acquire_owned()
            .ok()?;
        Some([own, all])
    }

    async fn forward(&self, forward: Forward) -> Vec<u8> {
        let Forward {
            query,
            labels,
            question,
            exists,
            _permits,
        } = forward;
        let began = Instant::now();
        let reply = self.flight(&question, query.transport()).await;
        if reply == Err(NoReply::Share) {
            self.common.metrics.shed(DnsShed::Descriptors);
            self.log(&query, "the pod holds its share of descriptors", 0);
            return lateen_dns::serv_fail(&query, &question);
        }
        let answered = reply
            .as_ref()
            .is_ok_and(|reply| !Code::of(reply).is_failure());
        self.common
            .metrics
            .forwarded(&labels, began.elapsed(), answered);
        let outcome = if answered {
            "forwarded"
        } else {
            "forwarding failed"
        };
        self.log(&query, outcome, 0);
        let Ok(reply) = reply else {
            return lateen_dns::serv_fail(&query, &question);
        };
        let mut reply = lateen_dns::fit(&query, &question, reply.to_vec());
        if exists && Code::of(&reply) == Code::NO_SUCH_NAME {
            Code::NO_ERROR.put(&mut reply);
        }
        reply
    }

    /// Joins those who wait for the reply to the same question, or asks it.
    fn flight(&self, question: &Rc<[u8]>, transport: Transport) -> Flight {
        let whole = transport == Transport::Tcp;
        let key = Asked {
            question: Rc::clone(question),
            whole,
        };
        let mut flights = self.flights.borrow_mut();
        // Those whom everybody has left, or whom all have heard.
        flights.retain(|_, flight| flight.peek().is_none() && flight.strong_count() > Some(1));
        if let Some(flight) = flights.get(&key) {
            return flight.clone();
        }
        let (upstream, from) = (Rc::clone(&self.common.upstream), self.from.clone());
        let (question, uid) = (Rc::clone(question), self.pod.uid.clone());
        let flight = async move {
            match upstream.ask(&from, &question, whole).await {
                Ok(reply) => Ok(Rc::from(reply)),
                Err(error) => {
                    tracing::debug!(target: "dns", pod = %uid, %error, "no reply");
                    Err(match error {
                        Unanswered::Share => NoReply::Share,
                        Unanswered::NoResolver | Unanswered::Failed { .. } => NoReply::Failed,
                    })
                }
            }
        }
        .boxed_local()
        .shared();
        flights.insert(key, flight.clone());
        flight
    }

    fn labels(&self, query: &Query) -> DnsLabels {
        let snapshot = self.common.current.get();
        let workload = snapshot
            .as_ref()
            .and_then(|snapshot| self.pod.workload(snapshot));
        DnsLabels {
            request_query_type: query.kind().to_ascii_lowercase(),
            request_protocol: match query.transport() {
                Transport::Udp => "udp",
                Transport::Tcp => "tcp",
            },
            source_canonical_service: known(workload.map_or("", |own| &own.canonical_name)),
            source_canonical_revision: known(workload.map_or("", |own| &own.canonical_revision)),
        }
    }

    fn log(&self, query: &Query, result: &str, endpoints: usize) {
        tracing::event!(
            target: "dns",
            tracing::Level::DEBUG,
            src.workload = %self.pod.info.name,
            src.namespace = %self.pod.info.namespace,
            query = query.kind(),
            domain = query.name(),
            result,
            endpoints,
        );
    }
}
