//! The byte stream to an endpoint: a stream of a tunnel, or a TCP connection.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use lateen_hbone::Carrier;
use lateen_telemetry::Party;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

#[cfg(feature = "measured")]
use crate::waypoint::memory::Memory;

/// The bytes of a connection to an endpoint.
#[derive(Debug)]
pub enum Wire {
    /// Through a tunnel.
    Tunnel(lateen_hbone::Stream),
    /// Through a tunnel inside a tunnel, to an endpoint that the gateway of another network chose.
    Inner(lateen_hbone::Stream, Rc<FarEnd>),
    /// In plain text, to an endpoint that speaks no tunnel.
    Plain(TcpStream),
    /// In memory.
    #[cfg(feature = "measured")]
    Memory(Memory),
}

/// The endpoint behind the gateway of another network.
#[derive(Debug)]
pub struct FarEnd {
    /// The endpoint's description of itself, with the identity that it proved.
    pub party: Party,
    /// The number by which counters of the party are found.
    pub number: u32,
    /// The tunnel to the gateway.
    pub outer: Carrier,
}

/// The tunnels that a connection is in: none in plain text, and two through the gateway of another network.
#[derive(Clone, Debug, Default)]
pub(super) struct Tunnels([Option<Carrier>; 2]);

impl Tunnels {
    /// True if one of them takes no more streams. Its peer ends it sooner or later, and the connection with it: further requests
    /// might be lost.
    pub(super) fn are_leaving(&self) -> bool {
        self.0.iter().flatten().any(Carrier::is_leaving)
    }
}

/// The facts of an endpoint that a connection to it brings.
#[derive(Clone, Debug)]
pub enum Ends {
    /// The addresses of a connection in plain text.
    Addresses {
        /// The waypoint's address.
        local: SocketAddr,
        /// The endpoint's address.
        remote: SocketAddr,
    },
    /// The endpoint that a gateway chose for the connection.
    Chosen(Rc<FarEnd>),
}

impl Wire {
    /// The facts of the endpoint that the connection brings. A stream of a tunnel brings none.
    pub(super) fn ends(&self) -> Option<Ends> {
        match self {
            Self::Tunnel(_) => None,
            Self::Inner(_, far_end) => Some(Ends::Chosen(Rc::clone(far_end))),
            Self::Plain(stream) => Some(Ends::Addresses {
                local: stream.local_addr().ok()?,
                remote: stream.peer_addr().ok()?,
            }),
            #[cfg(feature = "measured")]
            Self::Memory(_) => None,
        }
    }

    /// True if nothing can come, because others that nobody reads keep the window of its tunnel.
    pub(super) fn is_held_up(&self) -> bool {
        match self {
            Self::Tunnel(stream) | Self::Inner(stream, _) => stream.is_held_up(),
            Self::Plain(_) => false,
            #[cfg(feature = "measured")]
            Self::Memory(_) => false,
        }
    }

    /// The tunnels that the connection is in.
    pub(super) fn tunnels(&self) -> Tunnels {
        match self {
            Self::Tunnel(stream) => Tunnels([Some(stream.carrier()), None]),
            Self::Inner(stream, far_end) => {
                Tunnels([Some(stream.carrier()), Some(far_end.outer.clone())])
            }
            Self::Plain(_) => Tunnels::default(),
            #[cfg(feature = "measured")]
            Self::Memory(_) => Tunnels::default(),
        }
    }

    /// See [`Tunnels::are_leaving`].
    pub(super) fn is_leaving(&self) -> bool {
        match self {
            Self::Tunnel(stream) => stream.is_leaving(),
            Self::Inner(stream, far_end) => stream.is_leaving() || far_end.outer.is_leaving(),
            Self::Plain(_) => false,
            #[cfg(feature = "measured")]
            Self::Memory(_) => false,
        }
    }

    /// The endpoint that a gateway chose.
    pub(in crate::waypoint) fn far_end(&self) -> Option<&Rc<FarEnd>> {
        match self {
            Self::Inner(_, far_end) => Some(far_end),
            _ => None,
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
            Self::Tunnel(stream) | Self::Inner(stream, _) => Pin::new(stream).poll_read(cx, buffer),
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
            Self::Tunnel(stream) | Self::Inner(stream, _) => Pin::new(stream).poll_write(cx, bytes),
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
            Self::Tunnel(stream) | Self::Inner(stream, _) => {
                Pin::new(stream).poll_write_vectored(cx, pieces)
            }
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),
            #[cfg(feature = "measured")]
            Self::Memory(memory) => Pin::new(memory).poll_write_vectored(cx, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tunnel(stream) | Self::Inner(stream, _) => stream.is_write_vectored(),
            Self::Plain(stream) => stream.is_write_vectored(),
            #[cfg(feature = "measured")]
            Self::Memory(memory) => memory.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tunnel(stream) | Self::Inner(stream, _) => Pin::new(stream).poll_flush(cx),
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            #[cfg(feature = "measured")]
            Self::Memory(memory) => Pin::new(memory).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tunnel(stream) | Self::Inner(stream, _) => Pin::new(stream).poll_shutdown(cx),
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            #[cfg(feature = "measured")]
            Self::Memory(memory) => Pin::new(memory).poll_shutdown(cx),
        }
    }
}
