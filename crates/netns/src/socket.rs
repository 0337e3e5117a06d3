//! Sockets in pods: the options that they carry, and the original destination of a redirected connection.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use lateen_accept::canonical;
use lateen_os::set_option;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::options::Options;

/// How many connections may wait for `accept` on one listener; the kernel caps it at `net.core.somaxconn`.
pub(crate) const BACKLOG: i32 = 4096;

/// What a socket is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// IPv4, marked as the proxy's own.
    Outbound,
    /// IPv4, marked, and may bind addresses that are not the pod's: towards the application, from the client's address.
    Transparent,
    /// As `Outbound`, for IPv6.
    Outbound6,
    /// As `Transparent`, for IPv6.
    Transparent6,
    /// UDP over IPv4, marked as the proxy's own.
    Datagram,
    /// As `Datagram`, for IPv6.
    Datagram6,
}

/// Makes a socket without options. Call inside the pod's namespace.
pub(crate) fn bare(kind: Kind) -> io::Result<Socket> {
    match kind {
        Kind::Outbound6 | Kind::Transparent6 => stream(Domain::IPV6),
        Kind::Outbound | Kind::Transparent => stream(Domain::IPV4),
        Kind::Datagram6 => datagram(Domain::IPV6),
        Kind::Datagram => datagram(Domain::IPV4),
    }
}

/// Gives a bare socket what connections of this kind need.
pub(crate) fn finish(socket: Socket, kind: Kind, options: &Options) -> io::Result<OwnedFd> {
    match kind {
        Kind::Datagram | Kind::Datagram6 => mark(&socket, options)?,
        _ => dress(&socket, options)?,
    }
    match kind {
        // Either option alone lets it bind any address: IP_FREEBIND besides would be a call for nothing.
        Kind::Transparent => {
            socket.set_ip_transparent_v4(true)?;
            leave_unpaced(&socket);
            leave_port_to_connect(&socket)?;
        }
        Kind::Transparent6 => {
            set_option(&socket, libc::IPPROTO_IPV6, libc::IPV6_TRANSPARENT, 1)?;
            leave_unpaced(&socket);
            leave_port_to_connect(&socket)?;
        }
        Kind::Outbound | Kind::Outbound6 | Kind::Datagram | Kind::Datagram6 => {}
    }
    Ok(socket.into())
}

pub(crate) fn datagram(domain: Domain) -> io::Result<Socket> {
    Socket::new(
        domain,
        Type::DGRAM.nonblocking().cloexec(),
        Some(Protocol::UDP),
    )
}

pub(crate) fn stream(domain: Domain) -> io::Result<Socket> {
    Socket::new(
        domain,
        Type::STREAM.nonblocking().cloexec(),
        Some(Protocol::TCP),
    )
}

pub(crate) fn mark(socket: &Socket, options: &Options) -> io::Result<()> {
    socket.set_mark(options.mark).map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("set SO_MARK: {error}; the proxy needs CAP_NET_ADMIN"),
        )
    })
}

pub(crate) fn dress(socket: &Socket, options: &Options) -> io::Result<()> {
    mark(socket, options)?;
    socket.set_tcp_nodelay(true)?;
    if let Some(keepalive) = options.keepalive {
        keepalive.set_on(socket, options.user_timeout)?;
    }
    Ok(())
}

/// Has a connection to an application of the pod sent as fast as it is written. Both ends are in one network namespace, and
/// no link between them can be congested; yet a congestion control that paces, such as a node's default of BBR, sends a
/// large write in packets of 64 KiB with a timer before each, and each wakes the reader. Reno paces nothing, and every kernel
/// has it. Where it is refused all the same, the connection works as the node would have it.
pub(crate) fn leave_unpaced(socket: &Socket) {
    let _ = socket.set_tcp_congestion(b"reno");
}

/// Binding an address then takes no port yet. One taken by `bind` serves a single connection, so that one client would
/// have no more connections to a pod than there are ephemeral ports, over all of its destinations; one taken by `connect`
/// must differ only among connections to the same address and port. ip(7): the option covers IPv6 as well.
fn leave_port_to_connect(socket: &Socket) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)
}

/// Where the peer of a redirected connection wanted to go (SO_ORIGINAL_DST of netfilter's REDIRECT).
///
/// A connection that was not redirected has no such entry: the error is `NotFound`, and the local address is the
/// destination.
pub fn original_destination(stream: &impl AsFd) -> io::Result<SocketAddr> {
    let socket = SockRef::from(stream);
    // A dual-stack listener accepts IPv4 connections on IPv6 sockets: the socket's family does not say which to ask.
    let address = socket
        .original_dst_v4()
        .or_else(|_| socket.original_dst_v6())?;
    let address = address.as_socket().ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "the original destination is no IP address",
        )
    })?;
    Ok(canonical(address))
}
