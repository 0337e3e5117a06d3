//! One connection of a run: at most one request on it at a time, the ones due meanwhile in a queue.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use socket2::{Domain, Protocol, Socket, Type};

use crate::http::{Response, ResponseParser};
use crate::poll::{Poll, Ready};
use crate::record::Failure;

/// A connection, open or not.
#[derive(Debug)]
pub struct Connection {
    token: u64,
    socket: Option<TcpStream>,
    connected: bool,
    /// When connecting began; nanoseconds since the run began.
    pub opened_at: u64,
    /// Bytes of the request that the kernel has taken.
    written: usize,
    parser: ResponseParser,
    /// The request under way.
    pub current: Option<Current>,
    /// Intended starts of the requests that wait for this one, in order.
    pub queue: VecDeque<u64>,
    /// When the last request on it was over.
    pub free_since: u64,
}

/// A request under way; nanoseconds since the run began.
#[derive(Debug, Clone, Copy)]
pub struct Current {
    /// When it was meant to start.
    pub intended: u64,
    /// When it could have been sent.
    pub possible: u64,
    /// When it was sent, or connecting for it began.
    pub begun: u64,
}

/// What became of a connection's request when the connection was driven on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Nothing yet.
    Waiting,
    /// It was answered.
    Answered(Response),
    /// It failed, and the connection is closed.
    Failed(Failure),
}

impl Connection {
    /// A connection that is not open.
    pub fn new(token: u64) -> Connection {
        Connection {
            token,
            socket: None,
            connected: false,
            opened_at: 0,
            written: 0,
            parser: ResponseParser::default(),
            current: None,
            queue: VecDeque::new(),
            free_since: 0,
        }
    }

    /// Whether the connection exists, perhaps not set up yet.
    pub fn is_open(&self) -> bool {
        self.socket.is_some()
    }

    /// Whether the connection is set up.
    pub fn is_connected(&self) -> bool {
        self.connected
    }

    /// Begins to connect.
    pub fn open(&mut self, address: SocketAddr, poll: &Poll, now: u64) -> Result<(), Failure> {
        self.close();
        self.opened_at = now;
        let socket = dial(address).map_err(|error| failure_of(&error))?;
        poll.add(&socket, self.token)
            .map_err(|_| Failure::Connect)?;
        self.socket = Some(socket);
        Ok(())
    }

    /// Closes the connection, if it is open. The kernel forgets the watch with the socket.
    pub fn close(&mut self) {
        self.socket = None;
        self.connected = false;
        self.written = 0;
        self.parser = ResponseParser::default();
    }

    /// Goes on with connecting after something happened. Returns whether that completed the set-up.
    pub fn advance_connect(&mut self, ready: Ready) -> Result<bool, Failure> {
        let Some(socket) = self.socket.as_ref().filter(|_| !self.connected) else {
            return Ok(false);
        };
        if !ready.writable {
            return Ok(false);
        }
        match socket.take_error() {
            Ok(None) => {
                self.connected = true;
                Ok(true)
            }
            Ok(Some(error)) | Err(error) => {
                self.close();
                Err(failure_of(&error))
            }
        }
    }

    /// Sends what is left of the request.
    pub fn send(&mut self, request: &[u8]) -> Progress {
        let Some(socket) = self.socket.as_mut().filter(|_| self.connected) else {
            return Progress::Waiting;
        };
        while self.written < request.len() {
            match socket.write(&request[self.written..]) {
                Ok(0) => return self.fail(Failure::Closed),
                Ok(count) => self.written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return self.fail(failure_of(&error)),
            }
        }
        Progress::Waiting
    }

    /// Reads what has arrived. `buffer` is scratch space.
    pub fn receive(&mut self, ended: bool, buffer: &mut [u8]) -> Progress {
        let Some(socket) = self.socket.as_mut().filter(|_| self.connected) else {
            return Progress::Waiting;
        };
        loop {
            let count = match socket.read(buffer) {
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Progress::Waiting,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return self.fail(failure_of(&error)),
            };
            if self.current.is_none() {
                // The server closed an idle connection, or speaks without being asked. The next
                // request opens another one, and its latency says what that costs.
                self.close();
                return Progress::Waiting;
            }
            if count == 0 {
                let response = self.parser.finish();
                self.close();
                return response.map_or(Progress::Failed(Failure::Closed), Progress::Answered);
            }
            match self.parser.feed(&buffer[..count]) {
                Ok(None) => {}
                Ok(Some((response, used))) => {
                    if used < count {
                        return self.fail(Failure::Malformed);
                    }
                    self.written = 0;
                    if ended || !response.reusable {
                        self.close();
                    }
                    return Progress::Answered(response);
                }
                Err(_) => return self.fail(Failure::Malformed),
            }
            // A short read has emptied the socket; asking again would cost a system call for
            // nothing. Whatever comes later is an edge of its own.
            if count < buffer.len() && !ended {
                return Progress::Waiting;
            }
        }
    }

    fn fail(&mut self, failure: Failure) -> Progress {
        self.close();
        Progress::Failed(failure)
    }
}

/// Makes a socket and begins to connect it, without waiting.
fn dial(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM.nonblocking().cloexec(),
        Some(Protocol::TCP),
    )?;
    // Requests leave in one write each; Nagle's algorithm could only delay them.
    socket.set_tcp_nodelay(true)?;
    match socket.connect(&address.into()) {
        Ok(()) => {}
        Err(error)
            if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
        Err(error) => return Err(error),
    }
    Ok(socket.into())
}

fn failure_of(error: &io::Error) -> Failure {
    match error.kind() {
        ErrorKind::ConnectionRefused => Failure::Refused,
        ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe => {
            Failure::Reset
        }
        ErrorKind::TimedOut => Failure::Timeout,
        _ => Failure::Connect,
    }
}
