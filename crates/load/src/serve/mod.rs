//! The compiled echo service: an HTTP/1.1 server in one thread that answers as the query asks. It
//! stands in for applications, so it must cost little and behave well or badly on demand.

mod connection;
mod params;
mod response;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::SmallRng;
use socket2::{Domain, Protocol, Socket, Type};

use crate::poll::Poll;
use crate::signals::Signals;
use connection::{Connection, Next};

const LISTENER: u64 = u64::MAX;
const SIGNALS: u64 = u64::MAX - 1;

/// How many connections are accepted before the others get their turn.
const ACCEPT_BATCH: usize = 64;

/// How long accepting pauses when no descriptor is left.
const PAUSE: Duration = Duration::from_millis(100);

/// How long responses under way may take after a signal.
const DRAIN: Duration = Duration::from_secs(5);

/// Why the service cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is not to be had.
    #[error(
        "listen on {address}: {source}; is the port taken, and is the address one of this host?"
    )]
    Listen {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel refused something that the event loop cannot do without.
    #[error("event loop: {0}")]
    Loop(#[from] io::Error),
}

/// The echo service.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    poll: Poll,
    /// Connections by token; free places are reused, with a new generation each time.
    places: Vec<Place>,
    free: Vec<usize>,
    open: usize,
    /// When delayed responses are due: instant, token.
    timers: BinaryHeap<Reverse<(Instant, u64)>>,
    random: SmallRng,
    buffer: Vec<u8>,
    accept_again: Option<Instant>,
    stop_by: Option<Instant>,
}

#[derive(Debug, Default)]
struct Place {
    generation: u32,
    connection: Option<Connection>,
}

impl Server {
    /// Listens on an address; port 0 lets the kernel choose.
    pub fn bind(address: SocketAddr) -> Result<Server, ServeError> {
        let listener = listen(address).map_err(|source| ServeError::Listen { address, source })?;
        Ok(Server {
            listener,
            poll: Poll::new(256)?,
            places: Vec::new(),
            free: Vec::new(),
            open: 0,
            timers: BinaryHeap::new(),
            random: SmallRng::from_os_rng(),
            buffer: vec![0; 64 * 1024],
            accept_again: None,
            stop_by: None,
        })
    }

    /// The address that it listens on.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until a signal arrives and the responses under way have left.
    pub fn run(mut self, signals: &mut Signals) -> Result<(), ServeError> {
        self.poll.add_level(&*signals, SIGNALS)?;
        self.poll.add_level(&self.listener, LISTENER)?;
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
                    LISTENER => self.accept()?,
                    SIGNALS => {
                        if signals.arrived() {
                            self.begin_to_stop()?;
                        }
                    }
                    token => self.drive(token, |connection, tools| connection.ready(ready, tools)),
                }
            }
            self.fire_timers();
            if self
                .accept_again
                .is_some_and(|again| Instant::now() >= again)
            {
                self.accept_again = None;
                self.poll.add_level(&self.listener, LISTENER)?;
            }
        }
    }

    fn next_timeout(&self) -> Option<Duration> {
        let timer = self.timers.peek().map(|Reverse((due, _))| *due);
        let next = [timer, self.accept_again, self.stop_by]
            .into_iter()
            .flatten()
            .min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    fn accept(&mut self) -> Result<(), ServeError> {
        for _ in 0..ACCEPT_BATCH {
            let socket = match self.listener.accept() {
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
                    self.poll.remove(&self.listener)?;
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
            let token = u64::from(self.places[place].generation) << 32 | place as u64;
            if self.poll.add(&socket, token).is_err() {
                self.free.push(place);
                continue;
            }
            self.places[place].connection = Some(Connection::new(socket));
            self.open += 1;
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
            random: &mut self.random,
            stopping: self.stop_by.is_some(),
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
            self.drive(token, |connection, tools| connection.delay_over(tools));
        }
    }

    /// Stops accepting, ends idle connections, and gives the others time to end.
    fn begin_to_stop(&mut self) -> Result<(), ServeError> {
        if self.stop_by.is_some() {
            // A second signal: whoever sends it does not want to wait.
            self.stop_by = Some(Instant::now());
            return Ok(());
        }
        self.stop_by = Some(Instant::now() + DRAIN);
        if self.accept_again.take().is_none() {
            self.poll.remove(&self.listener)?;
        }
        for place in 0..self.places.len() {
            let token = u64::from(self.places[place].generation) << 32 | place as u64;
            self.drive(token, |connection, _| {
                if connection.is_idle() {
                    Next::Close
                } else {
                    Next::Wait
                }
            });
        }
        Ok(())
    }
}

/// What connections share.
#[derive(Debug)]
struct Tools<'a> {
    buffer: &'a mut [u8],
    random: &'a mut SmallRng,
    stopping: bool,
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM.nonblocking().cloexec(),
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    // Accepted sockets inherit it: one system call less per connection.
    socket.set_tcp_nodelay(true)?;
    socket.bind(&address.into())?;
    socket.listen(4096)?;
    Ok(socket.into())
}
