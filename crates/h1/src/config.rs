//! Limits of a connection.

/// Limits of a connection. The driver owns limits on time; this crate has no clock.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Most bytes of a message head or a trailer section, from the first byte to the end of the empty line. At most 65,535.
    pub max_head: u16,
    /// Most fields of a head or a trailer section.
    pub max_fields: u16,
    /// Most empty lines before a request line (RFC 9112 §2.2).
    pub max_empty_lines: u8,
    /// Most informational responses to one request (RFC 9110 §15.2). A client counts them. A server may send one every few seconds while
    /// it works for hours.
    pub max_informational: u16,
    /// Most bytes of chunk lines beyond 16 bytes a chunk and twice the data of the chunk. Chunk extensions use them up.
    pub chunk_overhead: u32,
    /// Most content bytes of a request that a server reads and drops after its answer. Beyond them the connection closes.
    pub drain: u64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            max_head: 60 * 1024,
            max_fields: 100,
            max_empty_lines: 4,
            max_informational: 10_000,
            chunk_overhead: 16 * 1024,
            drain: 64 * 1024,
        }
    }
}
