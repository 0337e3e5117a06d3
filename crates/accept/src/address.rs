//! Addresses of accepted connections.

use std::net::SocketAddr;

/// IPv4 addresses that an IPv6 socket reports as `::ffff:a.b.c.d`, as the IPv4 addresses that they are.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
