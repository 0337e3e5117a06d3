//! The compiled echo service: one thread that answers HTTP, gRPC, TCP and UDP as it is asked to. It
//! stands in for applications, so it must cost little and behave well or badly on demand.

mod alarms;
pub mod args;
mod chance;
mod connection;
mod context;
mod echo;
mod error;
pub mod frames;
mod grpc;
mod http1;
mod http2;
mod link;
pub mod params;
mod pipe;
mod reply;
mod response;
mod socket;
mod timeouts;
mod tls;
mod wire;

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rustls::ServerConfig;

use crate::poll::Poll;
use crate::signals::Signals;
use connection::Connection;
pub use context::Kind;
use context::{Next, Tools, World};
use error::MAX_LISTENERS;
pub use error::ServeError;
use reply::Setup;
use socket::{bind_udp, listen};
use timeouts::Patience;
pub use timeouts::Timeouts;
use wire::Wire;

const SIGNALS: u64 = u64::MAX;

/// The token of the first place to listen; the others count down from it. No connection has one of
/// these: its upper half is a generation, which stays below this.
const LISTENER: u64 = u64::MAX - 1;
const LAST_LISTENER: u64 = LISTENER - MAX_LISTENERS as u64;

/// How many connections are accepted before the others get their turn.
const ACCEPT_BATCH: usize = 64;

/// How long accepting pauses when no descriptor is left.
const PAUSE: Duration = Duration::from_millis(100);

/// How long responses under way may take after a signal.
const DRAIN: Duration = Duration::from_secs(5);

/// A place to listen.
#[derive(Debug)]
enum Listener {
    Tcp(TcpListener, Kind),
    Udp(UdpSocket),
}

/// The echo service.
#[derive(Debug)]
pub struct Server {
    listeners: Vec<Listener>,
    tls: Option<Arc<ServerConfig>>,
    world: Rc<World>,
    poll: Poll,
    /// Connections by token; free places are reused, with a new generation each time.
    places: Vec<Place>,
    free: Vec<usize>,
    open: usize,
    /// When connections want to go on: instant, token.
    timers: BinaryHeap<Reverse<(Instant, u64)>>,
    buffer: Vec<u8>,
    accept_again: Option<Instant>,
    stop_by: Option<Instant>,
    /// How long a round is.
    round_lasts: Duration,
    patience: Patience,
    /// Counts the times that connections were looked over.
    round: u32,
    /// When they are the next time, while there are any.
    round_ends: Option<Instant>,
}

#[derive(Debug, Default)]
struct Place {
    generation: u32,
    connection: Option<Connection>,
}

impl Server {
    /// A service that listens nowhere yet. With `tls`, TLS is what its places for HTTP speak.
    pub fn new(
        echo: Setup,
        tls: Option<Arc<ServerConfig>>,
        timeouts: Timeouts,
    ) -> Result<Server, ServeError> {
        Ok(Server {
            listeners: Vec::new(),
            tls,
            world: Rc::new(World {
                echo,
                random: RefCell::new(SmallRng::from_os_rng()),
                date: RefCell::default(),
                request_timeout: timeouts.request,
            }),
            poll: Poll::new(256)?,
            places: Vec::new(),
            free: Vec::new(),
            open: 0,
            timers: BinaryHeap::new(),
            buffer: vec![0; 64 * 1024],
            accept_again: None,
            stop_by: None,
            round_lasts: timeouts.round(),
            patience: timeouts.patience(),
            round: 0,
            round_ends: None,
        })
    }

    /// Listens on an address for connections, up to a thousand in all; port 0 lets the kernel choose.
    /// Returns the address.
    pub fn listen(&mut self, address: SocketAddr, kind: Kind) -> Result<SocketAddr, ServeError> {
        let listener = listen(address).map_err(|source| ServeError::Listen { address, source })?;
        let address = listener.local_addr()?;
        self.add(Listener::Tcp(listener, kind))?;
        Ok(address)
    }

    /// Takes datagrams at an address; port 0 lets the kernel choose. Returns the address.
    pub fn listen_udp(&mut self, address: SocketAddr) -> Result<SocketAddr, ServeError> {
        let socket = bind_udp(address).map_err(|source| ServeError::Listen { address, source })?;
        let address = socket.local_addr()?;
        self.add(Listener::Udp(socket))?;
        Ok(address)
    }

    fn add(&mut self, listener: Listener) -> Result<(), ServeError> {
        if self.listeners.len() == MAX_LISTENERS {
            return Err(ServeError::TooMany);
        }
        self.listeners.push(listener);
        Ok(())
    }

    /// Serves until a signal arrives and the responses under way have left.
    pub fn run(mut self, signals: &mut Signals) -> Result<(), ServeError> {
        self.poll.add_level(&*signals, SIGNALS)?;
        self.watch_listeners()?;
        loop {
            if let Some(stop_by) = self.stop_by
                && (self.open == 0 || Instant::now() >= stop_by)
            {
                return Ok(());
            }
            let count = self.poll.wait(self.next_timeout())?;
            for index in 0..count {
                let ready = self.poll.ready(index);
                match ready.token {
                    SIGNALS => {
                        if signals.arrived() {
                            self.begin_to_stop()?;
                        }
                    }
                    LAST_LISTENER..=LISTENER => self.greet((LISTENER - ready.token) as usize)?,
                    token => self.drive(token, |connection, tools| connection.ready(ready, tools)),
                }
            }
            self.fire_timers();
            self.look_over();
            if self
                .accept_again
                .is_some_and(|again| Instant::now() >= again)
            {
                self.accept_again = None;
                self.watch_listeners()?;
            }
        }
    }

    fn watch_listeners(&self) -> io::Result<()> {
        for (listener, token) in self.listeners.iter().zip((LAST_LISTENER..=LISTENER).rev()) {
            match listener {
                Listener::Tcp(listener, _) => self.poll.add_level(listener, token)?,
                Listener::Udp(socket) => self.poll.add_level(socket, token)?,
            }
        }
        Ok(())
    }

    fn unwatch_listeners(&self) -> io::Result<()> {
        for listener in &self.listeners {
            match listener {
                Listener::Tcp(listener, _) => self.poll.remove(listener)?,
                Listener::Udp(socket) => self.poll.remove(socket)?,
            }
        }
        Ok(())
    }

    /// Takes what has come to a place to listen.
    fn greet(&mut self, index: usize) -> Result<(), ServeError> {
        // An event of this round may be older than the end of its watch.
        if self.stop_by.is_some() || self.accept_again.is_some() {
            return Ok(());
        }
        match self.listeners.get(index) {
            Some(Listener::Udp(socket)) => {
                echo::datagrams(socket, &mut self.buffer);
                Ok(())
            }
            Some(Listener::Tcp(..)) => self.accept(index),
            None => Ok(()),
        }
    }

    fn next_timeout(&self) -> Option<Duration> {
        let timer = self.timers.peek().map(|Reverse((due, _))| *due);
        let next = [timer, self.accept_again, self.stop_by, self.round_ends]
            .into_iter()
            .flatten()
            .min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    fn accept(&mut self, index: usize) -> Result<(), ServeError> {
        for _ in 0..ACCEPT_BATCH {
            let Some(Listener::Tcp(listener, kind)) = self.listeners.get(index) else {
                return Ok(());
            };
            let kind = *kind;
            let socket = match listener.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // The peer gave up between its SYN and now.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::ConnectionAborted | ErrorKind::Interrupted
                    ) =>
                {
                    continue;
                }
                // No descriptor or memory: the waiting connections stay in the kernel's queue.
                Err(_) => {
                    self.unwatch_listeners()?;
                    self.accept_again = Some(Instant::now() + PAUSE);
                    return Ok(());
                }
            };
            if socket.set_nonblocking(true).is_err() {
                continue;
            }
            let place = self.free.pop().unwrap_or_else(|| {
                self.places.push(Place::default());
                self.places.len() - 1
            });
            let token = self.token_of(place);
            if self.poll.add(&socket, token).is_err() {
                self.free.push(place);
                continue;
            }
            let tls = self.tls.as_ref().filter(|_| kind == Kind::Http);
            let Ok(wire) = Wire::new(socket, tls) else {
                self.free.push(place);
                continue;
            };
            self.places[place].connection = Some(Connection::new(wire, kind, self.round));
            self.open += 1;
            if self.round_ends.is_none() {
                self.round_ends = Some(Instant::now() + self.round_lasts);
            }
        }
        Ok(())
    }

    /// Lets a connection act, if it still exists, and does what it wants done next.
    fn drive(&mut self, token: u64, act: impl FnOnce(&mut Connection, &mut Tools<'_>) -> Next) {
        let place = (token & u64::from(u32::MAX)) as usize;
        let Some(entry) = self.places.get_mut(place) else {
            return;
        };
        if u64::from(entry.generation) != token >> 32 {
            return;
        }
        let Some(connection) = entry.connection.as_mut() else {
            return;
        };
        let mut tools = Tools {
            buffer: &mut self.buffer,
            world: &self.world,
            stopping: self.stop_by.is_some(),
            round: self.round,
            patience: self.patience,
        };
        match act(connection, &mut tools) {
            Next::Wait => {}
            Next::WakeAt(due) => self.timers.push(Reverse((due, token))),
            Next::Close => {
                entry.connection = None;
                entry.generation = entry.generation.wrapping_add(1) & 0x7fff_ffff;
                self.free.push(place);
                self.open -= 1;
            }
        }
    }

    fn fire_timers(&mut self) {
        if self.timers.is_empty() {
            return;
        }
        let now = Instant::now();
        while let Some(&Reverse((due, token))) = self.timers.peek()
            && due <= now
        {
            self.timers.pop();
            self.drive(token, |connection, tools| connection.awake(tools));
        }
    }

    /// Begins another round, if it is time.
    fn look_over(&mut self) {
        if self.round_ends.is_none_or(|end| Instant::now() < end) {
            return;
        }
        self.round = self.round.wrapping_add(1);
        for place in 0..self.places.len() {
            let token = self.token_of(place);
            self.drive(token, |connection, tools| connection.look_over(tools));
        }
        self.round_ends = (self.open > 0).then(|| Instant::now() + self.round_lasts);
    }

    fn token_of(&self, place: usize) -> u64 {
        u64::from(self.places[place].generation) << 32 | place as u64
    }

    /// Stops accepting, ends idle connections, and gives the others time to end.
    fn begin_to_stop(&mut self) -> Result<(), ServeError> {
        if self.stop_by.is_some() {
            // A second signal: whoever sends it does not want to wait.
            self.stop_by = Some(Instant::now());
            return Ok(());
        }
        // Whoever has connected already may have asked already.
        let mut before = None;
        while before != Some(self.open) && self.accept_again.is_none() {
            before = Some(self.open);
            (0..self.listeners.len()).try_for_each(|index| self.accept(index))?;
        }
        self.stop_by = Some(Instant::now() + DRAIN);
        if self.accept_again.take().is_none() {
            self.unwatch_listeners()?;
        }
        // Who comes now is refused, not left waiting.
        self.listeners.clear();
        for place in 0..self.places.len() {
            let token = self.token_of(place);
            self.drive(token, |connection, tools| connection.stop(tools));
        }
        Ok(())
    }
}
