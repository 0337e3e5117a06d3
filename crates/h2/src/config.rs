//! Parameters of a connection: the settings that it offers, and the limits that it holds its peer to.

use std::sync::Arc;
use std::time::Duration;

use crate::abuse::Allowances;

/// The window of every connection at its start (RFC 9113 §6.9.2), and the least first window of a stream.
pub const FLOOR: u32 = 65_535;

/// The largest window (RFC 9113 §6.9.1).
pub(crate) const LARGEST_WINDOW: u32 = i32::MAX as u32;

/// The parameters of a connection. Values outside their range are taken to its nearest end.
#[derive(Debug, Clone)]
pub struct Config {
    /// Largest frame that we accept, in bytes, 2^14 to 2^24-1. Nothing is kept for it: data passes as it comes.
    pub max_frame: u32,
    /// Largest header list that we accept, in bytes as RFC 9113 §6.5.2 counts them.
    pub max_header_list: u32,
    /// Most field lines of a header list that we accept, pseudo-header fields apart and dropped fields included
    /// (CVE-2019-15226). A list with more costs its stream, as one that is larger than [`Config::max_header_list`] does; what
    /// comes on a peer's table is the same either way.
    pub max_fields: u32,
    /// A server announces a request whose header list has too many fields or is too large, with
    /// [`Event::TooLarge`](crate::Event::TooLarge), so that its caller answers 431 (RFC 9113 §10.5.1). Otherwise the stream
    /// is reset with ENHANCE_YOUR_CALM, as it always is on a client.
    pub tell_large: bool,
    /// A server takes extended CONNECT (RFC 8441).
    pub extended_connect: bool,
    /// Strings of header blocks are sent in the Huffman code where that is shorter (RFC 7541 §5.2). It saves bytes and costs
    /// instructions.
    pub huffman: bool,
    /// Most fields that are kept in the peer's header table, see [`Keep::Yes`](crate::Keep::Yes).
    pub pins: u8,
    /// Streams that a server lets its peer have open at once, and a client opens itself at most.
    pub max_streams: u32,
    /// Bytes that a peer may send on a new stream, 65,535 to 2^31-1. All streams together had better leave room within
    /// [`Config::allowance`]: then those that nobody reads stall themselves and no other.
    pub stream_first: u32,
    /// What a stream's window grows to with the bandwidth-delay product.
    pub stream_most: u32,
    /// Streams for whose first windows room is kept in [`Config::allowance`], open or not: what they leave is what streams
    /// grow into. No set of so many that nobody reads stops another.
    pub first_windows: u32,
    /// What the peer may have under way on the whole connection at first, once it was told: 65,535 bytes to 2^31-1. A caller
    /// that decides with allowances alone says the largest.
    pub connection_first: u32,
    /// What that grows to likewise.
    pub connection_most: u32,
    /// Most bytes of credit and of data that nobody has consumed yet, on the whole connection. What is not taken by first
    /// windows and by one more of [`Config::stream_most`] is what streams grow into. A ledger that many connections
    /// share lowers what is lent now, and raises it again, with [`Connection::set_allowance`](crate::Connection::set_allowance),
    /// and says what it would lend with [`Connection::set_most`](crate::Connection::set_most).
    pub allowance: u32,
    /// Bytes of one stream that may wait here for the connection to take them.
    pub send_buffer: u32,
    /// The same for all streams of the connection.
    pub send_total: usize,
    /// Bytes that one write gathers; a stream's turn within it is [`Config::turn`].
    pub write: usize,
    /// Largest DATA frame while several streams have something to send; alone a stream gets four times that.
    pub turn: u32,
    /// Pieces of one header block: 64 KiB in frames of 16 KiB are four.
    pub header_pieces: u8,
    /// Entries of one SETTINGS frame: RFC 9113 and its extensions define fewer than ten.
    pub settings_entries: u16,
    /// Bytes of answers (to PINGs, SETTINGS, requests and faults, and credit for data) that may wait for a peer that sends
    /// and does not read. Two hundred answered requests have 40 KiB.
    pub unread_replies: usize,
    /// Time in which the peer must acknowledge our SETTINGS.
    pub settings_timeout: Duration,
    /// What the peer may do so often and no more.
    pub allowances: Allowances,
    /// Resets of unanswered requests ([`Abuse::RapidReset`](crate::Abuse::RapidReset)) that a peer earns with each request
    /// that comes to its end: clients with short deadlines cancel more than the allowance, and finish more than they cancel.
    pub earned_resets: u32,
}

impl Config {
    /// What the tunnels of a mesh need: many long streams of unknown speed, two hundred at once.
    pub fn tunnel() -> Self {
        Config {
            max_frame: 256 * 1024,
            max_header_list: 64 * 1024,
            max_fields: 100,
            tell_large: false,
            extended_connect: false,
            huffman: false,
            pins: 16,
            max_streams: 200,
            stream_first: FLOOR,
            stream_most: 4 << 20,
            first_windows: 200,
            connection_first: FLOOR,
            connection_most: 8 << 20,
            allowance: 32 << 20,
            send_buffer: 256 * 1024,
            send_total: 4 << 20,
            write: 64 * 1024,
            turn: 16 * 1024,
            header_pieces: 8,
            settings_entries: 64,
            unread_replies: 64 * 1024,
            settings_timeout: Duration::from_secs(20),
            allowances: Allowances::tunnel(),
            earned_resets: 1,
        }
    }

    /// What ordinary requests need: the limits of Istio's proxies on header lists, and an answer of 431 beyond them.
    pub fn requests() -> Self {
        Config {
            max_frame: 16 * 1024,
            max_header_list: 60 * 1024,
            max_streams: 100,
            first_windows: 100,
            tell_large: true,
            extended_connect: true,
            ..Config::tunnel()
        }
    }

    /// The same for all connections that use it, with every value in its range.
    pub fn share(self) -> SharedConfig {
        SharedConfig(Arc::new(self.clamped()))
    }

    fn clamped(self) -> Self {
        let window = |value: u32| value.clamp(FLOOR, LARGEST_WINDOW);
        Config {
            max_frame: self.max_frame.clamp(1 << 14, (1 << 24) - 1),
            stream_first: window(self.stream_first),
            stream_most: window(self.stream_most.max(self.stream_first)),
            connection_first: window(self.connection_first),
            connection_most: window(self.connection_most.max(self.connection_first)),
            allowance: window(self.allowance),
            turn: self.turn.clamp(1 << 10, 1 << 14),
            write: self.write.max(1 << 10),
            ..self
        }
    }
}

/// A [`Config`] in its range; clones share it.
#[derive(Debug, Clone)]
pub struct SharedConfig(pub(crate) Arc<Config>);
