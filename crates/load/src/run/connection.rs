//! One connection of a run: dial → TLS → protocol, with a slot for each request that may be under way at once, and a queue for
//! the others.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use bytes::{Buf, Bytes, BytesMut};
use rustls::ClientConnection;
use socket2::{Domain, Protocol as Layer4, Socket, Type};

use super::clock::Clock;
use super::origin::Origin;
use crate::client::{Client, Malformed, Output, Start};
use crate::poll::{Poll, Ready};
use crate::record::{Failure, Timing};
use crate::tls::{self, TlsError};

/// A request that is to be sent; nanoseconds since the run began.
#[derive(Debug, Clone, Copy)]
pub struct Due {
    /// When it was meant to start.
    pub intended: u64,
    /// Which of its origin's requests it is.
    pub request: usize,
}

/// A request under way.
#[derive(Debug, Clone, Copy)]
pub struct Current {
    /// Its instants so far.
    pub timing: Timing,
    request: usize,
    /// Whether the protocol had no room for it when it could have been sent.
    waited: bool,
}

/// The reason why a connection ended before its requests did.
#[derive(Debug, Clone)]
pub struct Fault {
    /// The failure as which its requests are counted.
    pub failure: Failure,
    /// The cause, in words.
    pub detail: String,
}

impl Fault {
    /// A fault of which more is to be said.
    pub fn new(failure: Failure, detail: impl ToString) -> Fault {
        let detail = detail.to_string();
        Fault { failure, detail }
    }
}

impl From<TlsError> for Fault {
    fn from(error: TlsError) -> Fault {
        Fault::new(Failure::Tls, error)
    }
}

impl From<Malformed> for Fault {
    fn from(error: Malformed) -> Fault {
        Fault::new(Failure::Malformed, error)
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        let failure = match error.kind() {
            ErrorKind::ConnectionRefused => Failure::Refused,
            ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe => {
                Failure::Reset
            }
            ErrorKind::TimedOut => Failure::Timeout,
            _ => Failure::Connect,
        };
        Fault::new(failure, error)
    }
}

/// The time that the set-up of a connection took, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub struct SetUp {
    /// From the first packet until requests can be sent.
    pub total: u64,
    /// The part of it that TLS took, if it is spoken.
    pub handshake: Option<u64>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Stage {
    #[default]
    Closed,
    Connecting,
    /// TCP is there since this instant, TLS is not.
    Handshaking(u64),
    Open,
}

/// A connection, open or not.
#[derive(Debug, Default)]
pub struct Connection {
    token: u64,
    /// Its origin.
    pub origin: usize,
    stage: Stage,
    socket: Option<TcpStream>,
    tls: Option<Box<ClientConnection>>,
    client: Option<Box<dyn Client>>,
    /// The bytes that have just come out of TLS.
    plain: Vec<u8>,
    opened_at: u64,
    /// Bytes that the kernel, or TLS, has not taken yet, and the requests that are over.
    pub out: Output,
    slots: Vec<Option<Current>>,
    /// Slots without a request and since when, the longest free first.
    free: VecDeque<(usize, u64)>,
    /// When a request last ended while no other could begin: the free slots were of no use until then.
    drained: u64,
    /// When something last happened, which is what gives the protocol room.
    advanced: u64,
    /// Slots whose request has not been handed to the protocol.
    unstarted: VecDeque<usize>,
    /// The number of requests that may still begin before the connection is replaced.
    left: u64,
    /// Requests that wait for a slot, in order.
    pub queue: VecDeque<Due>,
}

impl Connection {
    /// A connection that is not open, with places for `slots` requests at once.
    pub fn new(token: u64, origin: usize, slots: usize) -> Connection {
        Connection {
            token,
            origin,
            slots: vec![None; slots],
            free: (0..slots).map(|slot| (slot, 0)).collect(),
            ..Connection::default()
        }
    }

    /// Whether the connection exists, perhaps not set up yet.
    pub fn is_open(&self) -> bool {
        self.stage != Stage::Closed
    }

    /// Whether the server has shown that it speaks the protocol.
    pub fn is_established(&self) -> bool {
        let client = self.client.as_ref();
        self.stage == Stage::Open && client.is_some_and(|client| client.is_established())
    }

    /// The cause that may keep a request from being sent.
    pub fn lacks(&self) -> &'static str {
        match self.stage {
            Stage::Closed | Stage::Connecting => {
                "is the address routed from here, and does a policy drop it?"
            }
            Stage::Handshaking(_) => {
                "the server does not go on with the TLS handshake; does it speak TLS on this port?"
            }
            Stage::Open => "the server says nothing; does it speak this protocol?",
        }
    }

    /// The number of requests that may be under way at once.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// The requests under way and their slots.
    pub fn under_way(&self) -> impl Iterator<Item = (usize, Current)> + '_ {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(slot, current)| current.map(|current| (slot, current)))
    }

    /// Whether a request may begin, on a connection that is opened for it if need be.
    pub fn takes(&self) -> bool {
        !self.free.is_empty() && (self.stage == Stage::Closed || !self.is_replaced())
    }

    fn is_replaced(&self) -> bool {
        self.left == 0 || self.client.as_ref().is_some_and(|client| client.is_over())
    }

    /// Whether its last request is over.
    pub fn is_spent(&self) -> bool {
        self.is_open() && self.free.len() == self.slots.len() && self.is_replaced()
    }

    /// Lets no more requests begin on the connection as it is.
    pub fn retire(&mut self) {
        self.left = 0;
    }

    /// Begins to connect, for so many requests.
    pub fn open(
        &mut self,
        origin: &Origin,
        poll: &Poll,
        now: u64,
        requests: u64,
    ) -> Result<(), Fault> {
        self.opened_at = now;
        let socket = dial(origin.address)?;
        let watched = poll.add(&socket, self.token);
        watched.map_err(|error| Fault::new(Failure::Connect, error))?;
        self.socket = Some(socket);
        self.stage = Stage::Connecting;
        self.left = requests;
        Ok(())
    }

    /// Closes the connection, if it is open; its requests stay where they are. The kernel forgets the
    /// watch with the socket.
    pub fn close(&mut self) {
        if self.stage == Stage::Open
            && let (Some(tls), Some(socket)) = (&mut self.tls, &mut self.socket)
        {
            // Otherwise the server would have to take it for an attack.
            tls.send_close_notify();
            let _ = tls::flush(tls, socket);
        }
        self.stage = Stage::Closed;
        (self.socket, self.tls, self.client) = (None, None, None);
        self.out.bytes.clear();
        self.unstarted.clear();
    }

    /// Takes a request, of which [`Connection::takes`] has said that it may begin. It leaves with the
    /// next [`Connection::flush`] once the connection is set up.
    pub fn begin(&mut self, due: Due, now: u64) {
        let Some((slot, since)) = self.free.pop_front() else {
            return;
        };
        let timing = Timing {
            intended: due.intended,
            possible: due.intended.max(since).max(self.drained),
            begun: now.max(due.intended),
            done: 0,
        };
        self.slots[slot] = Some(Current {
            timing,
            request: due.request,
            waited: false,
        });
        self.left = self.left.saturating_sub(1);
        self.unstarted.push_back(slot);
    }

    /// Takes a request that is over out of its slot.
    pub fn finish(&mut self, slot: usize, now: u64) -> Option<Current> {
        let current = self.slots.get_mut(slot)?.take()?;
        self.free.push_back((slot, now));
        self.unstarted.retain(|unstarted| *unstarted != slot);
        if self.is_replaced() {
            self.drained = now;
        }
        Some(current)
    }

    /// Gives a request up. Returns whether the connection can go on.
    pub fn cancel(&mut self, slot: usize) -> bool {
        if self.unstarted.contains(&slot) {
            return self.stage == Stage::Open;
        }
        match &mut self.client {
            Some(client) => client.cancel(slot, &mut self.out),
            None => false,
        }
    }

    /// Sends what waits, as far as the protocol and the kernel take it.
    pub fn flush(&mut self, clock: Clock) -> Result<(), Fault> {
        if self.stage == Stage::Open
            && let Some(client) = &mut self.client
        {
            while client.room() > 0
                && let Some(slot) = self.unstarted.pop_front()
            {
                let Some(current) = &mut self.slots[slot] else {
                    continue;
                };
                // A wait for the server's limits is neither its service nor our lateness.
                if current.waited {
                    let timing = &mut current.timing;
                    timing.begun = clock.now();
                    timing.possible = timing.possible.max(self.advanced.min(timing.begun));
                }
                let start = Start {
                    slot,
                    request: current.request,
                    last: self.left == 0 && self.unstarted.is_empty(),
                };
                client.start(start, &mut self.out);
            }
            for slot in &self.unstarted {
                let current = self.slots[*slot].iter_mut();
                current.for_each(|current| current.waited = true);
            }
        }
        self.send()
    }

    /// Sends what the protocol has put out, as far as the kernel takes it.
    fn send(&mut self) -> Result<(), Fault> {
        let is_connected = matches!(self.stage, Stage::Handshaking(_) | Stage::Open);
        let Some(socket) = self.socket.as_mut().filter(|_| is_connected) else {
            return Ok(());
        };
        if let Some(tls) = &mut self.tls {
            // Bytes that the kernel does not take wait here, where they are seen.
            tls::flush(tls, socket)?;
            if self.stage == Stage::Open && !tls.wants_write() {
                tls.writer().write_all(&self.out.bytes)?;
                self.out.bytes.clear();
            }
            return Ok(tls::flush(tls, socket)?);
        }
        while !self.out.bytes.is_empty() {
            match socket.write(&self.out.bytes) {
                Ok(0) => return Err(Fault::new(Failure::Closed, "the kernel takes no more")),
                Ok(count) => self.out.bytes.advance(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Goes on after something happened: connects, and reads what has arrived. Output waits for
    /// [`Connection::flush`]. `buffer` is scratch space.
    pub fn advance(
        &mut self,
        ready: Ready,
        origin: &Origin,
        now: u64,
        buffer: &mut BytesMut,
    ) -> Result<Option<SetUp>, Fault> {
        self.advanced = now;
        let mut set_up = None;
        if self.stage == Stage::Connecting && ready.writable {
            let socket = self.socket.as_ref().map(TcpStream::take_error);
            if let Some(Ok(Some(error)) | Err(error)) = socket {
                return Err(error.into());
            }
            match &origin.tls {
                Some(connector) => {
                    self.tls = Some(Box::new(connector.session()?));
                    self.stage = Stage::Handshaking(now);
                }
                None => set_up = Some(self.begin_protocol(origin, now)),
            }
        }
        if matches!(self.stage, Stage::Handshaking(_) | Stage::Open) && ready.readable {
            let from_tls = self.receive(origin, ready.ended, now, buffer)?;
            set_up = set_up.or(from_tls);
        }
        Ok(set_up)
    }

    fn begin_protocol(&mut self, origin: &Origin, now: u64) -> SetUp {
        let handshake = match self.stage {
            Stage::Handshaking(since) => Some(now.saturating_sub(since)),
            _ => None,
        };
        self.stage = Stage::Open;
        let mut client = origin.protocol.client();
        client.open(&mut self.out);
        self.client = Some(client);
        SetUp {
            total: now.saturating_sub(self.opened_at),
            handshake,
        }
    }

    fn receive(
        &mut self,
        origin: &Origin,
        ended: bool,
        now: u64,
        buffer: &mut BytesMut,
    ) -> Result<Option<SetUp>, Fault> {
        let mut set_up = None;
        loop {
            let Some(socket) = &mut self.socket else {
                return Ok(set_up);
            };
            let count = match socket.read(buffer) {
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(set_up),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            if count == 0 {
                return self.end().map(|()| set_up);
            }
            if let Some(tls) = &mut self.tls {
                let input = &buffer[..count];
                self.plain.clear();
                if let Err(error) = tls::read(tls, input, &mut self.plain) {
                    // The peer is told why, as far as it still listens.
                    let _ = tls::flush(tls, socket);
                    return Err(error.into());
                }
                if let (Stage::Handshaking(_), Some(connector)) = (self.stage, &origin.tls)
                    && !tls.is_handshaking()
                {
                    connector.check_protocol(tls)?;
                    set_up = Some(self.begin_protocol(origin, now));
                }
                if let Some(client) = &mut self.client
                    && !self.plain.is_empty()
                {
                    let plain = Bytes::from(std::mem::take(&mut self.plain));
                    let heard = client.receive(&plain, now, &mut self.out);
                    self.plain = plain.into();
                    heard?;
                }
            } else if let Some(client) = &mut self.client {
                let out = &mut self.out;
                lend(buffer, count, |input| client.receive(input, now, out))?;
            }
            // A short read has emptied the socket; asking again would cost a system call for
            // nothing. Whatever comes later is an edge of its own.
            if count < buffer.len() && !ended {
                return Ok(set_up);
            }
            // A peer that sends without end must get its answers in between.
            if self.stage == Stage::Open && !ended && !self.out.bytes.is_empty() {
                self.send()?;
            }
        }
    }

    /// The server sent its last byte. That is no fault of a connection without a request: the next
    /// request opens another one, and its latency says what that costs.
    fn end(&mut self) -> Result<(), Fault> {
        if let Some(client) = &mut self.client {
            client.end(&mut self.out);
        }
        self.left = 0;
        // Completions of this reading are still in their slots.
        let completed = |slot: usize| {
            self.out
                .done
                .iter()
                .any(|completion| completion.slot == slot)
        };
        if self.stage == Stage::Open && self.under_way().all(|(slot, _)| completed(slot)) {
            return Ok(());
        }
        let detail = "the server closed the connection before it had answered";
        Err(Fault::new(Failure::Closed, detail))
    }
}

/// Hands the first bytes of a buffer out without a copy, and takes the buffer back. A buffer of which a part is kept is
/// replaced.
fn lend<T>(buffer: &mut BytesMut, count: usize, take: impl FnOnce(&Bytes) -> T) -> T {
    let length = buffer.len();
    let whole = std::mem::take(buffer).freeze();
    let taken = take(&whole.slice(..count));
    *buffer = whole
        .try_into_mut()
        .unwrap_or_else(|_| BytesMut::zeroed(length));
    taken
}

/// Makes a socket and begins to connect it, without waiting.
fn dial(address: SocketAddr) -> io::Result<TcpStream> {
    let form = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(address), form, Some(Layer4::TCP))?;
    // Requests leave in one write each; Nagle's algorithm could only delay them.
    socket.set_tcp_nodelay(true)?;
    let under_way = Some(rustix::io::Errno::INPROGRESS.raw_os_error());
    match socket.connect(&address.into()) {
        Err(error) if error.raw_os_error() != under_way => Err(error),
        _ => Ok(socket.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_of_a_connection_that_takes_nothing_more_is_free_once_it_is_spent() {
        let mut connection = Connection::new(0, 0, 2);
        (connection.stage, connection.left) = (Stage::Open, 2);
        let request = 0;
        let due = |intended| Due { intended, request };
        let possible = |connection: &Connection| -> Vec<u64> {
            let current = connection.under_way();
            current
                .map(|(_, current)| current.timing.possible)
                .collect()
        };
        connection.begin(due(0), 0);
        connection.begin(due(10), 10);
        assert!(connection.finish(0, 100).is_some());
        assert!(!connection.takes(), "it is to be replaced");
        assert!(connection.finish(1, 300).is_some());
        assert!(connection.is_spent());
        connection.close();
        (connection.stage, connection.left) = (Stage::Open, 2);
        connection.begin(due(50), 310);
        connection.begin(due(305), 310);
        assert_eq!(possible(&connection), [300, 305]);
        // On one that goes on, each slot is free for itself.
        connection.left = 2;
        assert!(connection.finish(0, 400).is_some());
        assert!(connection.finish(1, 500).is_some());
        connection.begin(due(350), 510);
        assert_eq!(possible(&connection), [400]);
    }
}
