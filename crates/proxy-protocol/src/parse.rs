//! Reading a header that somebody sent.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::encode::{TCP4, TCP6};
use crate::{Addresses, Command, FIXED, Header, SIGNATURE, Tlv};

/// How far a header has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed {
    /// It may be one; so many bytes are needed in all before it can be said more.
    Incomplete {
        /// Bytes from its start, more than there were; at most [`crate::MAX_HEADER`].
        needed: usize,
    },
    /// All of it.
    Complete {
        /// What it says.
        header: Header,
        /// Its length in bytes; the connection's own bytes follow.
        length: usize,
    },
}

/// Why bytes are no header. The connection must be closed: there is no telling where its own bytes begin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The signature is missing.
    #[error("no PROXY v2 header; its sender may not speak the protocol, or version 1")]
    Signature,
    /// Another version.
    #[error("PROXY version {0}; only 2 is understood")]
    Version(u8),
    /// No such command.
    #[error("PROXY command {0} is not known; LOCAL is 0 and PROXY is 1")]
    Command(u8),
    /// No such family or transport.
    #[error("PROXY family and transport {0:#04x} are not known")]
    Family(u8),
    /// The header is shorter than its addresses.
    #[error("a PROXY header of {length} bytes does not hold the {needed} bytes of its addresses")]
    Addresses {
        /// As the header says.
        length: usize,
        /// By its family.
        needed: usize,
    },
    /// A field is longer than what is left of the header.
    #[error("field {kind:#04x} of a PROXY header is longer than the header")]
    Field {
        /// Its type.
        kind: u8,
    },
}

/// Reads the header at the start of `bytes`. Nothing is read beyond it, and nothing waits for more than it needs.
///
/// A LOCAL header's addresses are skipped, as section 2.2 demands; so are those of UDP and unix sockets.
///
/// # Errors
/// See [`ParseError`]; told as early as the bytes show it.
pub fn parse(bytes: &[u8]) -> Result<Parsed, ParseError> {
    let start = &bytes[..bytes.len().min(SIGNATURE.len())];
    if !SIGNATURE.starts_with(start) {
        return Err(ParseError::Signature);
    }
    if let Some(&byte) = bytes.get(12) {
        command(byte)?;
    }
    if let Some(&family) = bytes.get(13) {
        address_length(family)?;
    }
    let Some((fixed, rest)) = bytes.split_at_checked(FIXED) else {
        return Ok(Parsed::Incomplete { needed: FIXED });
    };
    let (command, family) = (command(fixed[12])?, fixed[13]);
    let length = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    let needed = address_length(family)?;
    if length < needed {
        return Err(ParseError::Addresses { length, needed });
    }
    let Some(body) = rest.get(..length) else {
        return Ok(Parsed::Incomplete {
            needed: FIXED + length,
        });
    };
    let (addresses, fields) = body.split_at(needed);
    let header = Header {
        command,
        addresses: match command {
            Command::Local => Addresses::Unspecified,
            Command::Proxy => read_addresses(family, addresses),
        },
        tlvs: read_fields(fields)?,
    };
    Ok(Parsed::Complete {
        header,
        length: FIXED + length,
    })
}

fn command(byte: u8) -> Result<Command, ParseError> {
    match (byte >> 4, byte & 0xF) {
        (2, 0) => Ok(Command::Local),
        (2, 1) => Ok(Command::Proxy),
        (2, command) => Err(ParseError::Command(command)),
        (version, _) => Err(ParseError::Version(version)),
    }
}

/// How many bytes the addresses of a family take.
fn address_length(family: u8) -> Result<usize, ParseError> {
    match (family >> 4, family & 0xF) {
        (0, 0..=2) => Ok(0),
        (1, 0..=2) => Ok(12),
        (2, 0..=2) => Ok(36),
        (3, 0..=2) => Ok(216),
        _ => Err(ParseError::Family(family)),
    }
}

fn read_addresses(family: u8, bytes: &[u8]) -> Addresses {
    let port = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let ip = |at: usize| match family {
        TCP4 => IpAddr::V4(Ipv4Addr::from(octets::<4>(&bytes[at..]))),
        _ => IpAddr::V6(Ipv6Addr::from(octets::<16>(&bytes[at..]))),
    };
    let size = match family {
        TCP4 => 4,
        TCP6 => 16,
        _ => return Addresses::Unspecified,
    };
    Addresses::Tcp {
        source: SocketAddr::new(ip(0), port(2 * size)),
        destination: SocketAddr::new(ip(size), port(2 * size + 2)),
    }
}

fn octets<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut octets = [0; N];
    octets.copy_from_slice(&bytes[..N]);
    octets
}

fn read_fields(mut bytes: &[u8]) -> Result<Vec<Tlv>, ParseError> {
    let mut tlvs = Vec::new();
    while let [kind, rest @ ..] = bytes {
        let cut_short = ParseError::Field { kind: *kind };
        let Some((length, rest)) = rest.split_first_chunk::<2>() else {
            return Err(cut_short);
        };
        let length = usize::from(u16::from_be_bytes(*length));
        let Some((value, rest)) = rest.split_at_checked(length) else {
            return Err(cut_short);
        };
        tlvs.push(Tlv {
            kind: *kind,
            value: value.to_vec(),
        });
        bytes = rest;
    }
    Ok(tlvs)
}
