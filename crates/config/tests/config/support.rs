//! Short ways to write resources.

use std::net::IpAddr;
use std::sync::Arc;

use lateen_config::{Snapshot, Store};
use lateen_proto::workload::{
    Address, GatewayAddress, IpFamilies, NetworkAddress, Port, PortList, Service, TunnelProtocol,
    Workload, address, gateway_address,
};

pub fn bytes(address: &str) -> bytes::Bytes {
    match address.parse().expect("an address") {
        IpAddr::V4(v4) => v4.octets().to_vec().into(),
        IpAddr::V6(v6) => v6.octets().to_vec().into(),
    }
}

pub fn at(network: &str, address: &str) -> NetworkAddress {
    NetworkAddress {
        network: network.into(),
        address: bytes(address),
        length: None,
    }
}

pub fn ports(ports: &[(u32, u32)]) -> Vec<Port> {
    ports
        .iter()
        .map(|(from, to)| Port {
            service_port: *from,
            target_port: *to,
            app_protocol: 0,
        })
        .collect()
}

pub fn uid(name: &str) -> String {
    format!("Kubernetes//Pod/default/{name}")
}

pub fn key(name: &str) -> String {
    format!("default/{name}.default.svc.cluster.local")
}

/// A mesh pod with one address.
pub fn pod(name: &str, address: &str) -> Workload {
    Workload {
        uid: uid(name),
        name: name.into(),
        namespace: "default".into(),
        service_account: name.into(),
        addresses: vec![bytes(address)],
        tunnel_protocol: TunnelProtocol::Hbone.into(),
        node: "n1".into(),
        ..Default::default()
    }
}

/// The same, as an endpoint of a service.
pub fn endpoint(name: &str, address: &str, service: &str, map: &[(u32, u32)]) -> Workload {
    let mut workload = pod(name, address);
    workload
        .services
        .insert(key(service), PortList { ports: ports(map) });
    workload
}

pub fn service(name: &str, address: &str, map: &[(u32, u32)]) -> Service {
    Service {
        name: name.into(),
        namespace: "default".into(),
        hostname: format!("{name}.default.svc.cluster.local"),
        addresses: vec![at("", address)],
        ports: ports(map),
        ip_families: families(address).into(),
        ..Default::default()
    }
}

/// The families that the API server gives a Service with this cluster IP.
fn families(address: &str) -> IpFamilies {
    match address.parse().expect("an address") {
        IpAddr::V4(_) => IpFamilies::Ipv4Only,
        IpAddr::V6(_) => IpFamilies::Ipv6Only,
    }
}

pub fn waypoint(address: &str) -> Option<GatewayAddress> {
    Some(GatewayAddress {
        destination: Some(gateway_address::Destination::Address(at("", address))),
        hbone_mtls_port: 15008,
    })
}

/// Whatever can stand in an Address, with its name.
pub trait Resource {
    fn named(self) -> (String, Address);
}

impl Resource for Workload {
    fn named(self) -> (String, Address) {
        (
            self.uid.clone(),
            Address {
                r#type: Some(address::Type::Workload(self)),
            },
        )
    }
}

impl Resource for Service {
    fn named(self) -> (String, Address) {
        let name = format!("{}/{}", self.namespace, self.hostname);
        (
            name,
            Address {
                r#type: Some(address::Type::Service(self)),
            },
        )
    }
}

/// A mesh on the empty network.
pub struct Mesh(pub Store);

impl Mesh {
    pub fn new() -> Self {
        Self(Store::new("", None))
    }

    pub fn with(mut self, resource: impl Resource) -> Self {
        let (name, address) = resource.named();
        self.0.upsert(&name, address).expect("a good resource");
        self
    }

    pub fn snapshot(mut self) -> Arc<Snapshot> {
        self.0.snapshot()
    }
}
