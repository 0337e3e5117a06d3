//! The byte stream to an endpoint: a stream of a tunnel, or a TCP connection.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

#[cfg(feature = "measured")]
use crate::waypoint::memory::Memory;

/// The bytes of a connection to an endpoint.
#[derive(Debug)]
pub enum Wire {
    /// Through a tunnel.
    Tunnel(lateen_hbone::Stream),
    /// In plain text, to an endpoint that speaks no tunnel.
    Plain(TcpStream),
    /// In memory.
    #[cfg(feature = "measured")]
    Memory(Memory),
}

/// The addresses of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// Our own.
    pub local: SocketAddr,
    /// The endpoint's.
    pub remote: SocketAddr,
}

impl Wire {
    /// The addresses of a connection in plain text. A stream of a tunnel has none of its own.
    pub(super) fn ends(&self) -> Option<Ends> {
        match self {
            Self::Tunnel(_) => None,
            Self::Plain(stream) => Some(Ends {
                local: stream.local_addr().ok()?,
                remote: stream.peer_addr().ok()?,
            }),
            #[cfg(feature = "measured")]
            Self::Memory(_) => None,
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tunnel(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            #[cfg(feature = "measured")]
            Self::Memory(memory) => Pin::new(memory).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tunnel(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            #[cfg(feature = "measured")]
            Self::Memory(memory) => Pin::new(memory).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tunnel(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),
            #[cfg(feature = "measured")]
            Self::Memory(memory) => Pin::new(memory).poll_write_vectored(cx, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tunnel(stream) => stream.is_write_vectored(),
            Self::Plain(stream) => stream.is_write_vectored(),
            #[cfg(feature = "measured")]
            Self::Memory(memory) => memory.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tunnel(stream) => Pin::new(stream).poll_flush(cx),
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            #[cfg(feature = "measured")]
            Self::Memory(memory) => Pin::new(memory).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tunnel(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            #[cfg(feature = "measured")]
            Self::Memory(memory) => Pin::new(memory).poll_shutdown(cx),
        }
    }
}
