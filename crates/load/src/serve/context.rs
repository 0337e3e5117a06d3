//! State of the service that its connections share, that of a connection that its requests share, and their ends.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use lateen_exchange::server::Exchange;
use lateen_exchange::{Config, Error, Protocol};
use lateen_http::{Downstream, FieldValue, PeerKind, Scheme};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::alarms::Alarms;
use super::params::Params;
use super::reply::{Asked, Date, Reply, Setup};
use super::wire::Facts;
use crate::text;

/// The window of an HTTP/2 stream, in bytes.
const STREAM_WINDOW: u32 = 1 << 20;

/// The window of an HTTP/2 connection, in bytes.
const CONNECTION_WINDOW: u32 = 4 << 20;

/// Requests that may be open on one HTTP/2 connection.
const MAX_STREAMS: u32 = 1000;

/// Checks of a connection in its idle time.
const CHECKS: u32 = 8;

/// Bytes of one read or write of the raw echo.
pub const ECHO_BUFFER: usize = 64 * 1024;

/// The protocol of a place to listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// HTTP of either version, and gRPC.
    Http,
    /// Every byte comes back over TCP.
    Echo,
    /// Every datagram comes back over UDP.
    Datagrams,
}

/// The time that peers may take, for timers.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Timeouts {
    /// Close connections on which nothing happens for so long; 0 never does
    #[arg(long = "idle-timeout", value_name = "TIME", default_value = "10m", value_parser = limit)]
    pub idle: Duration,
    /// Close connections whose request, or TLS handshake, takes longer to arrive; 0 never does
    #[arg(long = "request-timeout", value_name = "TIME", default_value = "60s", value_parser = limit)]
    pub request: Duration,
}

/// Reads a limit of time, of which 0 is none.
fn limit(text: &str) -> Result<Duration, String> {
    let limit = text::duration(text)?;
    Ok(if limit.is_zero() { FOREVER } else { limit })
}

/// A time that never ends, and that other times can be added to.
const FOREVER: Duration = Duration::from_secs(u64::MAX / 8);

/// The time for which a connection that failed still reads, so that the peer can read the last answer.
const LINGER: Duration = Duration::from_secs(1);

impl Timeouts {
    /// The time-outs that a connection keeps itself. Request heads have theirs there; idle time is the service's.
    pub fn of_connection(self) -> lateen_exchange::Timeouts {
        let interval = self.idle.min(self.request) / 8;
        lateen_exchange::Timeouts {
            check_interval: interval.clamp(Duration::from_millis(10), Duration::from_secs(1)),
            head: self.request,
            idle: None,
            ping_after: FOREVER,
            ping_timeout: FOREVER,
            linger: LINGER,
        }
    }
}

/// State that all connections share.
#[derive(Debug)]
pub struct World {
    /// The rules of answers.
    pub echo: Setup,
    /// The time that peers may take.
    pub timeouts: Timeouts,
    /// The delays of answers.
    pub alarms: Alarms,
    /// Cancelled when nobody new is let in.
    pub closing: CancellationToken,
    /// Cancelled when connections take no further request.
    pub stop: CancellationToken,
    /// The text of the current date.
    pub date: RefCell<Date>,
    /// Scratch space of the raw echo.
    pub buffer: RefCell<Vec<u8>>,
    /// The facts from which heads of requests are made canonical.
    pub downstream: Downstream,
    /// The x-request-id of requests that have none.
    pub request_id: FieldValue,
    http1: Config,
    http2: Config,
    random: RefCell<SmallRng>,
}

impl World {
    /// The state of a service. It needs a runtime of tokio.
    ///
    /// # Errors
    /// The kernel gives no timer.
    pub fn new(echo: Setup, timeouts: Timeouts) -> std::io::Result<World> {
        let config = |protocol| Config {
            timeouts: Some(timeouts.of_connection()),
            ..Config::new(protocol)
        };
        let requests = lateen_h2::Config {
            max_streams: MAX_STREAMS,
            stream_first: STREAM_WINDOW,
            connection_first: CONNECTION_WINDOW,
            allowance: 1 << 30,
            // A thousand heads of answers may wait.
            unread_replies: 1 << 20,
            ..lateen_h2::Config::requests()
        };
        let nobody = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        Ok(World {
            echo,
            timeouts,
            alarms: Alarms::new()?,
            closing: CancellationToken::new(),
            stop: CancellationToken::new(),
            date: RefCell::default(),
            buffer: RefCell::new(vec![0; ECHO_BUFFER]),
            downstream: Downstream::new(PeerKind::Mesh, nobody, Scheme::Http),
            request_id: FieldValue::new(Bytes::from_static(b"echo")).expect("it is visible"),
            http1: config(Protocol::Http1),
            http2: Config {
                http2: requests.share(),
                ..config(Protocol::Http2)
            },
            random: RefCell::new(SmallRng::from_os_rng()),
        })
    }

    /// The parameters of a connection.
    pub fn config(&self, protocol: Protocol) -> Config {
        match protocol {
            Protocol::Http1 => self.http1.clone(),
            Protocol::Http2 => self.http2.clone(),
        }
    }

    /// The answer to a request; none if the connection shall end.
    pub fn answer(&self, asked: Asked) -> (Option<Reply>, Params) {
        self.echo.answer(asked, &mut *self.random.borrow_mut())
    }
}

/// The reason why a connection shall end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The service is about to end.
    Stopped,
    /// Nothing has happened for the idle time.
    Idle,
    /// The connection was idle, and has not ended in time since.
    Overdue,
}

/// One connection's view of the service.
#[derive(Debug, Clone)]
pub struct Session {
    /// State that all connections share.
    pub world: Rc<World>,
    /// Facts of the byte stream.
    pub facts: Rc<Facts>,
}

impl Session {
    /// The view of a new connection.
    pub fn new(world: Rc<World>) -> Session {
        let facts = Rc::default();
        Session { world, facts }
    }

    /// Ends when the connection shall end.
    pub async fn ending(self) -> Ending {
        tokio::select! {
            biased;
            () = self.world.stop.cancelled() => Ending::Stopped,
            () = self.idle() => Ending::Idle,
        }
    }

    /// Ends when a connection that was idle has had the time of a request to end.
    pub async fn overdue(self) -> Ending {
        sleep(self.world.timeouts.request).await;
        Ending::Overdue
    }

    /// Ends when nothing has happened for the idle time, or up to an eighth longer. A delay is no idleness.
    async fn idle(&self) {
        let mut quiet = 0;
        while quiet < CHECKS {
            sleep(self.world.timeouts.idle / CHECKS).await;
            let is_delayed = Rc::strong_count(&self.facts.delayed) > 1;
            let is_busy = self.facts.moved.replace(false) || is_delayed;
            quiet = if is_busy { 0 } else { quiet + 1 };
        }
    }

    /// Waits before an answer.
    pub async fn delay(&self, delay: Duration) {
        let _mark = Rc::clone(&self.facts.delayed);
        self.world.alarms.sleep(delay).await;
    }
}

/// State that the requests of one connection share.
#[derive(Debug)]
pub struct Link {
    /// The connection's view of the service.
    pub session: Session,
    /// Cancelled when the connection takes no further request.
    pub stop: CancellationToken,
    /// The version of HTTP.
    pub protocol: Protocol,
    /// An answer waits whose client has gone when it has sent its last byte. Another one may wait with its half closed.
    pub leaves: Cell<bool>,
}

impl Link {
    /// Whether it is HTTP/2.
    pub fn is_http2(&self) -> bool {
        self.protocol == Protocol::Http2
    }

    /// Whether there is no client any more.
    pub fn is_left(&self) -> bool {
        let facts = &self.session.facts;
        facts.broken.get() || self.leaves.get() && facts.ended.get()
    }
}

/// Waits for `something`, but no longer than for the client to give the request up.
///
/// # Errors
/// The client gave it up.
pub async fn unless_gone(
    exchange: &Exchange,
    something: impl Future<Output = ()>,
) -> Result<(), Error> {
    tokio::select! {
        biased;
        () = something => Ok(()),
        error = poll_fn(|cx| exchange.poll_gone(cx)) => Err(error),
    }
}
