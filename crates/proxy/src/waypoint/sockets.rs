//! Options of the TCP connections that a waypoint opens, by which it finds out that a peer has vanished.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use lateen_netns::Keepalive;

/// Keepalive of connections that carry requests to endpoints in plain text. An endpoint that vanishes without a word is given up
/// after 120 s, whether it owes an acknowledgement or an answer. Linux by itself repeats what was not acknowledged for 15 minutes, and
/// waits for an answer for ever. Tunnels find out sooner, by the PINGs of HTTP/2.
const REQUESTS: Keepalive = Keepalive {
    time: Duration::from_secs(30),
    interval: Duration::from_secs(10),
    retries: 9,
};

/// Options of the TCP connections that a waypoint opens: those of node proxies' sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sockets {
    /// TCP keepalive; `None` leaves it off.
    pub keepalive: Option<Keepalive>,
    /// TCP_USER_TIMEOUT as long as keepalive would take.
    pub user_timeout: bool,
}

impl Sockets {
    /// The options of connections that carry requests in plain text.
    ///
    /// The kernel counts the time in which an endpoint reads nothing as one in which it acknowledges nothing. No request waits so
    /// long for its endpoint to read. An application of a relayed connection may, so that one has no such time-out by itself.
    pub(super) fn for_requests(self) -> Self {
        match self.keepalive {
            Some(_) => Self {
                keepalive: Some(REQUESTS),
                user_timeout: true,
            },
            None => self,
        }
    }

    /// Sets them on a connection.
    pub(super) fn set_on(self, stream: &impl AsFd) -> io::Result<()> {
        match self.keepalive {
            Some(keepalive) => keepalive.set_on(stream, self.user_timeout),
            None => Ok(()),
        }
    }
}
