//! The parameters of a tunnel, with the values that the mesh's other proxies use.

use std::time::Duration;

use crate::budget::Budget;
use crate::send_buffer::SendBudget;

/// What a tunnel offers its peer and asks of it. The defaults are Istio's, but for windows and frames.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Most bytes that a peer may send on one stream before we read them (RFC 9113 §6.9.2), up to 2^31-1. It begins with
    /// 64 KiB and grows with what the path carries.
    /// A stream carries at most this much in a round trip: 1 MiB is 1 GiB/s at 1 ms and 10 MiB/s at 100 ms.
    pub stream_window: u32,
    /// Most bytes of the same for the whole connection. It starts at 64 KiB and, while the peer uses it up, becomes what
    /// the path carries beyond what nobody has read, at most
    /// [`Settings::stream_window`] for every accepted stream, as far as [`Settings::budget`] grants.
    /// Beyond that, streams that nobody reads stall the other streams of their tunnel.
    pub connection_window: u32,
    /// The budget that grants the windows of all tunnels. Clones of the settings share it; a tunnel whose ends are known is charged
    /// to both, see [`Budget::between`].
    pub budget: Budget,
    /// Largest frame that we accept, 2^14 to 2^24-1 bytes. A tunnel's read buffer is as large as the
    /// largest frame that comes; 256 KiB is the most that a relay reads at a time.
    pub max_frame: u32,
    /// Largest header list that we accept, in bytes.
    pub max_header_list: u32,
    /// Streams that a server lets a peer have open at once.
    pub max_streams: u32,
    /// Bytes of one stream that may wait here for the connection to take them.
    pub send_buffer: usize,
    /// The same for all streams of a tunnel, at least 64 KiB: a peer that does not read makes applications wait.
    pub tunnel_send_buffer: usize,
    /// The same for all tunnels. Clones of the settings share it.
    pub send_budget: SendBudget,
    /// Time between a PING's answer and the next PING. What the HTTP/2 layer itself does seldom has this tick too.
    pub ping_interval: Duration,
    /// Time after which an unanswered PING means that the peer is gone, unless it sends, or takes what is sent.
    pub ping_timeout: Duration,
    /// Time after which a tunnel without streams closes; `None` keeps it.
    pub idle_timeout: Option<Duration>,
    /// A client's tunnel that had no stream for this long is asked with a PING whether it still leads anywhere,
    /// together with the request that wants to use it; so is one on which nothing came for this long while a request
    /// waits for its answer.
    pub probe_after: Duration,
    /// Time after which such a PING, and nothing else from the peer, means that the tunnel is dead: its requests
    /// go to a new one. Streams that were accepted on it have until [`Settings::ping_timeout`].
    pub probe_timeout: Duration,
}

impl Settings {
    /// What a client uses: 16 KiB of headers, idle for five minutes at most.
    pub fn client() -> Self {
        Settings {
            max_header_list: 16 * 1024,
            idle_timeout: Some(Duration::from_secs(300)),
            ..Settings::server()
        }
    }

    /// What a server uses: 64 KiB of headers, 200 streams.
    pub fn server() -> Self {
        Settings {
            stream_window: 1024 * 1024,
            connection_window: 16 * 1024 * 1024,
            budget: Budget::default(),
            max_frame: 256 * 1024,
            max_header_list: 64 * 1024,
            max_streams: 200,
            send_buffer: 256 * 1024,
            tunnel_send_buffer: 4 * 1024 * 1024,
            send_budget: SendBudget::default(),
            ping_interval: Duration::from_secs(10),
            ping_timeout: Duration::from_secs(20),
            idle_timeout: None,
            probe_after: Duration::from_secs(5),
            probe_timeout: Duration::from_secs(3),
        }
    }
}
