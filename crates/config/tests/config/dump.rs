//! The admin dump has ztunnel's keys and shapes, which `istioctl ztunnel-config` parses.

use lateen_proto::workload::{ApplicationTunnel, LoadBalancing, Locality, NetworkAddress};
use serde_json::{Value, json};

use super::support::{self, Mesh, at, endpoint, key, pod, uid};

fn dump(mesh: Mesh) -> Value {
    serde_json::to_value(mesh.snapshot().dump()).unwrap()
}

#[test]
fn a_workload_with_everything() {
    let mut full = endpoint("full", "10.0.0.1", "web", &[(80, 8080)]);
    full.waypoint = support::waypoint("10.96.0.9");
    full.network = "net".into();
    full.canonical_name = "web".into();
    full.canonical_revision = "v1".into();
    full.workload_name = "web".into();
    full.workload_type = 2;
    full.authorization_policies = vec!["default/deny".into(), "default/moved~0a1b2c3d".into()];
    full.application_tunnel = Some(ApplicationTunnel {
        protocol: 1,
        port: 15088,
    });
    full.locality = Some(Locality {
        region: "r".into(),
        zone: "z".into(),
        subzone: String::new(),
    });
    full.capacity = Some(3);
    assert_eq!(
        dump(Mesh::new().with(full))["workloads"],
        json!([{
            "workloadIps": ["10.0.0.1"],
            "waypoint": {"destination": "/10.96.0.9", "hboneMtlsPort": 15008},
            "protocol": "HBONE", "networkMode": "Standard",
            "uid": uid("full"), "name": "full", "namespace": "default",
            "trustDomain": "cluster.local", "serviceAccount": "full", "network": "net",
            "workloadName": "web", "workloadType": "pod", "canonicalName": "web", "canonicalRevision": "v1",
            "node": "n1", "applicationTunnel": {"protocol": "PROXY", "port": 15088},
            "authorizationPolicies": ["default/deny", "default/moved"], "status": "Healthy", "clusterId": "Kubernetes",
            "locality": {"region": "r", "zone": "z", "subzone": ""}, "services": [key("web")], "capacity": 3,
        }])
    );
}

#[test]
fn a_workload_with_little() {
    let mut little = pod("little", "10.0.0.1");
    little.tunnel_protocol = 0;
    little.service_account.clear();
    little.node.clear();
    assert_eq!(
        dump(Mesh::new().with(little))["workloads"],
        json!([{
            "workloadIps": ["10.0.0.1"], "protocol": "TCP", "networkMode": "Standard",
            "uid": uid("little"), "name": "little", "namespace": "default",
            "trustDomain": "cluster.local", "serviceAccount": "default", "workloadType": "deployment",
            "status": "Healthy", "clusterId": "Kubernetes", "capacity": 1,
        }])
    );
}

#[test]
fn a_service_with_its_endpoints() {
    let mut web = support::service("web", "10.96.0.1", &[(80, 8080)]);
    web.addresses.push(NetworkAddress {
        length: Some(24),
        ..at("net", "10.97.0.0")
    });
    web.subject_alt_names = vec!["spiffe://td/ns/a/sa/b".into()];
    web.ip_families = 1;
    web.load_balancing = Some(LoadBalancing {
        routing_preference: vec![6, 1],
        mode: 2,
        health_policy: 0,
    });
    let mesh = Mesh::new()
        .with(web)
        .with(endpoint("web-1", "10.0.0.1", "web", &[(80, 9090)]));
    assert_eq!(
        dump(mesh)["services"],
        json!([{
            "name": "web", "namespace": "default", "hostname": "web.default.svc.cluster.local",
            "vips": ["/10.96.0.1"], "cidrVips": [{"network": "net", "cidr": "10.97.0.0/24"}],
            "ports": {"80": 8080},
            "endpoints": {uid("web-1"): {"workloadUid": uid("web-1"), "port": {"80": 9090}, "status": "Healthy"}},
            "subjectAltNames": ["spiffe://td/ns/a/sa/b"],
            "loadBalancer": {"routingPreferences": ["Network", "Region"], "mode": "Failover", "healthPolicy": "OnlyHealthy"},
            "ipFamilies": "IPv4", "canonical": false, "visibility": "Public",
        }])
    );
}

#[test]
fn endpoints_without_service_are_staged() {
    let shown = dump(Mesh::new().with(endpoint("web-1", "10.0.0.1", "web", &[(80, 9090)])));
    assert_eq!(shown["services"], json!([]));
    assert_eq!(
        shown["stagedServices"][key("web")][uid("web-1")]["port"],
        json!({"80": 9090})
    );
    assert_eq!(shown["policies"], json!([]));
}

#[test]
fn a_service_without_endpoints_shows_none() {
    let shown = dump(Mesh::new().with(support::service("web", "10.96.0.1", &[])));
    assert_eq!(shown["services"][0]["endpoints"], json!({}));
    assert_eq!(shown["stagedServices"], json!({}));
}
