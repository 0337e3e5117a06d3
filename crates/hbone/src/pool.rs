//! A worker's tunnels, shared by the connections that may share them.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use lateen_types::{Identity, WorkloadUid};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;

use crate::budget::Budget;
use crate::client::{self, ConnectRequest, Driver, ResponseInfo, Token, Tunnel};
use crate::driver::Below;
use crate::error::{CloseReason, ConnectError, TunnelError};
use crate::retry_budget::RetryBudget;
use crate::settings::Settings;
use crate::stream::Stream;

/// How often a request is sent when peers send it away.
const ATTEMPTS: usize = 3;

/// Tunnels that one key may have at all. A peer that allows few streams on each would have us hold one for each connection.
const TUNNELS: usize = 256;

/// Tunnels that one key may have because others are congested. More come only when those are full.
const SPARES: usize = 4;

/// What connections must have in common to share a tunnel.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PoolKey {
    /// Who we are: the tunnel was set up with this identity's certificate.
    pub source: Identity,
    /// Who the peer may be: it was verified against this list.
    pub destinations: Arc<[Identity]>,
    /// The peer's tunnel port.
    pub address: SocketAddr,
    /// The pod on whose behalf we connect: the tunnel is dialled in its network, and it alone pays for what the tunnel
    /// holds. Identity and address do not name it: replicas have one identity, and every pod has the loopback addresses.
    pub pod: WorkloadUid,
}

/// A connection and what its window is lent from, where the handshake showed whose it is.
#[derive(Debug)]
pub struct Lent<IO> {
    /// The connection's bytes.
    pub io: IO,
    /// See [`Budget::between`].
    pub budget: Budget,
    /// See [`Driver::ask`].
    pub below: Below<IO>,
}

/// What is known of a connection besides its bytes.
pub type Known<IO> = Option<(Budget, Below<IO>)>;

/// What a dial comes back with: a connection's bytes, whose window is then lent from [`Settings::budget`], or [`Lent`].
pub trait Dialled: 'static {
    /// The connection's bytes.
    type Io: AsyncRead + AsyncWrite + Unpin + 'static;

    /// The bytes, and what else is known.
    fn parts(self) -> (Self::Io, Known<Self::Io>);
}

impl<IO: AsyncRead + AsyncWrite + Unpin + 'static> Dialled for IO {
    type Io = IO;

    fn parts(self) -> (IO, Known<IO>) {
        (self, None)
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin + 'static> Dialled for Lent<IO> {
    type Io = IO;

    fn parts(self) -> (IO, Known<IO>) {
        (self.io, Some((self.budget, self.below)))
    }
}

/// Why there is no stream. `E` is what the caller's dial function fails with.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PoolError<E: fmt::Display> {
    /// No connection to the peer, or no TLS on it.
    #[error("{0}")]
    Dial(E),
    /// No HTTP/2 on the connection.
    #[error("{0}")]
    Handshake(Rc<TunnelError>),
    /// The peer allows too few streams on each tunnel.
    #[error(
        "all {TUNNELS} tunnels that may lead to the peer are full; it should allow more streams on each"
    )]
    Full,
    /// The request failed on a tunnel.
    #[error("{0}")]
    Connect(Rc<ConnectError>),
}

/// Tunnels by key. Clones share it; it belongs to one worker.
///
/// One dial at a time and key is under way, and all who wait share its result. Dials and tunnels are driven
/// by tasks of their own (`spawn_local`), so none depends on the connection that happened to need it first.
#[derive(Debug)]
pub struct Pool<E>(Rc<Inner<E>>);

impl<E> Clone for Pool<E> {
    fn clone(&self) -> Self {
        Pool(Rc::clone(&self.0))
    }
}

#[derive(Debug)]
struct Inner<E> {
    settings: Settings,
    max_streams: usize,
    entries: RefCell<HashMap<PoolKey, Entry<E>>>,
    /// Every tunnel that has not ended, also those that take no more requests.
    driven: RefCell<Vec<(PoolKey, Token)>>,
    closed: Observer,
    numbers: Numbers,
}

type OnClose = Rc<dyn Fn(&PoolKey, CloseReason)>;

/// Who is told of tunnels that ended.
struct Observer(RefCell<OnClose>);

impl Observer {
    fn tell(&self, key: &PoolKey, reason: CloseReason) {
        // It may use the pool.
        let observer = Rc::clone(&*self.0.borrow());
        observer(key, reason);
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

/// Where tunnels get their numbers from.
struct Numbers(RefCell<Box<dyn Fn() -> u64>>);

impl fmt::Debug for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Numbers")
    }
}

#[derive(Debug)]
struct Entry<E> {
    tunnels: Vec<Tunnel>,
    dial: Option<Rc<Dial<E>>>,
}

impl<E> Default for Entry<E> {
    fn default() -> Self {
        Entry {
            tunnels: Vec::new(),
            dial: None,
        }
    }
}

/// A dial under way.
#[derive(Debug)]
struct Dial<E> {
    tunnel: RefCell<Option<Tunnel>>,
    failure: RefCell<Option<Failure<E>>>,
    done: Notify,
    /// What comes of it is for nobody, see [`Pool::retire`]: those who wait look again.
    retired: Cell<bool>,
}

#[derive(Debug, Clone)]
enum Failure<E> {
    Dial(E),
    Handshake(Rc<TunnelError>),
}

impl<E: Clone + fmt::Display + 'static> Pool<E> {
    /// An empty pool whose tunnels carry at most `max_streams` streams each (and fewer if the peer says so).
    pub fn new(settings: Settings, max_streams: usize) -> Self {
        Pool(Rc::new(Inner {
            settings,
            max_streams: max_streams.max(1),
            entries: RefCell::new(HashMap::new()),
            driven: RefCell::default(),
            closed: Observer(RefCell::new(Rc::new(|_, _| {}))),
            numbers: Numbers(RefCell::new(Box::new(|| 0))),
        }))
    }

    /// Has `observer` told of every tunnel that ends, and how; also of those that came to nothing once the dial was done.
    /// It replaces the one before.
    pub fn on_close(&self, observer: impl Fn(&PoolKey, CloseReason) + 'static) {
        self.0.closed.0.replace(Rc::new(observer));
    }

    /// Has tunnels that are opened from now on numbered by `next`, so that [`Stream::tunnel`] tells which one carries a
    /// stream.
    pub fn number_with(&self, next: impl Fn() -> u64 + 'static) {
        *self.0.numbers.0.borrow_mut() = Box::new(next);
    }

    /// A stream on a tunnel for `key`; `dial` makes the connection (TCP and TLS, with its own
    /// timeouts) when no tunnel has room, see [`Dialled`]. `retry_budget` is the connection's, for all endpoints that are
    /// asked for it.
    ///
    /// # Errors
    /// See [`PoolError`]. A request that the peer did not process was repeated already. One that was lost with a tunnel
    /// which had served others before was repeated on the next tunnel, if `retry_budget` allowed it: a tunnel that stood
    /// idle may have died long ago. One that was lost with a new tunnel was not: the peer is there, and may have died of
    /// it.
    pub async fn connect<D, F, T>(
        &self,
        key: &PoolKey,
        request: &ConnectRequest,
        retry_budget: &RetryBudget,
        dial: D,
    ) -> Result<(Stream, ResponseInfo), PoolError<E>>
    where
        D: Fn() -> F,
        F: Future<Output = Result<T, E>> + 'static,
        T: Dialled,
    {
        let mut attempt = 1;
        loop {
            let tunnel = self.tunnel(key, &dial).await?;
            let known = tunnel.answered();
            let error = match tunnel.connect(request).await {
                Ok(stream) => return Ok(stream),
                Err(error) => error,
            };
            retry_budget.note(&error);
            let again = match &error {
                ConnectError::Lost(_) => known && retry_budget.may_repeat(),
                error => error.unprocessed(),
            };
            if again && attempt < ATTEMPTS {
                tracing::debug!(peer = %key.address, %error, "repeating a request on another tunnel");
                attempt += 1;
                continue;
            }
            return Err(if error.unprocessed() && tunnel.known_limit() == Some(0) {
                PoolError::Handshake(Rc::new(TunnelError::NoStreams))
            } else {
                PoolError::Connect(Rc::new(error))
            });
        }
    }

    /// Takes the tunnels that `which` names out of use: no new stream goes to them or to a dial for them that is under
    /// way, existing streams finish, then they close. New connections get new tunnels, with the certificates of that
    /// time. For a certificate that is replaced, and for a pod that is let go. Returns how many tunnels there were.
    pub fn retire(&self, which: impl Fn(&PoolKey) -> bool) -> usize {
        let mut retired = 0;
        self.0.entries.borrow_mut().retain(|key, entry| {
            if which(key) {
                retired += entry.tunnels.len();
                entry.tunnels.drain(..).for_each(|tunnel| tunnel.close());
                if let Some(dial) = entry.dial.take() {
                    dial.retired.set(true);
                    dial.done.notify_waiters();
                }
            }
            !entry.is_empty()
        });
        retired
    }

    /// Has the tunnels that `which` names, those in use and those that were retired, ask again and again whether their peer
    /// is there, so that what is open on them ends within about [`Settings::probe_timeout`] once it is not. For a peer
    /// that is said to be gone: its last word may not have reached us. Returns how many tunnels there were.
    pub fn doubt(&self, which: impl Fn(&PoolKey) -> bool) -> usize {
        let driven = self.0.driven.borrow();
        let doubted = driven.iter().filter(|(key, _)| which(key));
        doubted.map(|(_, tunnel)| tunnel.doubt()).count()
    }

    /// Open tunnels.
    pub fn tunnels(&self) -> usize {
        let entries = self.0.entries.borrow();
        entries.values().map(|entry| entry.tunnels.len()).sum()
    }

    /// Streams open or asked for on all tunnels.
    pub fn streams(&self) -> usize {
        let entries = self.0.entries.borrow();
        let tunnels = entries.values().flat_map(|entry| &entry.tunnels);
        tunnels.map(Tunnel::active).sum()
    }

    /// The dial for `key` that is under way, begun now if there is none.
    fn dial<D, F, T>(
        &self,
        entries: &mut HashMap<PoolKey, Entry<E>>,
        key: &PoolKey,
        dial: &D,
    ) -> Rc<Dial<E>>
    where
        D: Fn() -> F,
        F: Future<Output = Result<T, E>> + 'static,
        T: Dialled,
    {
        let entry = entries.entry(key.clone()).or_default();
        Rc::clone(entry.dial.get_or_insert_with(|| {
            let started = Rc::new(Dial {
                tunnel: RefCell::new(None),
                failure: RefCell::new(None),
                done: Notify::new(),
                retired: Cell::new(false),
            });
            lateen_executor::spawn_local(establish(
                Rc::downgrade(&self.0),
                key.clone(),
                dial(),
                Rc::clone(&started),
            ));
            started
        }))
    }

    /// A tunnel with room, found or dialled.
    async fn tunnel<D, F, T>(&self, key: &PoolKey, dial: &D) -> Result<Tunnel, PoolError<E>>
    where
        D: Fn() -> F,
        F: Future<Output = Result<T, E>> + 'static,
        T: Dialled,
    {
        let mut fruitless = 0;
        loop {
            let under_way = {
                let mut entries = self.0.entries.borrow_mut();
                // Looked up first by reference: a hit needs no copy of the key.
                let found = entries
                    .get(key)
                    .and_then(|entry| entry.with_room(self.0.max_streams));
                if let Some((tunnel, spare)) = found {
                    if spare {
                        // The next ones will have it; this one need not wait for it.
                        self.dial(&mut entries, key, dial);
                    }
                    return Ok(tunnel);
                }
                let full =
                    |entry: &Entry<E>| entry.dial.is_none() && entry.tunnels.len() >= TUNNELS;
                if entries.get(key).is_some_and(full) {
                    return Err(PoolError::Full);
                }
                self.dial(&mut entries, key, dial)
            };
            under_way.done.notified().await;
            if under_way.retired.get() {
                continue;
            }
            if let Some(failure) = &*under_way.failure.borrow() {
                return Err(match failure.clone() {
                    Failure::Dial(e) => PoolError::Dial(e),
                    Failure::Handshake(e) => PoolError::Handshake(e),
                });
            }
            let tunnel = under_way.tunnel.borrow().clone();
            if let Some(rejection) = tunnel.as_ref().and_then(Tunnel::rejection) {
                return Err(PoolError::Handshake(rejection));
            }
            // No room on a new tunnel is no failure where others took it. Where there is none for anybody, or the tunnel
            // is dead, it is one after a few.
            let why = match tunnel {
                Some(tunnel) if tunnel.known_limit() == Some(0) => TunnelError::NoStreams,
                Some(tunnel) if !tunnel.alive() => TunnelError::Io(std::io::Error::new(
                    std::io::ErrorKind::ConnectionAborted,
                    "peer closes every new tunnel; it may be shutting down",
                )),
                _ => continue,
            };
            fruitless += 1;
            if fruitless == ATTEMPTS {
                return Err(PoolError::Handshake(Rc::new(why)));
            }
        }
    }
}

impl<E> Entry<E> {
    /// The first tunnel with room: filling one after the other lets the last ones become idle. One that is congested
    /// is passed over; if all are, the one where least waits is taken, and `true` says that one more would help. One whose
    /// window is withheld carries nothing at all: it is taken only where no more may be dialled.
    ///
    /// A tunnel so new that its limit is not known yet is taken to have that of its neighbours, and room for one: it was
    /// dialled because they have none.
    fn with_room(&self, max_streams: usize) -> Option<(Tunnel, bool)> {
        let known = self.tunnels.iter().filter_map(Tunnel::known_limit).min();
        let limit = |tunnel: &Tunnel| match tunnel.known_limit() {
            Some(limit) => limit.min(max_streams),
            None => known.unwrap_or(max_streams).clamp(1, max_streams),
        };
        let (mut fallback, mut last) = (None::<&Tunnel>, None);
        for tunnel in &self.tunnels {
            if tunnel.active() >= limit(tunnel) || !tunnel.usable() {
                continue;
            }
            if tunnel.withheld() {
                last = last.or(Some(tunnel));
                continue;
            }
            if !tunnel.congested() {
                return Some((tunnel.clone(), false));
            }
            if fallback.is_none_or(|other| tunnel.queued() < other.queued()) {
                fallback = Some(tunnel);
            }
        }
        let more = self.tunnels.len() < SPARES;
        match (fallback, last) {
            (Some(tunnel), _) => Some((tunnel.clone(), more && self.dial.is_none())),
            (None, Some(tunnel)) if !more => Some((tunnel.clone(), false)),
            (None, _) => None,
        }
    }

    fn is_empty(&self) -> bool {
        self.tunnels.is_empty() && self.dial.is_none()
    }
}

/// Ends a tunnel that nobody has used, in order: the settings of both sides have to pass first, or the peer has a
/// handshake that failed.
async fn leave<IO>(tunnel: Tunnel, mut driver: Box<Driver<IO>>) -> Result<(), TunnelError>
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let mut tunnel = Some(tunnel);
    poll_fn(|cx| {
        let ended = Pin::new(&mut driver).poll(cx);
        let unused = tunnel.take_if(|tunnel| tunnel.known_limit().is_some());
        if ended.is_pending() && unused.is_some() {
            drop(unused);
            return Pin::new(&mut driver).poll(cx);
        }
        ended
    })
    .await
}

/// Dials, publishes the tunnel, drives it and takes it out again. The dial is boxed before there is a future that would have room
/// for it for as long as the tunnel lives: a handshake takes several times as much as a tunnel.
fn establish<E, F, T>(
    pool: Weak<Inner<E>>,
    key: PoolKey,
    dial: F,
    under_way: Rc<Dial<E>>,
) -> impl Future<Output = ()>
where
    E: fmt::Display,
    F: Future<Output = Result<T, E>>,
    T: Dialled,
{
    let opened = Box::pin(open(Weak::clone(&pool), dial));
    async move {
        let result = opened.await;
        let Some(inner) = pool.upgrade() else {
            return;
        };
        if let Err(Failure::Handshake(error)) = &result {
            inner.closed.tell(&key, error.close_reason());
        }
        if under_way.retired.get() {
            // Another dial may be under way in its place.
            drop((inner, under_way));
            if let Ok((tunnel, driver)) = result {
                let ended = leave(tunnel, driver).await;
                if let Err(error) = &ended {
                    tracing::debug!(peer = %key.address, %error, "tunnel ended that was retired as it was dialled");
                }
                if let Some(inner) = pool.upgrade() {
                    inner.closed.tell(&key, CloseReason::of(&ended));
                }
            }
            return;
        }
        let (tunnel, driver) = {
            let mut entries = inner.entries.borrow_mut();
            let entry = entries.entry(key.clone()).or_default();
            entry.dial = None;
            match result {
                Ok((tunnel, driver)) => {
                    tunnel.set_number((inner.numbers.0.borrow())());
                    entry.tunnels.push(tunnel.clone());
                    let driven = (key.clone(), tunnel.token());
                    inner.driven.borrow_mut().push(driven);
                    under_way.tunnel.replace(Some(tunnel.clone()));
                    under_way.done.notify_waiters();
                    (tunnel.token(), driver)
                }
                Err(failure) => {
                    if entry.is_empty() {
                        entries.remove(&key);
                    }
                    under_way.failure.replace(Some(failure));
                    under_way.done.notify_waiters();
                    return;
                }
            }
        };
        // Neither may keep the tunnel open while it is driven.
        drop((inner, under_way));
        let ended = driver.await;
        let reason = CloseReason::of(&ended);
        if let Err(error) = ended {
            tracing::debug!(peer = %key.address, %error, reason = reason.as_str(), "tunnel ended");
        }
        if let Some(inner) = pool.upgrade() {
            inner.closed.tell(&key, reason);
            let mut driven = inner.driven.borrow_mut();
            driven.retain(|(_, other)| !other.is(&tunnel));
            let mut entries = inner.entries.borrow_mut();
            if let Some(entry) = entries.get_mut(&key) {
                entry.tunnels.retain(|other| !other.is(&tunnel));
                if entry.is_empty() {
                    entries.remove(&key);
                }
            }
        }
    }
}

async fn open<E, F, T>(
    pool: Weak<Inner<E>>,
    dial: F,
) -> Result<(Tunnel, Box<Driver<T::Io>>), Failure<E>>
where
    F: Future<Output = Result<T, E>>,
    T: Dialled,
{
    let (io, known) = dial.await.map_err(Failure::Dial)?.parts();
    let mut settings = match pool.upgrade() {
        Some(inner) => inner.settings.clone(),
        None => Settings::client(),
    };
    let mut ask = None;
    if let Some((budget, below)) = known {
        settings.budget = budget;
        ask = Some(below);
    }
    let made = client::handshake(io, settings).await;
    let (tunnel, mut driver) = made.map_err(|e| Failure::Handshake(Rc::new(e)))?;
    if let Some(below) = ask {
        driver.ask(below);
    }
    Ok((tunnel, Box::new(driver)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::DuplexStream;

    /// However much a dial takes: there may be a tunnel for each pod that a node's pods talk to.
    #[test]
    fn a_tunnel_s_task_has_no_room_for_its_dial() {
        fn size<A, B, C, D, F>(_: impl FnOnce(A, B, C, D) -> F) -> usize {
            size_of::<F>()
        }
        async fn dial(large: [u8; 8192]) -> Result<DuplexStream, String> {
            std::future::pending::<()>().await;
            Err(format!("{large:?}"))
        }
        fn task<F, E, T>(_: impl FnOnce([u8; 8192]) -> F) -> usize
        where
            F: Future<Output = Result<T, E>>,
            E: fmt::Display,
            T: Dialled,
        {
            size(establish::<E, F, T>)
        }
        let bytes = task(dial);
        assert!(bytes <= 512, "{bytes} bytes");
    }
}
