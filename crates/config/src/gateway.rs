//! References to waypoints and network gateways, which stand between a client and a workload.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use lateen_proto::workload as proto;
use lateen_proto::workload::gateway_address::Destination;
use lateen_types::Strng;
use serde::{Serialize, Serializer};

use crate::{Rejection, ServiceKey, wire};

/// An address in a network; the empty network is a name like any other. Written `network/address`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkAddress {
    /// The network.
    pub network: Strng,
    /// The address.
    pub address: IpAddr,
}

impl fmt::Display for NetworkAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.address)
    }
}

impl Serialize for NetworkAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A range of addresses in a network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NetworkRange {
    /// The network.
    pub network: Strng,
    /// The range.
    pub cidr: IpNet,
}

/// Where a waypoint or a network gateway is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayAddress {
    /// How it is named.
    pub destination: GatewayDestination,
    /// The port of its tunnel listener.
    pub hbone_mtls_port: u16,
}

/// How a gateway is named.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum GatewayDestination {
    /// By the address of a service or a workload.
    Address(NetworkAddress),
    /// By the hostname of a service.
    Hostname(ServiceKey),
}

impl fmt::Display for GatewayDestination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GatewayDestination::Address(address) => address.fmt(f),
            GatewayDestination::Hostname(key) => key.fmt(f),
        }
    }
}

impl GatewayAddress {
    pub(crate) fn parse(
        field: &'static str,
        wire: &proto::GatewayAddress,
    ) -> Result<Self, Rejection> {
        let destination = match wire
            .destination
            .as_ref()
            .ok_or(Rejection::Missing { field })?
        {
            Destination::Address(at) => GatewayDestination::Address(NetworkAddress {
                network: at.network.as_str().into(),
                address: wire::address(field, &at.address)?,
            }),
            Destination::Hostname(host) => GatewayDestination::Hostname(ServiceKey::new(
                host.namespace.as_str(),
                host.hostname.as_str(),
            )),
        };
        Ok(Self {
            destination,
            hbone_mtls_port: wire::port_or_zero(field, wire.hbone_mtls_port)?,
        })
    }
}
