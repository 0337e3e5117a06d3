//! Pool of a worker's tunnels, which connections with the same key share.

mod entry;
mod establish;
mod key;
mod state;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::rc::Rc;

use tokio::sync::Notify;

use crate::client::{ConnectRequest, ResponseInfo, Tunnel};
use crate::error::{CloseReason, ConnectError, TunnelError};
use crate::retry_budget::RetryBudget;
use crate::settings::Settings;
use crate::stream::Stream;
use entry::{Dial, Entry, Failure};
use establish::{establish, open};
pub use key::{Budgeted, Dialled, Known, PoolKey, Users};
use state::{Inner, Numbers, Observer};

/// Attempts of a request that peers refuse unprocessed.
const ATTEMPTS: usize = 3;

/// Limit of tunnels for one key. A peer that allows few streams on each would otherwise cost a tunnel for each connection.
const TUNNELS: usize = 256;

/// Error of [`Pool::connect`]. `E` is the error of the caller's dial function.
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
/// One dial for each key is under way at a time, and all waiting callers share its result. Tasks of their own (`spawn_local`)
/// drive dials and tunnels, so that none depends on the connection that first needed it.
#[derive(Debug)]
pub struct Pool<E>(Rc<Inner<E>>);

impl<E> Clone for Pool<E> {
    fn clone(&self) -> Self {
        Pool(Rc::clone(&self.0))
    }
}

impl<E: Clone + fmt::Display + 'static> Pool<E> {
    /// An empty pool whose tunnels carry at most `max_streams` streams each (and fewer if the peer says so).
    pub fn new(settings: Settings, max_streams: usize) -> Self {
        Pool(Rc::new(Inner {
            settings,
            max_streams: max_streams.max(1),
            is_shared: Cell::new(false),
            entries: RefCell::new(HashMap::new()),
            driven: RefCell::default(),
            closed: Observer(RefCell::new(Rc::new(|_, _| {}))),
            numbers: Numbers(RefCell::new(Box::new(|| 0))),
        }))
    }

    /// Sets the callback for every tunnel that ends, with its reason. A tunnel whose handshake fails after the dial counts
    /// too. The last call wins.
    pub fn on_close(&self, observer: impl Fn(&PoolKey, CloseReason) + 'static) {
        self.0.closed.0.replace(Rc::new(observer));
    }

    /// Sets the source of numbers for tunnels that are opened from now on. [`Stream::tunnel`] returns the number.
    pub fn number_with(&self, next: impl Fn() -> u64 + 'static) {
        *self.0.numbers.0.borrow_mut() = Box::new(next);
    }

    /// Has tunnels that are dialled from now on take the turns of no group that uses them, but for those of [`Users::One`]. The tunnels
    /// of each key form a group of their own. A dial with its handshake still belongs to the group that causes it.
    pub fn share_among_groups(&self) {
        self.0.is_shared.set(true);
    }

    /// Opens a stream on a tunnel for `key`. If no tunnel has room, `dial` makes a connection (TCP and TLS, with its own
    /// timeouts), see [`Dialled`]. `retry_budget` belongs to the connection, for all endpoints that it tries.
    ///
    /// # Errors
    /// See [`PoolError`]. A request that the peer did not process was repeated already. A request that was lost with a
    /// tunnel that had answered others was repeated on the next tunnel if `retry_budget` allowed it: an idle tunnel may
    /// have died long ago. A request that was lost with a new tunnel is not repeated, since the peer may have processed it.
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

    /// Takes the tunnels that `which` selects out of use. They and their dials get no new stream, and close when their last
    /// stream ends. New connections get new tunnels, with the certificates of that time. It serves a replaced certificate
    /// and a released pod. Returns the number of tunnels.
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

    /// Probes the peers of the tunnels that `which` selects, retired ones too, until the tunnels end. If a peer is gone, its
    /// streams end within about [`Settings::probe_timeout`]. It serves a peer that was removed from the mesh, whose FIN or
    /// RST may be lost. Returns the number of tunnels.
    pub fn keep_probing(&self, which: impl Fn(&PoolKey) -> bool) -> usize {
        let driven = self.0.driven.borrow();
        let probed = driven.iter().filter(|(key, _)| which(key));
        probed.map(|(_, tunnel)| tunnel.keep_probing()).count()
    }

    /// Number of open tunnels that are in use.
    pub fn tunnels(&self) -> usize {
        let entries = self.0.entries.borrow();
        entries.values().map(|entry| entry.tunnels.len()).sum()
    }

    /// Number of streams that are open or requested on all tunnels in use.
    pub fn streams(&self) -> usize {
        let entries = self.0.entries.borrow();
        let tunnels = entries.values().flat_map(|entry| &entry.tunnels);
        tunnels.map(Tunnel::active).sum()
    }

    /// Returns the dial for `key` that is under way, or starts one.
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
        let group = &entry.group;
        Rc::clone(entry.dial.get_or_insert_with(|| {
            let started = Rc::new(Dial {
                tunnel: RefCell::new(None),
                failure: RefCell::new(None),
                done: Notify::new(),
                retired: Cell::new(false),
            });
            let opened = open(Rc::downgrade(&self.0), dial());
            let (pool, under_way) = (Rc::downgrade(&self.0), Rc::clone(&started));
            let key = key.clone();
            if self.0.is_shared.get() && key.users != Users::One {
                let group = group.clone();
                lateen_executor::spawn_local(async move {
                    let opened = Box::pin(std::future::ready(opened.await));
                    group.spawn(establish(pool, key, opened, under_way));
                });
            } else {
                let opened = Box::pin(opened);
                lateen_executor::spawn_local(establish(pool, key, opened, under_way));
            }
            started
        }))
    }

    /// Finds or dials a tunnel with room.
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
                    .and_then(|entry| entry.with_room(self.0.max_streams, key.users));
                if let Some((tunnel, spare)) = found {
                    if spare {
                        // It serves later connections; this one does not wait for it.
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
            // Other callers may have filled the new tunnel, which is no failure. A peer that allows no stream, or closes
            // every new tunnel, is a failure after some attempts.
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
