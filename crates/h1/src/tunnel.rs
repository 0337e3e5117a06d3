//! A connection behind an accepted protocol switch or CONNECT, which carries no messages any more.

use bytes::Bytes;

use crate::output::Output;

/// The bytes of another protocol (RFC 9110 §7.8, §9.3.6).
///
/// A server's `into_tunnel` makes it behind status 101 or a successful answer to CONNECT, and so does a client's. Input that
/// came before the answer stays with the caller and is read here first.
#[derive(Debug)]
pub struct Tunnel {
    /// It may still hold the answer that made the tunnel.
    output: Output,
}

impl Tunnel {
    pub(crate) fn new(output: Output) -> Self {
        Tunnel { output }
    }

    /// Takes all of `input`, as bytes of the other protocol.
    pub fn receive(&mut self, input: &mut Bytes) -> Bytes {
        std::mem::take(input)
    }

    /// Writes bytes of the other protocol.
    pub fn send(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.output.payload(bytes);
        }
    }

    /// Bytes to write, in order.
    pub fn output(&self) -> impl Iterator<Item = &[u8]> {
        self.output.pieces()
    }

    /// Says that so many bytes of the output were written.
    pub fn advance(&mut self, bytes: usize) {
        self.output.advance(bytes);
    }

    /// Bytes that wait to be written.
    pub fn queued(&self) -> usize {
        self.output.len()
    }

    /// Gives memory back if nothing waits.
    pub fn rest(&mut self) {
        self.output.rest();
    }
}
