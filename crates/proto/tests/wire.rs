//! Messages encoded by hand, from the field numbers of Istio's contract and the rules of protobuf: a wrong number in
//! `proto/` cannot pass by agreeing with itself.

use lateen_proto::security::{Action, Authorization, Scope, string_match};
use lateen_proto::workload::{Address, TunnelProtocol, WorkloadStatus, address, gateway_address};
use lateen_proto::zds::{
    WorkloadRequest, WorkloadResponse, ZdsHello, workload_request, workload_response,
};
use prost::Message;

/// A varint.
fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// A field that is a number.
fn number(field: u64, value: u64) -> Vec<u8> {
    [varint(field << 3), varint(value)].concat()
}

/// A field that is a text, bytes or a message.
fn length(field: u64, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    [
        varint(field << 3 | 2),
        varint(content.len() as u64),
        content.to_vec(),
    ]
    .concat()
}

#[test]
fn the_helpers_encode_as_the_specification_says() {
    // The two examples of the encoding guide.
    assert_eq!(number(1, 150), [0x08, 0x96, 0x01]);
    assert_eq!(
        length(2, "testing"),
        [0x12, 0x07, 0x74, 0x65, 0x73, 0x74, 0x69, 0x6e, 0x67]
    );
}

#[test]
fn a_workload() {
    let port = [number(1, 80), number(2, 8080), number(3, 1)].concat();
    let gateway = [
        length(2, [length(1, "net"), length(2, [10, 0, 0, 9])].concat()),
        number(3, 15008),
    ]
    .concat();
    let workload = [
        length(1, "web-1"),
        length(2, "default"),
        length(3, [10, 244, 1, 2]),
        length(4, "net"),
        number(5, 1),
        length(6, "example.org"),
        length(7, "web"),
        length(8, &gateway),
        length(9, "n1"),
        length(10, "web"),
        length(11, "v1"),
        number(12, 2),
        length(13, "web"),
        number(14, 1),
        length(16, "default/deny"),
        number(17, 1),
        length(18, "c1"),
        length(19, &gateway),
        length(20, "c1//Pod/default/web-1"),
        length(21, "web.example.org"),
        length(
            22,
            [
                length(1, "default/web.default.svc.cluster.local"),
                length(2, length(1, port)),
            ]
            .concat(),
        ),
        length(23, [number(1, 1), number(2, 15088)].concat()),
        length(
            24,
            [length(1, "r"), length(2, "z"), length(3, "s")].concat(),
        ),
        number(25, 1),
        length(27, number(1, 7)),
    ]
    .concat();
    let Some(address::Type::Workload(w)) = Address::decode(&*length(1, workload)).unwrap().r#type
    else {
        panic!("not a workload")
    };
    assert_eq!(
        (&*w.name, &*w.namespace, &*w.network),
        ("web-1", "default", "net")
    );
    assert_eq!(w.addresses, [&[10, 244, 1, 2][..]]);
    assert_eq!(w.tunnel_protocol(), TunnelProtocol::Hbone);
    assert_eq!(
        (&*w.trust_domain, &*w.service_account, &*w.node),
        ("example.org", "web", "n1")
    );
    for gateway in [w.waypoint.as_ref(), w.network_gateway.as_ref()] {
        let gateway = gateway.expect("a gateway");
        assert_eq!(gateway.hbone_mtls_port, 15008);
        let Some(gateway_address::Destination::Address(at)) = &gateway.destination else {
            panic!("{gateway:?}")
        };
        assert_eq!((&*at.network, &*at.address), ("net", &[10, 0, 0, 9][..]));
    }
    assert_eq!(
        (
            &*w.canonical_name,
            &*w.canonical_revision,
            &*w.workload_name
        ),
        ("web", "v1", "web")
    );
    assert_eq!((w.workload_type, w.native_tunnel), (2, true));
    assert_eq!(w.authorization_policies, ["default/deny"]);
    assert_eq!(w.status(), WorkloadStatus::Unhealthy);
    assert_eq!(
        (&*w.cluster_id, &*w.uid, &*w.hostname),
        ("c1", "c1//Pod/default/web-1", "web.example.org")
    );
    let ports = &w.services["default/web.default.svc.cluster.local"].ports;
    assert_eq!(
        (
            ports[0].service_port,
            ports[0].target_port,
            ports[0].app_protocol
        ),
        (80, 8080, 1)
    );
    let tunnel = w.application_tunnel.as_ref().expect("a tunnel");
    assert_eq!((tunnel.protocol, tunnel.port), (1, 15088));
    let locality = w.locality.as_ref().expect("a locality");
    assert_eq!(
        (&*locality.region, &*locality.zone, &*locality.subzone),
        ("r", "z", "s")
    );
    assert_eq!((w.network_mode, w.capacity), (1, Some(7)));
}

#[test]
fn a_service() {
    let host = [length(1, "gw"), length(2, "gw.example.org")].concat();
    let waypoint = [length(1, &host), number(3, 15008)].concat();
    let service = [
        length(1, "web"),
        length(2, "default"),
        length(3, "web.default.svc.cluster.local"),
        length(
            4,
            [length(1, ""), length(2, [10, 96, 0, 1]), number(3, 24)].concat(),
        ),
        length(5, [number(1, 80), number(2, 8080)].concat()),
        length(6, "spiffe://a/ns/b/sa/c"),
        length(7, &waypoint),
        // Repeated enums travel packed.
        length(
            8,
            [length(1, [6, 1, 2]), number(2, 2), number(3, 1)].concat(),
        ),
        number(9, 3),
        number(11, 1),
        number(12, 1),
        length(13, [length(1, &waypoint), number(2, 30)].concat()),
        number(14, 1),
    ]
    .concat();
    let Some(address::Type::Service(s)) = Address::decode(&*length(2, service)).unwrap().r#type
    else {
        panic!("not a service")
    };
    assert_eq!(
        (&*s.name, &*s.namespace, &*s.hostname),
        ("web", "default", "web.default.svc.cluster.local")
    );
    assert_eq!(
        (&*s.addresses[0].address, s.addresses[0].length),
        (&[10, 96, 0, 1][..], Some(24))
    );
    assert_eq!(
        (s.ports[0].service_port, s.ports[0].target_port),
        (80, 8080)
    );
    assert_eq!(s.subject_alt_names, ["spiffe://a/ns/b/sa/c"]);
    let Some(gateway_address::Destination::Hostname(host)) =
        &s.waypoint.as_ref().expect("a waypoint").destination
    else {
        panic!("{:?}", s.waypoint)
    };
    assert_eq!(
        (&*host.namespace, &*host.hostname),
        ("gw", "gw.example.org")
    );
    let balancing = s.load_balancing.as_ref().expect("load balancing");
    assert_eq!(
        (
            &*balancing.routing_preference,
            balancing.mode,
            balancing.health_policy
        ),
        (&[6, 1, 2][..], 2, 1)
    );
    assert_eq!(
        (
            s.ip_families,
            s.canonical,
            s.ingress_use_waypoint,
            s.visibility
        ),
        (3, true, true, 1)
    );
    assert_eq!(s.weighted_waypoints[0].weight, 30);
}

#[test]
fn an_authorization() {
    let range = [length(1, [10, 0, 0, 0]), number(2, 8)].concat();
    let attributes = [
        length(1, length(1, "exact-ns")),
        length(2, length(2, "prefix-ns")),
        length(3, length(3, "suffix-principal")),
        length(4, length(4, [])),
        length(5, &range),
        length(6, &range),
        length(7, &range),
        length(8, &range),
        length(9, varint(8080)),
        length(10, varint(9090)),
        length(11, [length(1, "default"), length(2, "web")].concat()),
        length(12, [length(1, "default"), length(2, "not-web")].concat()),
    ]
    .concat();
    let policy = [
        length(1, "name"),
        length(2, "namespace"),
        number(3, 2),
        number(4, 1),
        length(5, length(1, length(2, attributes))),
        number(6, 1),
    ]
    .concat();
    let policy = Authorization::decode(&*policy).unwrap();
    assert_eq!(
        (&*policy.name, &*policy.namespace, policy.dry_run),
        ("name", "namespace", true)
    );
    assert_eq!(
        (policy.scope(), policy.action()),
        (Scope::WorkloadSelector, Action::Deny)
    );
    let m = &policy.rules[0].clauses[0].matches[0];
    use string_match::MatchType::{Exact, Prefix, Presence, Suffix};
    assert_eq!(m.namespaces[0].match_type, Some(Exact("exact-ns".into())));
    assert_eq!(
        m.not_namespaces[0].match_type,
        Some(Prefix("prefix-ns".into()))
    );
    assert_eq!(
        m.principals[0].match_type,
        Some(Suffix("suffix-principal".into()))
    );
    assert_eq!(m.not_principals[0].match_type, Some(Presence(())));
    for range in [
        &m.source_ips,
        &m.not_source_ips,
        &m.destination_ips,
        &m.not_destination_ips,
    ] {
        assert_eq!(
            (&*range[0].address, range[0].length),
            (&[10, 0, 0, 0][..], 8)
        );
    }
    assert_eq!(
        (&*m.destination_ports, &*m.not_destination_ports),
        (&[8080][..], &[9090][..])
    );
    assert_eq!(
        (
            &*m.service_accounts[0].namespace,
            &*m.service_accounts[0].service_account
        ),
        ("default", "web")
    );
    assert_eq!(m.not_service_accounts[0].service_account, "not-web");
}

#[test]
fn zds() {
    assert_eq!(ZdsHello { version: 1 }.encode_to_vec(), number(1, 1));

    let info = [length(1, "web-1"), length(2, "default"), length(3, "web")].concat();
    let add = length(1, [length(1, "uid-1"), length(2, info)].concat());
    let Some(workload_request::Payload::Add(add)) = WorkloadRequest::decode(&*add).unwrap().payload
    else {
        panic!("not an add")
    };
    let info = add.workload_info.expect("names");
    assert_eq!(
        (
            &*add.uid,
            &*info.name,
            &*info.namespace,
            &*info.service_account
        ),
        ("uid-1", "web-1", "default", "web")
    );

    // The uid of a removal is field 2, unlike that of the others.
    let del = WorkloadRequest::decode(&*length(2, length(2, "uid-1")))
        .unwrap()
        .payload;
    assert!(matches!(del, Some(workload_request::Payload::Del(del)) if del.uid == "uid-1"));
    let keep = WorkloadRequest::decode(&*length(5, length(1, "uid-1")))
        .unwrap()
        .payload;
    assert!(matches!(keep, Some(workload_request::Payload::Keep(keep)) if keep.uid == "uid-1"));
    let sent = WorkloadRequest::decode(&*length(3, [])).unwrap().payload;
    assert!(matches!(
        sent,
        Some(workload_request::Payload::SnapshotSent(_))
    ));

    let ack = WorkloadResponse::decode(&*length(1, length(1, "no such namespace")))
        .unwrap()
        .payload;
    assert!(
        matches!(ack, Some(workload_response::Payload::Ack(ack)) if ack.error == "no such namespace")
    );
}
