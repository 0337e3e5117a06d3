//! The byte stream of one connection: a socket, with TLS on it or not, and what is known of its
//! readiness.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::{ServerConfig, ServerConnection};

use crate::poll::Ready;

/// A connection's byte stream. Its socket does not block.
#[derive(Debug)]
pub struct Wire {
    socket: TcpStream,
    tls: Option<Box<ServerConnection>>,
    /// Something may have arrived that was not read.
    readable: bool,
    /// The peer sent its last byte.
    ended: bool,
    /// Nothing arrives at the peer any more.
    broken: bool,
    /// TCP_NODELAY as it is set.
    nodelay: bool,
}

impl Wire {
    /// The stream of a socket that was just accepted from a listener that sets TCP_NODELAY.
    pub fn new(socket: TcpStream, tls: Option<&Arc<ServerConfig>>) -> Result<Wire, rustls::Error> {
        let tls = tls
            .map(|config| ServerConnection::new(Arc::clone(config)).map(Box::new))
            .transpose()?;
        Ok(Wire {
            socket,
            tls,
            readable: false,
            ended: false,
            broken: false,
            nodelay: true,
        })
    }

    /// Something happened to the socket.
    pub fn note(&mut self, ready: Ready) {
        self.readable |= ready.readable;
        self.ended |= ready.ended;
        self.broken |= ready.broken;
    }

    /// Looks again whether something has arrived that no event has told of yet.
    pub fn look_again(&mut self) {
        self.readable = true;
    }

    /// Whether the peer sent its last byte.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether nothing that is sent arrives any more.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Whether TLS is not set up yet.
    pub fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// Sets TCP_NODELAY, if it is not so yet.
    pub fn set_nodelay(&mut self, nodelay: bool) {
        if nodelay != self.nodelay && self.socket.set_nodelay(nodelay).is_ok() {
            self.nodelay = nodelay;
        }
    }

    /// Reads what there is: `None` where nothing is for now, `Some(0)` at the end.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            if let Some(tls) = &mut self.tls {
                match tls.reader().read(buffer) {
                    Ok(count) => return Ok(Some(count)),
                    // Without a goodbye; HTTP's framing tells whether something is missing.
                    Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(Some(0)),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
            if !self.readable {
                return Ok(None);
            }
            let outcome = match &mut self.tls {
                Some(tls) => tls.read_tls(&mut self.socket),
                None => self.socket.read(buffer),
            };
            let count = match outcome {
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.readable = false;
                    return Ok(None);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let Some(tls) = &mut self.tls else {
                // A short read has emptied the socket; a later byte is an event of its own. But the
                // end of the stream, once reported, is not reported again.
                self.readable = count == buffer.len() || count == 0 || self.ended;
                return Ok(Some(count));
            };
            if let Err(error) = tls.process_new_packets() {
                // The alert says to the peer what was wrong.
                let _ = self.flush();
                return Err(io::Error::new(ErrorKind::InvalidData, error));
            }
            self.flush()?;
        }
    }

    /// Sends what TLS holds back. Returns whether nothing is left.
    pub fn flush(&mut self) -> io::Result<bool> {
        let Some(tls) = &mut self.tls else {
            return Ok(true);
        };
        while tls.wants_write() {
            match tls.write_tls(&mut self.socket) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Says that nothing follows, as far as that can be said at once.
    pub fn say_goodbye(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            let _ = self.flush();
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    /// Under TLS every write is sent at once in records of its own, so that `writes` of a request
    /// means the same there.
    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        if !Wire::flush(self)? {
            return Err(ErrorKind::WouldBlock.into());
        }
        let Some(tls) = &mut self.tls else {
            return self.socket.write_vectored(pieces);
        };
        let count = tls.writer().write_vectored(pieces)?;
        Wire::flush(self)?;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        match Wire::flush(self)? {
            true => Ok(()),
            false => Err(ErrorKind::WouldBlock.into()),
        }
    }
}
