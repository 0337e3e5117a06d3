//! PROXY protocol, version 2: the header before a connection's bytes that tells an application the addresses and the identity
//! of its client. Bytes in, bytes out: the crate opens and reads no connection, and does not judge the sender of a header.
//!
//! The format is that of HAProxy's specification, section 2.2; the types of the mesh's own fields are Istio's.
#![forbid(unsafe_code)]

mod encode;
mod parse;
mod tlv;

use std::net::SocketAddr;

pub use encode::{EncodeError, encode};
pub use parse::{ParseError, Parsed, parse};
pub use tlv::Tlv;

/// What every header starts with (section 2.2); it is no prefix of any common protocol.
pub const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// The part of a header that is always there, in bytes: signature, command, family, length.
pub const FIXED: usize = 16;

/// Most bytes of one header: its length field has 16 bits.
pub const MAX_HEADER: usize = FIXED + u16::MAX as usize;

/// What a connection's header says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// On whose behalf the connection was made.
    pub command: Command,
    /// Between whom.
    pub addresses: Addresses,
    /// What else is said, in the order of the header; unknown types are kept.
    pub tlvs: Vec<Tlv>,
}

/// On whose behalf a connection was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// The proxy's own, such as its health check: the connection's own addresses are the true ones.
    Local,
    /// Somebody else's: [`Header::addresses`] has the true ones.
    Proxy,
}

/// The two ends of the connection that was relayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addresses {
    /// The proxy does not say, or not in a family that is relayed here (UDP, unix sockets).
    Unspecified,
    /// A TCP connection; both addresses are of one family.
    Tcp {
        /// Who opened it.
        source: SocketAddr,
        /// Where it went.
        destination: SocketAddr,
    },
}

impl Header {
    /// A header for a TCP connection from `source` to `destination`, with nothing else said yet.
    pub fn relayed(source: SocketAddr, destination: SocketAddr) -> Self {
        Header {
            command: Command::Proxy,
            addresses: Addresses::Tcp {
                source,
                destination,
            },
            tlvs: Vec::new(),
        }
    }

    /// The value of the first field of this type.
    pub fn value(&self, kind: u8) -> Option<&[u8]> {
        let tlv = self.tlvs.iter().find(|tlv| tlv.kind == kind)?;
        Some(&tlv.value)
    }
}
