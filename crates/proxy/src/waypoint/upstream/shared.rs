//! Connections of HTTP/2 to one endpoint, each of which carries requests of many clients.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::{LocalBoxFuture, Shared};
use lateen_exchange::client::{self, Handle};
use lateen_exchange::{Account, Config};
use lateen_executor::SharedGroup;

use super::error::UpstreamError;
use super::lease::Lease;
use super::owner::Owner;
use super::wire::{Ends, Tunnels, Wire};

/// Connections to one endpoint that are kept at a time, as many as tunnels. An endpoint of which each takes few requests, or does not
/// read them, would collect them otherwise.
const MOST: usize = 256;

/// Bytes of frames that all connections to one endpoint leave unread, from which on no further one is opened. An endpoint that does not
/// read would collect heads of requests that were reset: they must be sent, and no account has them.
const UNREAD: usize = 4 << 20;

/// The number of connections that one request may open. Requests of others may fill each before it has its turn.
const OPENINGS: usize = 3;

/// The number of stalled connections to one endpoint from which on requests with content use them again. An endpoint that reads no content
/// at all would collect connections otherwise.
const STALLED: usize = 16;

/// The time for which the accounts that hold windows are known.
const JUDGED: Duration = Duration::from_millis(100);

/// The connection that is being opened, for all requests that wait for it.
type Opening = Shared<LocalBoxFuture<'static, Result<Opened, UpstreamError>>>;

/// A connection, and what it has brought.
#[derive(Clone)]
struct Opened {
    handle: Handle,
    /// The facts of the endpoint.
    ends: Option<Ends>,
    tunnels: Tunnels,
}

impl Opened {
    /// True if no further request is given to it. An endpoint that allows none on each connection would collect them.
    fn is_useless(&self) -> bool {
        self.handle.is_closed() || self.handle.is_barred() || self.tunnels.are_leaving()
    }

    fn lease(&self, is_reused: bool) -> Lease {
        Lease::shared((self.handle.clone(), self.ends.clone()), is_reused)
    }
}

/// The connections that the same requests use.
pub(super) struct SharedConnections {
    open: RefCell<Vec<Opened>>,
    opening: RefCell<Option<Opening>>,
    /// The accounts that hold windows of stalled connections, and the time of the last look.
    holders: RefCell<(Option<Instant>, Vec<Account>)>,
    /// The owner; `None`: all sources share them.
    owner: Option<Owner>,
    /// The group of the tasks that drive them. `None`: they take the turns of the only source.
    group: Option<SharedGroup>,
}

impl Default for SharedConnections {
    fn default() -> Self {
        Self {
            open: RefCell::default(),
            opening: RefCell::default(),
            holders: RefCell::default(),
            owner: None,
            group: Some(SharedGroup::default()),
        }
    }
}

impl SharedConnections {
    /// Connections of one owner.
    pub(super) fn of(owner: Owner) -> Self {
        let group = match owner {
            Owner::Source(_) => None,
            Owner::Namespace(..) => Some(SharedGroup::default()),
        };
        Self {
            owner: Some(owner),
            group,
            ..Self::default()
        }
    }

    fn full(&self, address: SocketAddr) -> UpstreamError {
        let full = UpstreamError::Full(address);
        match &self.owner {
            None => full,
            Some(owner) => full.of_owner(owner),
        }
    }

    /// A connection that takes a request now. `open` opens a byte stream to `address` where there is none.
    ///
    /// A stalled connection is enough for a request without content, which waits for no opening then.
    ///
    /// # Errors
    /// There is none, and none could be opened.
    pub(super) async fn lease<F>(
        &self,
        address: SocketAddr,
        has_content: bool,
        config: impl Fn() -> Config,
        open: impl Fn() -> F,
    ) -> Result<Lease, UpstreamError>
    where
        F: Future<Output = Result<Wire, UpstreamError>> + 'static,
    {
        let mut left = OPENINGS;
        // Content alone needs the window. The opening may take long, and an endpoint that drops connections lets it fail.
        let least = if has_content { STALLED } else { 1 };
        loop {
            if let Some(lease) = self.ready().or_else(|| self.stalled(least)) {
                return Ok(lease);
            }
            self.drop_unawaited();
            let under_way = self.opening.borrow().clone();
            let opening = match under_way {
                Some(opening) => opening,
                // The connections that were opened for this request are full, and so are all others.
                None if left == 0 || self.is_full() => {
                    return self.stalled(1).ok_or_else(|| self.full(address));
                }
                None => {
                    left -= 1;
                    let opening = connect(open(), config(), self.group())
                        .boxed_local()
                        .shared();
                    self.opening.replace(Some(opening.clone()));
                    opening
                }
            };
            let opened = opening.clone().await;
            // Of all that waited, the first one that runs enters it.
            let is_first = self
                .opening
                .borrow_mut()
                .take_if(|open| open.ptr_eq(&opening))
                .is_some();
            let opened = match opened {
                Ok(opened) => opened,
                Err(error) => return self.stalled(1).ok_or(error),
            };
            if is_first {
                self.open.borrow_mut().push(opened.clone());
            }
            if opened.handle.is_ready() {
                return Ok(opened.lease(!is_first));
            }
            // An endpoint that allows no stream would allow none on the next one either.
            if opened.handle.is_barred() {
                return Err(self.full(address));
            }
        }
    }

    /// A connection with room that is not stalled. Those that take no more requests go.
    fn ready(&self) -> Option<Lease> {
        self.drop_useless();
        let open = self.open.borrow();
        let mut ready = open.iter().filter(|opened| opened.handle.is_ready());
        let ready = ready.find(|opened| !opened.handle.is_stalled());
        ready.map(|opened| opened.lease(true))
    }

    /// A stalled connection with room, if at least so many are stalled.
    fn stalled(&self, least: usize) -> Option<Lease> {
        let open = self.open.borrow();
        let stalled = || open.iter().filter(|opened| opened.handle.is_stalled());
        if stalled().count() < least {
            return None;
        }
        let opened = stalled().find(|opened| opened.handle.is_ready())?;
        Some(opened.lease(true))
    }

    /// True if no further connection is opened.
    fn is_full(&self) -> bool {
        let open = self.open.borrow();
        let unread: usize = open.iter().map(|opened| opened.handle.unread()).sum();
        open.len() >= MOST || unread >= UNREAD
    }

    /// True if a connection is stalled because the endpoint does not read content that the namespace of this account has sent.
    pub(super) fn is_held_by(&self, account: &Account, now: Instant) -> bool {
        let open = self.open.borrow();
        let stalled = || open.iter().filter(|opened| opened.handle.is_stalled());
        let (judged, holders) = &mut *self.holders.borrow_mut();
        if stalled().next().is_none() {
            holders.clear();
            return false;
        }
        // Holders change seldom, and a look at all requests of all connections takes long.
        if judged.is_none_or(|judged| now.saturating_duration_since(judged) >= JUDGED) {
            *judged = Some(now);
            *holders = stalled()
                .flat_map(|opened| opened.handle.holders())
                .collect();
        }
        holders.iter().any(|holder| holder.is_beside(account))
    }

    /// The group of the tasks that drive them, if they serve several sources.
    pub(super) fn group(&self) -> Option<SharedGroup> {
        self.group.clone()
    }

    /// True without a connection.
    pub(super) fn is_empty(&self) -> bool {
        self.open.borrow().is_empty()
    }

    /// Lets all of them go: each ends behind its requests.
    pub(super) fn clear(&self) {
        drop(self.open.take());
    }

    /// Lets go of what no request can use.
    pub(super) fn tidy(&self) {
        self.drop_useless();
        self.drop_unawaited();
    }

    /// Drops an opening that all its requests have left. It would not move, since they poll it, while its time runs out.
    fn drop_unawaited(&self) {
        let unawaited = |opening: &mut Opening| opening.strong_count() == Some(1);
        let left = self.opening.borrow_mut().take_if(unawaited);
        // Its stream may wake others as it ends.
        drop(left);
    }

    /// Lets connections go that take no requests.
    fn drop_useless(&self) {
        let useless: Vec<_> = {
            let mut open = self.open.borrow_mut();
            open.extract_if(.., |opened| opened.is_useless()).collect()
        };
        // The last handle wakes its connection, which ends.
        drop(useless);
    }
}

/// Opens a connection. A task of `group` drives it, or one of the running group if there is none.
async fn connect(
    stream: impl Future<Output = Result<Wire, UpstreamError>>,
    config: Config,
    group: Option<SharedGroup>,
) -> Result<Opened, UpstreamError> {
    let stream = stream.await?;
    let (ends, tunnels) = (stream.ends(), stream.tunnels());
    let (handle, driver) = client::open(stream, config);
    let driving = async move {
        if let Err(error) = driver.await {
            tracing::debug!(%error, "a connection to an endpoint ended");
        }
    };
    match group {
        // The client that caused it would pay for the requests of all others.
        Some(group) => group.spawn(driving),
        None => lateen_executor::spawn_local(driving),
    }
    Ok(Opened {
        handle,
        ends,
        tunnels,
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use lateen_exchange::{Protocol, server};
    use lateen_executor::{Executor, Group};
    use lateen_http::{Length, Status};
    use lateen_types::Identity;
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::oneshot;
    use tokio::task::LocalSet;

    use super::*;
    use crate::testing::soon;
    use crate::waypoint::tests::head;

    fn http2() -> Config {
        Config::new(Protocol::Http2)
    }

    async fn plain(address: SocketAddr) -> Result<Wire, UpstreamError> {
        Ok(Wire::Plain(TcpStream::connect(address).await.unwrap()))
    }

    /// Makes requests, one after the other, over a connection to `address` that others may use as well.
    async fn ask(connections: Rc<SharedConnections>, address: SocketAddr, times: usize) {
        for _ in 0..times {
            let lease = connections
                .lease(address, true, http2, || plain(address))
                .await;
            let lease = lease.unwrap_or_else(|error| panic!("{error}"));
            let request = lease.handle().request(&head("GET", "/", &[]), None);
            request.unwrap().answer().await.unwrap();
        }
    }

    #[test]
    fn a_connection_takes_turns_of_no_client_that_uses_it() {
        assert!(!pays_for_others(SharedConnections::default()));
    }

    #[test]
    fn a_connection_of_one_source_takes_its_turns() {
        let source = Identity::new("cluster.local", "default", "web").unwrap();
        assert!(pays_for_others(SharedConnections::of(Owner::Source(
            source
        ))));
    }

    /// Returns true if a client that opened a connection, and uses it no more, pays for the requests of another client.
    fn pays_for_others(connections: SharedConnections) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let executor = Executor::default();
            let (first, second, serving) = (executor.group(), executor.group(), executor.group());
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            serving.spawn(async move {
                let (stream, _) = listener.accept().await.unwrap();
                let mut connection = server::Connection::new(stream, http2());
                while let Ok(Some((_, exchange))) = connection.next().await {
                    exchange.reply(Status::OK, &[], Length::Known(0)).unwrap();
                    exchange.finish().unwrap();
                }
            });
            let connections = Rc::new(connections);
            let run = |group: &Group, times| {
                let (done, is_done) = oneshot::channel();
                let asking = ask(Rc::clone(&connections), address, times);
                group.spawn(async move {
                    asking.await;
                    let _ = done.send(());
                });
                is_done
            };
            let test = async {
                run(&first, 1).await.unwrap();
                // Tasks of the first request end meanwhile: until then it uses time.
                let (mut before, mut equal) = (first.used(), 0);
                while equal < 10 {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    let now = first.used();
                    equal = if now == before { equal + 1 } else { 0 };
                    before = now;
                }
                run(&second, 200).await.unwrap();
                first.used() != before
            };
            executor.run_until(soon("all answers", test)).await
        })
    }

    #[tokio::test]
    async fn an_opening_that_no_request_waits_for_is_not_joined() {
        let connections = SharedConnections::default();
        let address = SocketAddr::from(([192, 0, 2, 1], 80));
        let never = std::future::pending::<Result<Wire, UpstreamError>>;
        let left = connections
            .lease(address, true, http2, never)
            .now_or_never();
        assert!(left.is_none(), "it is opened");
        let own = move || async move { Err(UpstreamError::Full(address)) };
        let next = connections.lease(address, true, http2, own);
        let error = soon("an opening of its own", next).await.err();
        assert!(matches!(error, Some(UpstreamError::Full(_))), "{error:?}");
        // While a request waits for it, others do as well.
        let mut first = std::pin::pin!(connections.lease(address, true, http2, never));
        assert!(first.as_mut().now_or_never().is_none());
        let joined = connections.lease(address, true, http2, own).now_or_never();
        assert!(joined.is_none());
    }

    #[tokio::test]
    async fn a_request_whose_connection_others_fill_opens_another() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        // Its client makes one request at a time.
        let one = || Config {
            http2: lateen_h2::Config {
                max_streams: 1,
                ..lateen_h2::Config::requests()
            }
            .share(),
            ..http2()
        };
        let open = || plain(address);
        let test = async {
            let connections = SharedConnections::default();
            let mut opener = Box::pin(connections.lease(address, true, one, open));
            let mut joiner = Box::pin(connections.lease(address, true, one, open));
            assert!(opener.as_mut().now_or_never().is_none());
            assert!(joiner.as_mut().now_or_never().is_none());
            let joined = joiner.await.unwrap_or_else(|error| panic!("{error}"));
            let request = joined.handle().request(&head("GET", "/", &[]), None);
            let _open = request.unwrap();
            let own = opener.await.unwrap_or_else(|error| panic!("{error}"));
            assert!(own.handle().is_ready());
        };
        LocalSet::new()
            .run_until(soon("two connections", test))
            .await;
    }

    /// A connection whose endpoint reads no content. The far end is returned as well.
    fn unread(config: Config) -> (Opened, tokio::io::DuplexStream) {
        let (ours, far_end) = tokio::io::duplex(1 << 17);
        let (handle, driver) = client::open(ours, config);
        tokio::task::spawn_local(driver);
        let upload = head("POST", "/", &[("content-length", "70000")]);
        let exchange = handle.request(&upload, None).unwrap();
        tokio::task::spawn_local(async move {
            exchange.send(vec![7; 70_000].into()).await.unwrap();
            std::future::pending::<()>().await;
        });
        let opened = Opened {
            handle,
            ends: None,
            tunnels: Tunnels::default(),
        };
        (opened, far_end)
    }

    #[tokio::test(start_paused = true)]
    async fn stalled_connections_are_left_until_there_are_many() {
        let address = SocketAddr::from(([192, 0, 2, 1], 80));
        let config = || Config {
            timeouts: None,
            ..http2()
        };
        let openings = Rc::new(Cell::new(0));
        let none = || {
            openings.set(openings.get() + 1);
            async move { Err(UpstreamError::Timeout(address)) }
        };
        let test = async {
            let connections = SharedConnections::default();
            let mut far_ends = Vec::new();
            for number in 0..STALLED {
                // Another one is opened. Where that fails, a stalled one is used.
                let lease = connections.lease(address, true, config, none).await;
                assert_eq!((lease.is_ok(), openings.get()), (number > 0, number + 1));
                let (opened, far_end) = unread(config());
                connections.open.borrow_mut().push(opened);
                far_ends.push(far_end);
                assert!(connections.lease(address, true, config, none).await.is_ok());
                tokio::time::sleep(Duration::from_millis(1100)).await;
            }
            assert!(connections.lease(address, true, config, none).await.is_ok());
            assert_eq!(openings.get(), STALLED);
        };
        LocalSet::new().run_until(test).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_content_opens_nothing_beside_a_stalled_connection() {
        let address = SocketAddr::from(([192, 0, 2, 1], 80));
        let config = || Config {
            timeouts: None,
            ..http2()
        };
        let never = std::future::pending::<Result<Wire, UpstreamError>>;
        let test = async {
            let connections = SharedConnections::default();
            let (opened, _far_end) = unread(config());
            connections.open.borrow_mut().push(opened);
            tokio::time::sleep(Duration::from_millis(1100)).await;
            let mut upload = std::pin::pin!(connections.lease(address, true, config, never));
            assert!(upload.as_mut().now_or_never().is_none());
            // It does not wait for the opening of others either.
            let plain = connections.lease(address, false, config, never);
            let lease = plain.now_or_never();
            assert!(lease.is_some_and(|lease| lease.is_ok_and(|lease| lease.is_reused())));
        };
        LocalSet::new().run_until(test).await;
    }

    #[tokio::test]
    async fn heads_that_an_endpoint_does_not_read_are_bounded_over_all_connections() {
        let address = SocketAddr::from(([192, 0, 2, 1], 80));
        // Their client makes one request at a time.
        let one = || Config {
            timeouts: None,
            http2: lateen_h2::Config {
                max_streams: 1,
                ..lateen_h2::Config::requests()
            }
            .share(),
            ..http2()
        };
        let none = || async move { Err(UpstreamError::Timeout(address)) };
        let value = "x".repeat(32_000);
        let large = head("GET", "/", &[("x-large", &value)]);
        // A connection is full by frames that wait, or earlier by an open request.
        for heads in [7, 100] {
            let connections = SharedConnections::default();
            let mut kept = Vec::new();
            let error = loop {
                let error = connections.lease(address, true, one, none).await.err();
                if !matches!(error, Some(UpstreamError::Timeout(_))) {
                    break error;
                }
                let (handle, driver) = client::open(tokio::io::duplex(64).0, one());
                let mut last = None;
                for _ in 0..heads {
                    // A drop resets the one before.
                    drop(last.take());
                    if !handle.is_ready() {
                        break;
                    }
                    last = Some(handle.request(&large, None).unwrap());
                }
                kept.push((driver, last));
                connections.open.borrow_mut().push(Opened {
                    handle,
                    ends: None,
                    tunnels: Tunnels::default(),
                });
            };
            assert!(matches!(error, Some(UpstreamError::Full(_))), "{error:?}");
            // All of them hold some 6 MiB.
            assert!((16..40).contains(&kept.len()), "{}", kept.len());
        }
    }

    #[tokio::test]
    async fn the_number_of_connections_to_one_endpoint_is_bounded() {
        let connections = SharedConnections::default();
        let address = SocketAddr::from(([192, 0, 2, 1], 80));
        let config = || {
            let http2 = lateen_h2::Config {
                max_streams: 1,
                ..lateen_h2::Config::requests()
            };
            Config {
                timeouts: None,
                http2: http2.share(),
                ..Config::new(Protocol::Http2)
            }
        };
        let none = || async move { Err(UpstreamError::Timeout(address)) };
        let mut open = Vec::new();
        for _ in 0..MOST {
            let error = connections.lease(address, true, config, none).await.err();
            assert!(matches!(error, Some(UpstreamError::Timeout(_))));
            let (handle, driver) = client::open(tokio::io::duplex(64).0, config());
            let exchange = handle.request(&head("GET", "/", &[]), None).unwrap();
            connections.open.borrow_mut().push(Opened {
                handle,
                ends: None,
                tunnels: Tunnels::default(),
            });
            open.push((driver, exchange));
        }
        let error = connections.lease(address, true, config, none).await.err();
        assert!(matches!(error, Some(UpstreamError::Full(_))), "{error:?}");
        let (_driver, exchange) = open.pop().unwrap();
        drop(exchange);
        assert!(connections.lease(address, true, config, none).await.is_ok());
    }
}
