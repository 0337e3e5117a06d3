//! Options of the sockets that the proxy makes in pods.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use lateen_types::ports;
use socket2::{SockRef, TcpKeepalive};

/// Packets with this mark are the proxy's own and escape redirection (ztunnel's PACKET_MARK).
pub const DEFAULT_MARK: u32 = 0x539;

/// What every socket that the proxy makes in a pod is set up with.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// SO_MARK of every socket; the in-pod rules let marked packets pass.
    pub mark: u32,
    /// Listen on IPv6 too, where the pod has it.
    pub ipv6: bool,
    /// SO_REUSEPORT on listeners, so that a new process can bind before the old one stops.
    pub reuse_port: bool,
    /// TCP keepalive; `None` leaves it off.
    pub keepalive: Option<Keepalive>,
    /// End a connection whose data stays unacknowledged for as long as keepalive would take.
    pub user_timeout: bool,
    /// Where the pod's DNS queries arrive; `None`: no sockets for them.
    pub dns: Option<DnsAt>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mark: DEFAULT_MARK,
            ipv6: false,
            reuse_port: true,
            keepalive: Some(Keepalive::default()),
            user_timeout: false,
            dns: None,
        }
    }
}

/// TCP keepalive of accepted and opened connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Silence before the first probe.
    pub time: Duration,
    /// Between probes.
    pub interval: Duration,
    /// Unanswered probes before the connection is given up.
    pub retries: u32,
}

impl Default for Keepalive {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(180),
            interval: Duration::from_secs(180),
            retries: 9,
        }
    }
}

impl Keepalive {
    /// Silence of the peer after which a connection is given up.
    fn user_timeout(&self) -> Duration {
        self.time + self.interval * self.retries
    }

    /// Sets it on a TCP socket. With `user_timeout` the connection also ends when its data stays unacknowledged for as long as keepalive
    /// would take (TCP_USER_TIMEOUT). The kernel counts the time in which the peer's window is closed, too.
    ///
    /// # Errors
    /// The socket is no TCP socket, or its connection is gone.
    pub fn set_on(&self, socket: &impl AsFd, user_timeout: bool) -> io::Result<()> {
        let socket = SockRef::from(socket);
        socket.set_tcp_keepalive(
            &TcpKeepalive::new()
                .with_time(self.time)
                .with_interval(self.interval)
                .with_retries(self.retries),
        )?;
        if user_timeout {
            socket.set_tcp_user_timeout(Some(self.user_timeout()))?;
        }
        Ok(())
    }
}

/// Where in a pod DNS queries arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnsAt {
    /// On this port of `127.0.0.1`, and of `::1` where the options and the pod have IPv6.
    Localhost(u16),
    /// On this address alone.
    Exactly(SocketAddr),
}

impl Default for DnsAt {
    /// Where Istio's rules redirect to.
    fn default() -> Self {
        Self::Localhost(ports::DNS)
    }
}
