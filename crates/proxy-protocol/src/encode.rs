//! Writing a header.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::{Addresses, Command, FIXED, Header, SIGNATURE};

/// Why a header cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The length field has 16 bits.
    #[error("a PROXY header of {0} bytes after its fixed part is too long; 65535 is the most")]
    TooLong(usize),
}

/// The header's bytes, to go before the first byte of the connection. An IPv4 and an IPv6 address in one header are both
/// written as IPv6, the former mapped (RFC 4291 §2.5.5.2).
///
/// # Errors
/// The fields are too long for one header.
pub fn encode(header: &Header) -> Result<Vec<u8>, EncodeError> {
    let mut body = Vec::with_capacity(160);
    let family = match header.addresses {
        Addresses::Unspecified => UNSPEC,
        Addresses::Tcp {
            source,
            destination,
        } => write_addresses(&mut body, source, destination),
    };
    for tlv in &header.tlvs {
        let length = u16::try_from(tlv.value.len())
            .map_err(|_| EncodeError::TooLong(body.len() + 3 + tlv.value.len()))?;
        body.push(tlv.kind);
        body.extend(length.to_be_bytes());
        body.extend(&tlv.value);
    }
    let length = u16::try_from(body.len()).map_err(|_| EncodeError::TooLong(body.len()))?;
    let mut bytes = Vec::with_capacity(FIXED + body.len());
    bytes.extend(SIGNATURE);
    bytes.push(match header.command {
        Command::Local => 0x20,
        Command::Proxy => 0x21,
    });
    bytes.push(family);
    bytes.extend(length.to_be_bytes());
    bytes.extend(body);
    Ok(bytes)
}

pub(crate) const UNSPEC: u8 = 0x00;
pub(crate) const TCP4: u8 = 0x11;
pub(crate) const TCP6: u8 = 0x21;

fn write_addresses(body: &mut Vec<u8>, source: SocketAddr, destination: SocketAddr) -> u8 {
    let family = match (source.ip(), destination.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            body.extend(source.octets());
            body.extend(destination.octets());
            TCP4
        }
        (source, destination) => {
            body.extend(as_v6(source).octets());
            body.extend(as_v6(destination).octets());
            TCP6
        }
    };
    body.extend(source.port().to_be_bytes());
    body.extend(destination.port().to_be_bytes());
    family
}

fn as_v6(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}
