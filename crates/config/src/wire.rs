//! The scalar fields that several messages share: addresses, ports, enums.

use std::net::IpAddr;

use ipnet::IpNet;
use lateen_proto::workload as proto;

use crate::Rejection;
use crate::port_map::{PortMap, PortProtocol};

/// An IP address of 4 or 16 bytes in network byte order. An IPv4 address in IPv6 form is that IPv4 address: sockets
/// and look-ups know it by no other name.
pub(crate) fn address(field: &'static str, bytes: &[u8]) -> Result<IpAddr, Rejection> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Ok(v4.into());
    }
    match <[u8; 16]>::try_from(bytes) {
        Ok(v6) => Ok(IpAddr::from(v6).to_canonical()),
        Err(_) => Err(Rejection::AddressLength {
            field,
            bytes: bytes.len(),
        }),
    }
}

/// A range of addresses. One of IPv4 addresses in IPv6 form is that of the IPv4 addresses.
pub(crate) fn range(field: &'static str, bytes: &[u8], length: u32) -> Result<IpNet, Rejection> {
    /// The bits before an IPv4 address in IPv6 form, RFC 4291 §2.5.5.2.
    const MAPPED: u32 = 96;
    let mut address = address(field, bytes)?;
    let mut length = length;
    if let (16, IpAddr::V4(v4)) = (bytes.len(), address) {
        match length.checked_sub(MAPPED) {
            Some(rest) => length = rest,
            None => address = v4.to_ipv6_mapped().into(),
        }
    }
    u8::try_from(length)
        .ok()
        .and_then(|bits| IpNet::new(address, bits).ok())
        .ok_or(Rejection::PrefixLength {
            field,
            address,
            length,
        })
}

/// A port that may be absent, 0.
pub(crate) fn port_or_zero(field: &'static str, value: u32) -> Result<u16, Rejection> {
    u16::try_from(value).map_err(|_| Rejection::Port {
        field,
        value,
        low: 0,
    })
}

/// A port.
pub(crate) fn port(field: &'static str, value: u32) -> Result<u16, Rejection> {
    match u16::try_from(value) {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(Rejection::Port {
            field,
            value,
            low: 1,
        }),
    }
}

/// A list of ports; the first mapping of a service port wins.
pub(crate) fn ports(ports: &[proto::Port]) -> Result<Vec<PortMap>, Rejection> {
    let mut maps: Vec<PortMap> = Vec::with_capacity(ports.len());
    for wire in ports {
        let map = PortMap {
            service: port("service_port", wire.service_port)?,
            target: port_or_zero("target_port", wire.target_port)?,
            protocol: PortProtocol::of(wire.app_protocol),
        };
        if maps.iter().all(|known| known.service != map.service) {
            maps.push(map);
        }
    }
    Ok(maps)
}

/// An enum of this version of the contract.
pub(crate) fn known<E: TryFrom<i32>>(field: &'static str, value: i32) -> Result<E, Rejection> {
    E::try_from(value).map_err(|_| Rejection::UnknownValue { field, value })
}
