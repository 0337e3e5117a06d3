//! Idle connections of HTTP/1 to one endpoint. No task drives them: each is looked at before its next use, and now and then.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use lateen_exchange::client::{Connection, Handle};

use super::wire::{Ends, Wire};

/// Limit of idle connections of an endpoint in shared tunnels.
const MOST: usize = 128;

/// Limit of idle connections of an endpoint in tunnels that sources of one namespace own.
const OF_NAMESPACE: usize = 32;

/// How long an idle connection is kept. Servers close theirs after 60 s and more, most of them.
const KEPT: Duration = Duration::from_secs(55);

/// An idle connection ends so much earlier than its server says, so that no request meets that end.
const EARLIER: Duration = Duration::from_secs(1);

/// The driver of a connection of HTTP/1.
pub(super) type Driver = Box<Connection<Wire>>;

/// A connection of HTTP/1 with its driver.
pub(super) type Owned = (Handle, Driver);

/// The idle connections that the same requests use; the last one was used last.
pub(super) struct IdleConnections {
    kept: RefCell<Vec<Idle>>,
    /// The number of connections in all sets that are counted together.
    count: Rc<Cell<usize>>,
    /// The limit of that number.
    most: usize,
}

impl Default for IdleConnections {
    fn default() -> Self {
        Self {
            kept: RefCell::default(),
            count: Rc::default(),
            most: MOST,
        }
    }
}

struct Idle {
    handle: Handle,
    driver: Driver,
    ends: Option<Ends>,
    until: Instant,
    /// The server keeps it for less than [`KEPT`].
    is_short: bool,
    _counted: Counted,
}

/// Counts one idle connection for as long as it is kept.
struct Counted(Rc<Cell<usize>>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl IdleConnections {
    /// An empty set of one owner. Its connections are counted in `count`, with those of other owners in the namespace.
    pub(super) fn of_namespace(count: &Rc<Cell<usize>>) -> Self {
        Self {
            kept: RefCell::default(),
            count: Rc::clone(count),
            most: OF_NAMESPACE,
        }
    }

    /// Keeps a connection, if there is room, for as long as its server does.
    pub(super) fn keep(&self, (handle, driver): Owned, ends: Option<Ends>) {
        let told = handle.keep_alive().map(|told| told.saturating_sub(EARLIER));
        let kept = told.map_or(KEPT, |told| told.min(KEPT));
        if self.count.get() < self.most && !kept.is_zero() {
            self.count.set(self.count.get() + 1);
            self.kept.borrow_mut().push(Idle {
                handle,
                driver,
                ends,
                until: Instant::now() + kept,
                is_short: kept < KEPT,
                _counted: Counted(Rc::clone(&self.count)),
            });
        }
    }

    /// Takes the connection that was used last, of those that still stand.
    pub(super) fn take(&self) -> Option<(Owned, Option<Ends>)> {
        loop {
            let last = self.kept.borrow_mut().pop();
            let Idle {
                handle,
                driver,
                ends,
                until,
                is_short,
                ..
            } = last?;
            if is_short && Instant::now() >= until {
                continue;
            }
            if let Some(driver) = stands(&handle, driver) {
                return Some(((handle, driver), ends));
            }
        }
    }

    /// True without a connection.
    pub(super) fn is_empty(&self) -> bool {
        self.kept.borrow().is_empty()
    }

    /// Ends those that were idle for long, and forgets those that have ended.
    pub(super) fn tidy(&self, now: Instant) {
        let mut kept = Vec::new();
        for idle in self.kept.take() {
            if now >= idle.until {
                continue;
            }
            if let Some(driver) = stands(&idle.handle, idle.driver) {
                kept.push(Idle { driver, ..idle });
            }
        }
        self.kept.replace(kept);
    }
}

/// One turn of a driver. One that has ended goes; its exchange has heard why.
pub(super) fn turn(driver: &mut Option<Driver>, cx: &mut Context<'_>) {
    if let Some(connection) = driver
        && Pin::new(&mut **connection).poll(cx).is_ready()
    {
        *driver = None;
    }
}

/// The driver of an idle connection that can still be used. It reads what the socket or tunnel has said meanwhile. `None`: the connection
/// has ended, its tunnel is about to end, or the tunnel receives nothing.
fn stands(handle: &Handle, driver: Driver) -> Option<Driver> {
    let mut driver = Some(driver);
    turn(&mut driver, &mut Context::from_waker(Waker::noop()));
    driver.filter(|driver| {
        let wire = driver.io();
        handle.is_ready() && !wire.is_held_up() && !wire.is_leaving()
    })
}

#[cfg(test)]
mod tests {
    use lateen_exchange::{Config, Protocol, client};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// A connection, and its far end.
    async fn open(listener: &TcpListener) -> (Owned, TcpStream) {
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await;
        let (far, _) = listener.accept().await.unwrap();
        let config = Config::new(Protocol::Http1);
        let (handle, driver) = client::open(Wire::Plain(stream.unwrap()), config);
        ((handle, Box::new(driver)), far)
    }

    #[tokio::test]
    async fn owners_of_a_namespace_keep_few_connections_together() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let count = Rc::default();
        let [one, other] = [(), ()].map(|()| IdleConnections::of_namespace(&count));
        let mut far_ends = Vec::new();
        for connections in [&one, &other] {
            for _ in 0..OF_NAMESPACE - 2 {
                let (connection, far_end) = open(&listener).await;
                connections.keep(connection, None);
                far_ends.push(far_end);
            }
        }
        let kept = |connections: &IdleConnections| connections.kept.borrow().len();
        assert_eq!((kept(&one), kept(&other)), (OF_NAMESPACE - 2, 2));
        drop(one);
        assert_eq!(count.get(), 2);
    }
}
