//! Reasons for which a connection has no next hop.

use std::net::{IpAddr, SocketAddr};

use lateen_types::Strng;

use crate::{ServiceKey, Want};

/// Why a connection cannot go where it wants; never a reason to send it another way.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Resources are sent on demand, and the control plane has not been asked for this one: ask for it, wait for the
    /// answer and decide again. As a final answer it means that none came in time.
    #[error(
        "the control plane has not said what {0} is; nothing is sent there until it has: see whether it is connected"
    )]
    Unknown(Want),
    /// The service exists, the port does not.
    #[error("service {service} has no port {port}; its ports are {}", list(.known))]
    UnknownPort {
        /// The service.
        service: ServiceKey,
        /// The port asked for.
        port: u16,
        /// The ports that it has.
        known: Vec<u16>,
    },
    /// Nothing can serve the port now.
    #[error(
        "service {service} has no endpoint for port {port}: {total} known, {unhealthy} not ready, {unreachable} \
         without address or on a network without gateway; check that its pods run and are ready"
    )]
    NoHealthyEndpoint {
        /// The service.
        service: ServiceKey,
        /// The port asked for.
        port: u16,
        /// How many endpoints it has in all.
        total: usize,
        /// How many of them are not ready.
        unhealthy: usize,
        /// How many of the rest this proxy cannot reach.
        unreachable: usize,
    },
    /// The way leads through a waypoint that nobody knows. Going around it would skip its policies.
    #[error(
        "{target} is behind the waypoint {waypoint}, which does not exist; deploy it, or remove the use-waypoint label"
    )]
    UnknownWaypoint {
        /// The service or workload behind it.
        target: String,
        /// The reference as it was sent.
        waypoint: String,
    },
    /// The way leads through a waypoint that cannot take the connection. Going around it would skip its policies.
    #[error("{target} is behind the waypoint {waypoint}: {why}")]
    Waypoint {
        /// The service or workload behind it.
        target: String,
        /// The reference as it was sent.
        waypoint: String,
        /// Why the waypoint cannot be used.
        why: Box<Refusal>,
    },
    /// The way leads through another network's gateway that nobody knows.
    #[error(
        "workload {workload} is on network {network} behind the gateway {gateway}, which does not exist; check the \
         gateway's service in this cluster"
    )]
    UnknownGateway {
        /// The workload's uid.
        workload: String,
        /// Its network.
        network: String,
        /// The reference as it was sent.
        gateway: String,
    },
    /// The way leads through another network's gateway that cannot take the connection.
    #[error("workload {workload} is on network {network} behind the gateway {gateway}: {why}")]
    Gateway {
        /// The workload's uid.
        workload: String,
        /// Its network.
        network: String,
        /// The reference as it was sent.
        gateway: String,
        /// Why the gateway cannot be used.
        why: Box<Refusal>,
    },
    /// The workload is on another network, and no way leads there.
    #[error(
        "workload {workload} is on network {network}, which is reached through a gateway and by services only; \
         address its service, and check that the network has a gateway"
    )]
    OtherNetwork {
        /// The workload's uid.
        workload: String,
        /// Its network.
        network: String,
    },
    /// Nothing says who serves a service on another network, so nobody could be trusted to.
    #[error(
        "service {service} names no identities, so that its endpoints on network {network} cannot be verified; the \
         control plane must send its subject_alt_names"
    )]
    NoIdentities {
        /// The service.
        service: ServiceKey,
        /// The other network.
        network: String,
    },
    /// The workload has no address that this client can use.
    #[error(
        "workload {workload} has no address that a client of {wanted} can use; check its service's ip families"
    )]
    NoAddress {
        /// The workload's uid.
        workload: String,
        /// The address asked for.
        wanted: IpAddr,
    },
    /// An endpoint that is its own service's virtual address, by itself or by way of other services.
    #[error(
        "service {service} has the endpoint {endpoint}, whose address {address} leads back to the service itself; give the \
         endpoint the address of what serves it"
    )]
    Circle {
        /// The service.
        service: ServiceKey,
        /// The endpoint's uid.
        endpoint: String,
        /// The address that it has, or that its hostname resolves to.
        address: IpAddr,
    },
    /// Services that are endpoints of services, too many in a row.
    #[error(
        "service {service} is the endpoint of another service, that of another, and so on {steps} times; let the first name \
         the last"
    )]
    TooFar {
        /// The service at which this was given up.
        service: ServiceKey,
        /// How many were passed.
        steps: usize,
    },
    /// The service goes where the client wanted, which is none of its addresses.
    #[error(
        "service {service} has resolution NONE and does not list {address}; add the address to its ServiceEntry, or ask for one \
         that it lists"
    )]
    NotListed {
        /// The service.
        service: ServiceKey,
        /// The address that the client dialled.
        address: IpAddr,
    },
    /// The service goes where the client wanted, which is no place outside of the proxy's own pod.
    #[error("service {service} leads to {address}, which is {what}; nothing is sent there")]
    Reserved {
        /// The service.
        service: ServiceKey,
        /// The address that the client dialled.
        address: IpAddr,
        /// The kind of the address.
        what: &'static str,
    },
    /// The client names a host that the wildcard does not stand for.
    #[error("{wildcard} does not cover the host {host}; ask the service of that host")]
    NotCovered {
        /// The endpoint's hostname.
        wildcard: Strng,
        /// The host that the client names.
        host: String,
    },
    /// The client names a host of another service, whose policies are others.
    #[error("host {host} belongs to service {service}; connect to an address of that service")]
    HostOfAnother {
        /// The host that the client names.
        host: String,
        /// The service that declares it, or a closer wildcard.
        service: ServiceKey,
    },
    /// The client names a host whose address is no place outside of the proxy's own pod.
    #[error("host {host} resolves to {address}, which is {what}; nothing is sent there")]
    ReservedHost {
        /// The host that the client names.
        host: String,
        /// Its address.
        address: IpAddr,
        /// The kind of the address.
        what: &'static str,
    },
    /// The address of an endpoint is on the proxy's own machine or link, or nobody's in particular.
    #[error(
        "{target} has the endpoint {endpoint} at {address}, which is {what}; nothing is sent there: give the endpoint the address of another machine, or, if a link-local address is meant, write that address into the entry"
    )]
    ReservedEndpoint {
        /// The service or workload that was asked for.
        target: String,
        /// The endpoint's hostname, or its uid.
        endpoint: String,
        /// Its address.
        address: IpAddr,
        /// The kind of the address.
        what: &'static str,
    },
    /// The client names a host whose address is a workload's or a service's of the mesh.
    #[error(
        "host {host} resolves to {address}, which is {owner} of the mesh; ask for that directly, so that its policies are obeyed"
    )]
    HostInMesh {
        /// The host that the client names.
        host: String,
        /// Its address.
        address: IpAddr,
        /// The workload or service.
        owner: String,
    },
    /// The connection would come back to the proxy itself.
    #[error("{target} is the proxy's own port; connect to the application's port")]
    LoopGuard {
        /// The destination.
        target: SocketAddr,
    },
}

impl Refusal {
    /// True if the client names a host that the service does not stand for.
    pub fn is_about_host(&self) -> bool {
        matches!(
            self,
            Refusal::NotCovered { .. } | Refusal::HostOfAnother { .. }
        )
    }
}

fn list(ports: &[u16]) -> String {
    ports
        .iter()
        .map(u16::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

/// A miss of a look-up by address; only where resources are sent on demand.
pub(super) fn unknown(want: Option<Want>) -> Result<(), Refusal> {
    want.map_or(Ok(()), |want| Err(Refusal::Unknown(want)))
}
