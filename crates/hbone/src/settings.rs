//! The parameters of a tunnel, with the values that the mesh's other proxies use.

use std::time::Duration;

/// What a tunnel offers its peer and asks of it. The defaults are Istio's.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Bytes that a peer may send on one stream before we read them (RFC 9113 §6.9.2), up to 2^31-1.
    pub stream_window: u32,
    /// The same for the whole connection; grows by [`Settings::stream_window`] for every open stream,
    /// so that streams nobody reads stall themselves and not their neighbours.
    pub connection_window: u32,
    /// Largest frame that we accept, 2^14 to 2^24-1 bytes.
    pub max_frame: u32,
    /// Largest header list that we accept, in bytes.
    pub max_header_list: u32,
    /// Streams that a server lets a peer have open at once.
    pub max_streams: u32,
    /// Bytes of one stream that may wait here for the connection to take them.
    pub send_buffer: usize,
    /// Time between a PING's answer and the next PING.
    pub ping_interval: Duration,
    /// Time after which an unanswered PING means that the peer is gone.
    pub ping_timeout: Duration,
    /// Time after which a client's tunnel without streams closes; `None` keeps it.
    pub idle_timeout: Option<Duration>,
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
            stream_window: 4 * 1024 * 1024,
            connection_window: 16 * 1024 * 1024,
            max_frame: 1024 * 1024,
            max_header_list: 64 * 1024,
            max_streams: 200,
            send_buffer: 256 * 1024,
            ping_interval: Duration::from_secs(10),
            ping_timeout: Duration::from_secs(20),
            idle_timeout: None,
        }
    }
}
