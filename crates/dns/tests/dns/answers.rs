//! Which names the mesh has, and for whom.

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::{DNSClass, RecordType};
use lateen_dns::{Answer, TTL, Transport, View, answer, read};

use crate::support::{addresses, ask, ip, mesh, question, service, snapshot, view};

/// What is left to a resolver.
const FORWARD: &[&str] = &["a resolver"];

fn check(view: &View<'_>, name: &str, kind: RecordType, expected: &[&str]) {
    let got = match ask(view, name, kind) {
        Some(message) => {
            assert_eq!(
                message.metadata.response_code,
                ResponseCode::NoError,
                "{name}"
            );
            assert!(message.metadata.authoritative, "{name}");
            addresses(&message)
        }
        None => FORWARD.iter().map(ToString::to_string).collect(),
    };
    assert_eq!(got, expected, "{name} {kind} for {}", view.namespace);
}

#[test]
fn names_and_families() {
    let mesh = mesh();
    let view = view(&mesh);
    use RecordType::{A, AAAA};
    let table: &[(&str, RecordType, &[&str])] = &[
        // Short and full names.
        ("web", A, &["10.0.0.1"]),
        ("web.default", A, &["10.0.0.1"]),
        ("web.other", A, &["10.0.0.2"]),
        ("web.other.svc", A, &["10.0.0.2"]),
        ("web.other.svc.cluster.local.", A, &["10.0.0.2"]),
        // What a stub resolver's search list makes of them.
        ("web.other.default.svc.cluster.local", A, &["10.0.0.2"]),
        ("web.other.svc.svc.cluster.local", A, &["10.0.0.2"]),
        (
            "api.example.com.default.svc.cluster.local",
            A,
            &["240.0.0.1"],
        ),
        ("api.example.com.cluster.local", A, &["240.0.0.1"]),
        // Families: one that the name lacks is an empty answer.
        ("web", AAAA, &[]),
        ("dual", A, &["10.0.0.3"]),
        ("dual", AAAA, &["fd00::3"]),
        ("only4", A, &["10.1.1.1"]),
        ("only4", AAAA, &[]),
        // Headless: healthy endpoints on the client's network.
        ("headless", A, &["10.1.0.1", "10.1.0.2"]),
        ("headless", AAAA, &["fd01::1"]),
        ("all", A, &["10.1.2.1"]),
        ("empty", A, &[]),
        ("elsewhere", A, &[]),
        // Wildcards: an exact name first, then the closest.
        ("api.example.com", A, &["240.0.0.1"]),
        ("www.example.com", A, &["240.0.0.2"]),
        ("a.b.example.com", A, &["240.0.0.2"]),
        ("a.deep.example.com", A, &["240.0.0.3"]),
        ("example.com", A, FORWARD),
        // Not the mesh's, or without an address that it knows.
        ("example.org", A, FORWARD),
        ("by-dns.example.org", A, FORWARD),
        ("nothing.default.svc.cluster.local", A, FORWARD),
        (".", A, FORWARD),
        // Case does not matter.
        ("WeB.dEfAuLt.SvC.cluster.LOCAL", A, &["10.0.0.1"]),
        // Visibility.
        ("private.example.net", A, FORWARD),
    ];
    for (name, kind, expected) in table {
        check(&view, name, *kind, expected);
    }
}

#[test]
fn the_clients_namespace_then_canonical_then_preferred_then_any() {
    let mesh = mesh();
    let table: &[(&str, &str, Option<&str>, &str)] = &[
        ("a", "shared.example.net", None, "240.0.1.1"),
        ("b", "shared.example.net", None, "240.0.1.2"),
        ("z", "shared.example.net", None, "240.0.1.3"),
        ("z", "shared.example.net", Some("d"), "240.0.1.3"),
        ("z", "loose.example.net", None, "240.0.2.1"),
        ("z", "loose.example.net", Some("b"), "240.0.2.2"),
        ("a", "loose.example.net", Some("b"), "240.0.2.1"),
    ];
    for (namespace, name, preferred, expected) in table {
        let view = View {
            namespace,
            preferred: *preferred,
            ..view(&mesh)
        };
        check(&view, name, RecordType::A, &[expected]);
    }
    let owner = View {
        namespace: "other",
        ..view(&mesh)
    };
    check(&owner, "private.example.net", RecordType::A, &["240.0.0.4"]);
    check(&owner, "web", RecordType::A, &["10.0.0.2"]);
}

/// Entries of a tenant for names of the cluster that are not its own take nobody's names, whatever they cover, whatever a
/// search list makes of a name, and whether or not the control plane says that they are entries.
#[test]
fn an_entry_takes_no_name_of_another_namespace() {
    for says in [true, false] {
        let entry = |namespace: &str, host: &str, address: &str| {
            let mut entry = service(namespace, host, &[address]);
            entry.canonical = true;
            if says {
                entry.extensions = vec![lateen_proto::workload::Extension {
                    name: "lateen.entry-created".into(),
                    config: Some(Default::default()),
                }];
            }
            lateen_testkit::wds::service_resource(entry)
        };
        let own = |name: &str, addresses: &[&str]| {
            let host = format!("{name}.other.svc.cluster.local");
            lateen_testkit::wds::service_resource(service("other", &host, addresses))
        };
        let mesh = snapshot(vec![
            own("web", &["10.0.0.2"]),
            own("db", &["10.0.0.3"]),
            lateen_testkit::wds::service_resource(service(
                "default",
                "mysql.default.svc.cluster.local",
                &[],
            )),
            entry("attic", "mysql-0.mysql", "240.6.6.30"),
            entry("attic", "*.mysql", "240.6.6.31"),
            entry("attic", "10-0-0-1.other.pod", "240.6.6.32"),
            entry("default", "api.example.com", "240.0.0.1"),
            entry("default", "*.mine.svc.cluster.local", "240.0.0.2"),
            entry("default", "*.test", "240.0.0.3"),
            entry("attic", "*.svc.cluster.local", "240.6.6.1"),
            entry("attic", "web.other.default.svc.cluster.local", "240.6.6.2"),
            entry("attic", "*.cluster.local", "240.6.6.3"),
            entry("attic", "own.attic.svc.cluster.local", "240.6.6.4"),
            entry("attic", "free.shop.svc.cluster.local", "240.6.6.5"),
            entry("attic", "*.local", "240.6.6.6"),
            entry("attic", "cluster.local", "240.6.6.7"),
            entry("attic", "*.other", "240.6.6.8"),
            entry("attic", "web.other", "240.6.6.9"),
            entry("attic", "web", "240.6.6.10"),
            entry("attic", "gone.other", "240.6.6.11"),
            entry("attic", "web.other.svc", "240.6.6.12"),
            entry("attic", "*.svc", "240.6.6.13"),
            entry("attic", "db-0.db.other.svc.cluster.local", "240.6.6.14"),
            entry("attic", "*.db.other.svc.cluster.local", "240.6.6.15"),
            entry("attic", "*.db.other", "240.6.6.16"),
            entry("attic", "db-0.db.other", "240.6.6.17"),
            entry("attic", "extern.shop", "240.6.6.18"),
            entry("com", "api.example.edu", "240.6.6.19"),
            entry("attic", "example.com", "240.6.6.25"),
            entry("attic", "api.example.org", "240.6.6.20"),
            entry("attic", "*.example.org", "240.6.6.21"),
            entry("attic", "*.com", "240.6.6.22"),
            entry("attic", "example.net", "240.6.6.23"),
            entry("attic", "*.test.local", "240.6.6.24"),
        ]);
        use RecordType::A;
        const DNS: &str = "a resolver";
        for (name, expected) in [
            // The owner's, however it is asked for.
            ("web.other.default.svc.cluster.local", "10.0.0.2"),
            ("web.other.svc.default.svc.cluster.local", "10.0.0.2"),
            ("web.other.svc.cluster.local", "10.0.0.2"),
            ("web.other.svc", "10.0.0.2"),
            ("web.other", "10.0.0.2"),
            ("own.attic.svc.cluster.local", "240.6.6.4"),
            ("own.attic", "240.6.6.4"),
            // The client's namespace may say what it likes, but names of the cluster are not covered by the way.
            ("api.example.com.default.svc.cluster.local", "240.0.0.1"),
            ("a.mine.svc.cluster.local", "240.0.0.2"),
            ("a.test", "240.0.0.3"),
            // Known to the cluster's DNS, if to anybody.
            ("free.shop.svc.cluster.local", DNS),
            ("none.shop.svc.cluster.local", DNS),
            ("db-0.db.other.svc.cluster.local", DNS),
            ("db-0.db.other.default.svc.cluster.local", DNS),
            ("db-0.db.other.svc", DNS),
            ("db-0.db.other", DNS),
            // Pods of a headless Service of the client's own namespace, when none of them is ready.
            ("mysql-0.mysql", DNS),
            ("mysql-1.mysql", DNS),
            ("mysql-0.mysql.default.svc.cluster.local", DNS),
            ("10-0-0-1.other.pod", DNS),
            ("extern.shop.default.svc.cluster.local", DNS),
            ("extern.shop.svc.cluster.local", DNS),
            ("gone.other.svc.cluster.local", DNS),
            // A control plane that tells entries keeps such a one to its namespace while it is the other's.
            ("gone.other", if says { "240.6.6.11" } else { DNS }),
            ("any.other", DNS),
            ("pod.any.other", DNS),
            ("web", DNS),
            ("web.default.svc.cluster.local", DNS),
            ("cluster.local", DNS),
            ("any.cluster.local", DNS),
            ("cluster.local.default.svc.cluster.local", DNS),
            // A search list ends with the name itself.
            ("api.example.org.default.svc.cluster.local", DNS),
            ("api.example.org", "240.6.6.20"),
            ("www.example.org", "240.6.6.21"),
            ("www.example.com", "240.6.6.22"),
            ("example.net", "240.6.6.23"),
            // There is a namespace com, but nothing in it that the mesh serves.
            ("example.com", "240.6.6.25"),
            ("printer.local", "240.6.6.6"),
            ("a.test.local", "240.6.6.24"),
        ] {
            check(&view(&mesh), name, A, &[expected]);
        }
        let attic = View {
            namespace: "attic",
            ..view(&mesh)
        };
        for (name, expected) in [
            ("free.shop.svc.cluster.local", "240.6.6.5"),
            ("extern.shop", "240.6.6.18"),
            ("web.other.svc.cluster.local", "10.0.0.2"),
        ] {
            check(&attic, name, A, &[expected]);
        }
    }
}

#[test]
fn a_wildcard_shorter_than_the_domain_covers_nothing_in_it_for_its_own_namespace_either() {
    let mesh = snapshot(
        [
            service("other", "web.other.svc.cluster.local", &["10.0.0.2"]),
            service("default", "*.local", &["240.0.0.1"]),
        ]
        .map(lateen_testkit::wds::service_resource)
        .into(),
    );
    use RecordType::A;
    for name in ["web.other.default.svc.cluster.local", "web.other"] {
        check(&view(&mesh), name, A, &["10.0.0.2"]);
    }
    check(&view(&mesh), "none.other.svc.cluster.local", A, FORWARD);
    check(&view(&mesh), "printer.local", A, &["240.0.0.1"]);
}

#[test]
fn a_client_without_ipv6_is_given_no_address_of_it() {
    let mesh = mesh();
    let view = View {
        ipv6: false,
        ..view(&mesh)
    };
    check(&view, "dual", RecordType::AAAA, &[]);
    check(&view, "dual", RecordType::A, &["10.0.0.3"]);
}

#[test]
fn a_client_on_another_network_gets_that_networks_addresses() {
    let mesh = mesh();
    let view = View {
        network: "far",
        ..view(&mesh)
    };
    check(&view, "elsewhere", RecordType::A, &["10.9.9.9"]);
    check(&view, "headless", RecordType::A, &["10.1.0.4"]);
    check(&view, "web", RecordType::A, &[]);
}

#[test]
fn other_types_are_left_to_a_resolver_that_must_not_deny_the_name() {
    let mesh = mesh();
    for (name, exists) in [("web", true), ("example.org", false)] {
        for kind in [
            RecordType::HTTPS,
            RecordType::SRV,
            RecordType::TXT,
            RecordType::ANY,
        ] {
            let query = read(&question(name, kind, None), Transport::Udp).unwrap();
            let got = answer(&query, &view(&mesh), |_| {});
            assert_eq!(got, Answer::Forward { exists }, "{name} {kind}");
        }
    }
}

#[test]
fn other_classes_are_left_to_a_resolver() {
    let mesh = mesh();
    let mut bytes = question("web", RecordType::A, None);
    let class = bytes.len() - 1;
    assert_eq!(bytes[class], u16::from(DNSClass::IN) as u8);
    bytes[class] = u16::from(DNSClass::CH) as u8;
    let query = read(&bytes, Transport::Udp).unwrap();
    let got = answer(&query, &view(&mesh), |_| {});
    assert_eq!(got, Answer::Forward { exists: false });
}

#[test]
fn an_answer_repeats_the_question_letter_by_letter_and_says_how_long_it_holds() {
    let mesh = mesh();
    let message = ask(&view(&mesh), "wEb.DEFault", RecordType::A).unwrap();
    assert_eq!(message.metadata.id, 4711);
    assert!(message.metadata.recursion_desired && message.metadata.recursion_available);
    assert_eq!(message.queries[0].name().to_ascii(), "wEb.DEFault.");
    let [record] = message.answers.as_slice() else {
        panic!("{message:?}");
    };
    // No alias in between: the answer is under the name that was asked for.
    assert_eq!(record.name.to_ascii(), "wEb.DEFault.");
    assert_eq!(record.ttl, TTL);
}

#[test]
fn addresses_are_shuffled() {
    let mesh = mesh();
    let query = read(&question("headless", RecordType::A, None), Transport::Udp).unwrap();
    let Answer::Reply { message, .. } = answer(&query, &view(&mesh), |all| all.reverse()) else {
        panic!("a headless service is the mesh's");
    };
    let message = hickory_proto::op::Message::from_vec(&message).unwrap();
    assert_eq!(addresses(&message), ["10.1.0.2", "10.1.0.1"]);
    assert_eq!(message.answers[0].data.ip_addr(), Some(ip("10.1.0.2")));
}
