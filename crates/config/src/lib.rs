//! Parser and store of wire resources: they become immutable snapshots, which answer where a connection goes and which policies
//! cover a request. It neither fetches a resource nor moves a byte. Faults of a resource are found here, once, when it arrives.
#![forbid(unsafe_code)]

mod attached;
mod authorization;
mod batch;
mod dump;
mod endpoints;
mod gateway;
mod index;
mod invariants;
mod kind;
mod kinds;
pub mod l7;
pub mod local;
mod lookup;
pub mod next_hop;
mod port_map;
mod rejection;
mod resource;
pub mod resource_kinds;
mod service;
mod siblings;
mod snapshot;
mod store;
mod typed;
mod wire;
mod workload;
mod workload_parser;

pub use batch::Batch;
pub use dump::Dump;
pub use endpoints::{Endpoint, EndpointSet};
pub use gateway::{GatewayAddress, GatewayDestination, NetworkAddress, NetworkRange};
pub use kind::{Kind, Parser};
pub use kinds::{Kinds, Unlisted};
pub use lookup::Want;
pub use port_map::{PortMap, PortProtocol};
pub use rejection::{Refused, Rejection};
pub use resource::Resource;
pub use service::{
    HealthPolicy, IpFamilies, LoadBalancing, Service, ServicePort, Visibility, WeightedWaypoint,
};
pub use snapshot::Snapshot;
pub use store::Store;
pub use workload::{
    ApplicationTunnel, Health, Locality, NetworkMode, Protocol, ServedPorts, TunnelProtocol,
    Workload,
};

/// The key of a service: its namespace and its hostname.
pub type ServiceKey = lateen_types::NamespacedName;
