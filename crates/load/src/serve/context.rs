//! State of the service that its connections share, and the ends of a connection.

use std::cell::{Cell, RefCell};
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use lateen_exchange::{Config, Protocol};
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

/// The time that peers may take. Zero is for ever.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Timeouts {
    /// Close connections on which nothing happens for so long; 0 never does
    #[arg(long = "idle-timeout", value_name = "TIME", default_value = "10m", value_parser = text::duration)]
    idle: Duration,
    /// Close connections whose request, or TLS handshake, takes longer to arrive; 0 never does
    #[arg(long = "request-timeout", value_name = "TIME", default_value = "60s", value_parser = text::duration)]
    request: Duration,
}

/// A time that never ends, and that other times can be added to.
const FOREVER: Duration = Duration::from_secs(u64::MAX / 8);

/// How long a connection that failed still reads, so that the peer can read the last answer.
const LINGER: Duration = Duration::from_secs(1);

impl Timeouts {
    /// The time for nothing to happen, for a timer.
    pub fn idle(self) -> Duration {
        limit(self.idle)
    }

    /// The time for a request, for a timer.
    pub fn request(self) -> Duration {
        limit(self.request)
    }

    /// The time-outs that a connection keeps itself. Request heads have theirs there; idle time is the service's.
    pub fn of_connection(self) -> lateen_exchange::Timeouts {
        let interval = self.idle().min(self.request()) / 8;
        lateen_exchange::Timeouts {
            check_interval: interval.clamp(Duration::from_millis(10), Duration::from_secs(1)),
            head: self.request(),
            idle: None,
            ping_after: FOREVER,
            ping_timeout: FOREVER,
            linger: LINGER,
        }
    }
}

fn limit(limit: Duration) -> Duration {
    match limit {
        Duration::ZERO => FOREVER,
        limit => limit.min(FOREVER),
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
        sleep(self.world.timeouts.request()).await;
        Ending::Overdue
    }

    /// Ends when nothing has happened for the idle time, or up to an eighth longer. A delay is no idleness.
    async fn idle(&self) {
        let mut quiet = 0;
        while quiet < CHECKS {
            sleep(self.world.timeouts.idle() / CHECKS).await;
            let is_busy = self.facts.moved.replace(false) || self.facts.delayed.get() > 0;
            quiet = if is_busy { 0 } else { quiet + 1 };
        }
    }

    /// Waits before an answer.
    pub async fn delay(&self, delay: Duration) {
        let delayed = &self.facts.delayed;
        delayed.set(delayed.get() + 1);
        let _mark = Mark(delayed);
        self.world.alarms.sleep(delay).await;
    }
}

/// The mark of an answer that waits.
struct Mark<'a>(&'a Cell<u32>);

impl Drop for Mark<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
