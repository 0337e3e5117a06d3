//! Raw echo: every byte goes back, over TCP here and over UDP below. A peer that does not read is not
//! read from.

use std::io::{ErrorKind, Write};
use std::net::UdpSocket;
use std::time::Instant;

use super::context::{Next, Tools};
use super::wire::Wire;

/// How often one connection is read from before others get their turn.
const TURN: usize = 16;

/// An echo over TCP.
#[derive(Debug, Default)]
pub struct Echo {
    /// Bytes that the peer has not taken yet.
    waiting: Vec<u8>,
    /// The peer sent its last byte.
    ended: bool,
}

impl Echo {
    /// Whether nothing is on its way back.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Sends back what there is.
    pub fn act(&mut self, wire: &mut Wire, tools: &mut Tools<'_>) -> Next {
        for _ in 0..TURN {
            if !self.waiting.is_empty() {
                match write(wire, &self.waiting) {
                    Ok(written) => drop(self.waiting.drain(..written)),
                    Err(_) => return Next::Close,
                }
            }
            match wire.flush() {
                Ok(true) if self.waiting.is_empty() => {}
                Ok(_) => return Next::Wait,
                Err(_) => return Next::Close,
            }
            if self.ended || tools.stopping {
                return Next::Close;
            }
            let count = match wire.read(tools.buffer) {
                Ok(Some(0)) => {
                    self.ended = true;
                    continue;
                }
                Ok(Some(count)) => count,
                Ok(None) => return Next::Wait,
                Err(_) => return Next::Close,
            };
            match write(wire, &tools.buffer[..count]) {
                Ok(written) => self
                    .waiting
                    .extend_from_slice(&tools.buffer[written..count]),
                Err(_) => return Next::Close,
            }
        }
        Next::WakeAt(Instant::now())
    }
}

/// Writes as much as the peer takes.
fn write(wire: &mut Wire, bytes: &[u8]) -> std::io::Result<usize> {
    let mut written = 0;
    while written < bytes.len() {
        match wire.write(&bytes[written..]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => written += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(written)
}

/// Sends datagrams back to where they came from. What cannot be sent is lost, as datagrams are.
pub fn datagrams(socket: &UdpSocket, buffer: &mut [u8]) {
    for _ in 0..TURN {
        match socket.recv_from(buffer) {
            Ok((count, from)) => drop(socket.send_to(&buffer[..count], from)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            // Such as the report that an earlier datagram found nobody.
            Err(_) => {}
        }
    }
}
