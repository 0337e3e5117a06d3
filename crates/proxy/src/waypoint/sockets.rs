//! Options of the TCP connections that a waypoint opens, by which it finds out that a peer has vanished.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use lateen_netns::Keepalive;

/// Keepalive of connections that carry requests to endpoints in plain text. An endpoint that vanishes without a word, and owes an answer,
/// is given up after 120 s. Without keepalive it would be waited for without end. Tunnels find out sooner, by the PINGs of HTTP/2.
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
    /// They have no TCP_USER_TIMEOUT by themselves: the kernel counts a closed window as silence, and an endpoint may read late. So Linux
    /// repeats for about 15 minutes what was not acknowledged.
    pub(super) fn for_requests(self) -> Self {
        Self {
            keepalive: self.keepalive.map(|_| REQUESTS),
            ..self
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
