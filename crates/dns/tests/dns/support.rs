//! A small mesh, and short ways to ask about it.

use std::net::IpAddr;
use std::sync::Arc;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query as Question};
use hickory_proto::rr::{Name, RecordType};
use lateen_config::{Batch, Snapshot, Store, resource_kinds};
use lateen_dns::{Answer, Transport, View, answer, read};
use lateen_proto::workload::service::Visibility;
use lateen_proto::workload::{
    Address, IpFamilies, NetworkAddress, Service, Workload, WorkloadStatus, address, load_balancing,
};
use lateen_testkit::wds;
use prost::Message as _;

pub fn ip(address: &str) -> IpAddr {
    address.parse().expect("an address")
}

pub fn at(network: &str, address: &str) -> NetworkAddress {
    let address = match ip(address) {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    NetworkAddress {
        network: network.to_owned(),
        address: address.into(),
        length: None,
    }
}

/// A service of any hostname.
pub fn service(namespace: &str, hostname: &str, addresses: &[&str]) -> Service {
    Service {
        name: hostname.split('.').next().unwrap_or_default().to_owned(),
        namespace: namespace.to_owned(),
        hostname: hostname.to_owned(),
        addresses: addresses.iter().map(|address| at("", address)).collect(),
        ..Service::default()
    }
}

fn endpoint(name: &str, addresses: &[&str], service: &str) -> Workload {
    let workload = wds::workload(name, "n1", ip(addresses[0]));
    let mut workload = wds::serving(workload, service, 80, 80);
    workload.addresses = addresses
        .iter()
        .map(|address| at("", address).address)
        .collect();
    workload
}

fn name(resource: &Address) -> String {
    match resource.r#type.as_ref().expect("a type") {
        address::Type::Workload(workload) => workload.uid.clone(),
        address::Type::Service(service) => format!("{}/{}", service.namespace, service.hostname),
    }
}

pub fn snapshot(resources: Vec<Address>) -> Arc<Snapshot> {
    let mut store = Store::new("", Some("n1"));
    let upserts = resources
        .into_iter()
        .map(|resource| (name(&resource).into(), resource.encode_to_vec().into()))
        .collect();
    let refused = store.apply(&Batch {
        upserts,
        ..Batch::new(&resource_kinds::ADDRESS)
    });
    assert!(refused.is_empty(), "{refused:?}");
    store.snapshot()
}

/// What the tests ask about.
pub fn mesh() -> Arc<Snapshot> {
    let canonical = |mut service: Service| {
        service.canonical = true;
        service
    };
    let private = |mut service: Service| {
        service.visibility = Visibility::Namespace.into();
        service
    };
    let mut only4 = service("default", "only4.default.svc.cluster.local", &[]);
    only4.ip_families = IpFamilies::Ipv4Only.into();
    let mut elsewhere = service("default", "elsewhere.default.svc.cluster.local", &[]);
    elsewhere.addresses = vec![at("far", "10.9.9.9")];
    let mut all = service("default", "all.default.svc.cluster.local", &[]);
    all.load_balancing = Some(lateen_proto::workload::LoadBalancing {
        health_policy: load_balancing::HealthPolicy::AllowAll.into(),
        ..Default::default()
    });
    let ill = |mut workload: Workload| {
        workload.status = WorkloadStatus::Unhealthy.into();
        workload
    };
    let far = |mut workload: Workload| {
        workload.network = "far".to_owned();
        workload
    };
    let claimed = ["10.96.0.9", "fd00:96::9"];
    let mut claimed = service("default", "claimed.default.svc.cluster.local", &claimed);
    claimed.ip_families = IpFamilies::Dual.into();
    let services = vec![
        claimed,
        service("default", "web.default.svc.cluster.local", &["10.0.0.1"]),
        service("other", "web.other.svc.cluster.local", &["10.0.0.2"]),
        service(
            "default",
            "dual.default.svc.cluster.local",
            &["10.0.0.3", "fd00::3"],
        ),
        service("default", "headless.default.svc.cluster.local", &[]),
        service("default", "empty.default.svc.cluster.local", &[]),
        only4,
        elsewhere,
        all,
        service("default", "api.example.com", &["240.0.0.1"]),
        service("default", "*.example.com", &["240.0.0.2"]),
        service("default", "*.deep.example.com", &["240.0.0.3"]),
        service("default", "by-dns.example.org", &[]),
        private(service("other", "private.example.net", &["240.0.0.4"])),
        service("a", "shared.example.net", &["240.0.1.1"]),
        service("b", "shared.example.net", &["240.0.1.2"]),
        canonical(service("c", "shared.example.net", &["240.0.1.3"])),
        service("d", "shared.example.net", &["240.0.1.4"]),
        service("a", "loose.example.net", &["240.0.2.1"]),
        service("b", "loose.example.net", &["240.0.2.2"]),
        service(
            "default",
            "many.example.net",
            &many().iter().map(String::as_str).collect::<Vec<_>>(),
        ),
    ];
    let workloads = vec![
        endpoint("one", &["10.1.0.1", "fd01::1"], "headless"),
        endpoint("two", &["10.1.0.2"], "headless"),
        // A pod's status claims the addresses of a Service.
        endpoint("forged", &["10.96.0.9", "fd00:96::9"], "headless"),
        ill(endpoint("ill", &["10.1.0.3"], "headless")),
        far(endpoint("far", &["10.1.0.4"], "headless")),
        endpoint("four", &["10.1.1.1", "fd01::11"], "only4"),
        ill(endpoint("kept", &["10.1.2.1"], "all")),
    ];
    snapshot(
        services
            .into_iter()
            .map(wds::service_resource)
            .chain(workloads.into_iter().map(wds::workload_resource))
            .collect(),
    )
}

/// Too many addresses for a small datagram.
pub fn many() -> Vec<String> {
    (1..=100).map(|i| format!("240.1.0.{i}")).collect()
}

pub fn view(snapshot: &Snapshot) -> View<'_> {
    View {
        snapshot,
        namespace: "default",
        network: "",
        preferred: None,
        domain: "cluster.local",
        ipv6: true,
    }
}

pub fn question(name: &str, kind: RecordType, payload: Option<u16>) -> Vec<u8> {
    let mut message = Message::new(4711, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Question::query(Name::from_ascii(name).unwrap(), kind));
    if let Some(payload) = payload {
        let mut edns = Edns::new();
        edns.set_max_payload(payload);
        message.edns = Some(edns);
    }
    message.to_vec().unwrap()
}

/// The reply over UDP, in order; `None`: a resolver must be asked.
pub fn ask(view: &View<'_>, name: &str, kind: RecordType) -> Option<Message> {
    let query = read(&question(name, kind, None), Transport::Udp).expect("a question");
    match answer(&query, view, |_| {}) {
        Answer::Reply { message, .. } => Some(Message::from_vec(&message).expect("a message")),
        Answer::Forward { .. } => None,
    }
}

pub fn addresses(message: &Message) -> Vec<String> {
    message
        .answers
        .iter()
        .map(|record| record.data.ip_addr().expect("an address").to_string())
        .collect()
}
