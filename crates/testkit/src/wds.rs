//! Workloads, services and policies as the control plane would send them, with defaults that make sense together.

use std::net::IpAddr;

use lateen_proto::security::{Action, Authorization, Clause, Match, Rule, Scope, StringMatch};
use lateen_proto::security::{ServiceAccountMatch, string_match::MatchType};
use lateen_proto::workload::{
    Address, IpFamilies, NetworkAddress, Port, Service, TunnelProtocol, Workload, address,
};

/// The `uid` of a pod of cluster `Kubernetes`.
pub fn uid(namespace: &str, name: &str) -> String {
    format!("Kubernetes//Pod/{namespace}/{name}")
}

/// The xDS name of a service in `cluster.local`.
pub fn service_name(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}.{namespace}.svc.cluster.local")
}

/// A healthy pod of namespace `default` that speaks HBONE; its service account has its name.
pub fn workload(name: &str, node: &str, ip: IpAddr) -> Workload {
    Workload {
        uid: uid("default", name),
        name: name.to_owned(),
        namespace: "default".to_owned(),
        addresses: vec![bytes_of(ip)],
        tunnel_protocol: TunnelProtocol::Hbone.into(),
        trust_domain: "cluster.local".to_owned(),
        service_account: name.to_owned(),
        node: node.to_owned(),
        canonical_name: name.to_owned(),
        canonical_revision: "latest".to_owned(),
        workload_name: name.to_owned(),
        cluster_id: "Kubernetes".to_owned(),
        ..Workload::default()
    }
}

/// `workload` with plain TCP in place of HBONE.
pub fn plain(mut workload: Workload) -> Workload {
    workload.tunnel_protocol = TunnelProtocol::None.into();
    workload
}

/// `workload` as an endpoint of a service of namespace `default`, `port` leading to `target`.
pub fn serving(mut workload: Workload, service: &str, port: u16, target: u16) -> Workload {
    let ports = workload
        .services
        .entry(service_name("default", service))
        .or_default();
    ports.ports.push(ports_of(port, target));
    workload
}

/// A service of namespace `default`.
pub fn service(name: &str, vip: IpAddr, port: u16, target: u16) -> Service {
    Service {
        name: name.to_owned(),
        namespace: "default".to_owned(),
        hostname: format!("{name}.default.svc.cluster.local"),
        addresses: vec![NetworkAddress {
            address: bytes_of(vip),
            ..NetworkAddress::default()
        }],
        ports: vec![ports_of(port, target)],
        // The families are those of the cluster IP, as the API server sets them.
        ip_families: match vip {
            IpAddr::V4(_) => IpFamilies::Ipv4Only.into(),
            IpAddr::V6(_) => IpFamilies::Ipv6Only.into(),
        },
        ..Service::default()
    }
}

/// A workload as a resource.
pub fn workload_resource(workload: Workload) -> Address {
    Address {
        r#type: Some(address::Type::Workload(workload)),
    }
}

/// A service as a resource.
pub fn service_resource(service: Service) -> Address {
    Address {
        r#type: Some(address::Type::Service(service)),
    }
}

/// A policy of namespace `default` that `action`s what comes from any of `principals`
/// (`cluster.local/ns/..`); it covers the workloads that name it.
pub fn policy(name: &str, action: Action, principals: &[&str]) -> Authorization {
    let exact = |principal: &&str| StringMatch {
        match_type: Some(MatchType::Exact((*principal).to_owned())),
    };
    rule(
        name,
        action,
        Match {
            principals: principals.iter().map(exact).collect(),
            ..Match::default()
        },
    )
}

/// As [`policy`], by service account of namespace `default`.
pub fn policy_for_accounts(name: &str, action: Action, accounts: &[&str]) -> Authorization {
    let account = |account: &&str| ServiceAccountMatch {
        namespace: "default".to_owned(),
        service_account: (*account).to_owned(),
    };
    rule(
        name,
        action,
        Match {
            service_accounts: accounts.iter().map(account).collect(),
            ..Match::default()
        },
    )
}

fn rule(name: &str, action: Action, only: Match) -> Authorization {
    Authorization {
        name: name.to_owned(),
        namespace: "default".to_owned(),
        scope: Scope::WorkloadSelector.into(),
        action: action.into(),
        rules: vec![Rule {
            clauses: vec![Clause {
                matches: vec![only],
            }],
        }],
        ..Authorization::default()
    }
}

fn ports_of(port: u16, target: u16) -> Port {
    Port {
        service_port: port.into(),
        target_port: target.into(),
        ..Port::default()
    }
}

/// An address as resources have it.
pub fn bytes_of(ip: IpAddr) -> bytes::Bytes {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec().into(),
        IpAddr::V6(ip) => ip.octets().to_vec().into(),
    }
}
