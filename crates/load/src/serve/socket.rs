//! Listening sockets of the service.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

use super::Kind;

/// How long a connection without a packet is taken to be alive, and how often and how many times it is
/// then asked before it is closed.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(60))
    .with_interval(Duration::from_secs(10))
    .with_retries(6);

/// A socket that takes what comes to an address.
pub fn listen(address: SocketAddr, kind: Kind) -> io::Result<Socket> {
    let (form, protocol) = match kind {
        Kind::Http | Kind::Echo => (Type::STREAM, Protocol::TCP),
        Kind::Datagrams => (Type::DGRAM, Protocol::UDP),
    };
    let form = form.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(address), form, Some(protocol))?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    if kind == Kind::Datagrams {
        socket.bind(&address.into())?;
        return Ok(socket);
    }
    socket.set_reuse_address(true)?;
    // Accepted sockets inherit both: fewer system calls per connection.
    socket.set_tcp_nodelay(true)?;
    // A host that is gone sends no goodbye.
    socket.set_tcp_keepalive(&KEEPALIVE)?;
    socket.bind(&address.into())?;
    socket.listen(4096)?;
    Ok(socket)
}
