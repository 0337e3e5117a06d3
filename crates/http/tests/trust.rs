//! Header trust by the sender's place and the number of trusted proxies.

mod common;

use common::*;
use lateen_http::*;

fn apply(
    fields: &[(&str, &str)],
    trust: Trust,
    downstream: &Downstream,
) -> Result<RequestHead, Refusal> {
    let mut text = "GET / HTTP/1.1\r\nhost: a\r\n".to_owned();
    for (name, value) in fields {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    let rules = Rules {
        trust,
        ..Rules::default()
    };
    canonical_of(raw1(format!("{text}\r\n").as_bytes())?, &rules, downstream).map(head)
}

fn value(head: &RequestHead, name: &str) -> Option<String> {
    let name = FieldName::new(name).expect("a name");
    let values: Vec<_> = head.fields().named(&name).map(text).collect();
    (!values.is_empty()).then(|| values.join(" | "))
}

const PEER: &str = "198.51.100.7";

#[test]
fn the_clients_address_is_counted_from_the_right() {
    use PeerKind::*;
    for (kind, hops, sent, client, out) in [
        // Istio: the address of the peer, and its address behind what it sent.
        (Edge, 0, &["1.1.1.1"][..], PEER, "1.1.1.1, 198.51.100.7"),
        (Edge, 0, &[], PEER, PEER),
        (
            Edge,
            1,
            &["6.6.6.6, 1.1.1.1"],
            "1.1.1.1",
            "6.6.6.6, 1.1.1.1, 198.51.100.7",
        ),
        (
            Edge,
            2,
            &["6.6.6.6, 1.1.1.1, 2.2.2.2"],
            "1.1.1.1",
            "6.6.6.6, 1.1.1.1, 2.2.2.2, 198.51.100.7",
        ),
        (
            Edge,
            2,
            &["6.6.6.6", "1.1.1.1, 2.2.2.2"],
            "1.1.1.1",
            "6.6.6.6, 1.1.1.1, 2.2.2.2, 198.51.100.7",
        ),
        (
            Edge,
            1,
            &["[2001:db8::1]:443"],
            "2001:db8::1",
            "[2001:db8::1]:443, 198.51.100.7",
        ),
        (
            Edge,
            1,
            &["::ffff:1.1.1.1"],
            "1.1.1.1",
            "::ffff:1.1.1.1, 198.51.100.7",
        ),
        // Too few elements, and one that is no address.
        (Edge, 2, &["1.1.1.1"], PEER, "1.1.1.1, 198.51.100.7"),
        (Edge, 1, &["unknown"], PEER, "unknown, 198.51.100.7"),
        // In the mesh: the last element, and nothing is added.
        (
            Mesh,
            0,
            &["1.1.1.1, 2.2.2.2"],
            "2.2.2.2",
            "1.1.1.1, 2.2.2.2",
        ),
        (
            Mesh,
            1,
            &["1.1.1.1, 2.2.2.2"],
            "1.1.1.1",
            "1.1.1.1, 2.2.2.2",
        ),
    ] {
        let sent: Vec<_> = sent
            .iter()
            .map(|value| ("x-forwarded-for", *value))
            .collect();
        let trust = Trust {
            trusted_proxies: hops,
            ..Trust::default()
        };
        let head = apply(&sent, trust, &peer(kind)).expect("it is good");
        assert_eq!(
            head.client().to_string(),
            client,
            "{kind:?} {hops} {sent:?}"
        );
        assert_eq!(
            value(&head, "x-forwarded-for").as_deref(),
            Some(out),
            "{kind:?} {hops} {sent:?}"
        );
        let external = (kind == Edge).then_some(client);
        assert_eq!(
            value(&head, "x-envoy-external-address").as_deref(),
            external
        );
    }
    let head = apply(&[], Trust::default(), &peer(Mesh)).expect("it is good");
    assert_eq!(
        (
            head.client().to_string().as_str(),
            value(&head, "x-forwarded-for")
        ),
        (PEER, None)
    );
}

#[test]
fn vouched_elements_alone_are_kept_if_the_setting_says_so() {
    for (hops, sent, out) in [
        (0, "6.6.6.6, 1.1.1.1", PEER.to_owned()),
        (1, "6.6.6.6, 1.1.1.1", format!("1.1.1.1, {PEER}")),
        (5, "6.6.6.6, 1.1.1.1", format!("6.6.6.6, 1.1.1.1, {PEER}")),
    ] {
        let trust = Trust {
            trusted_proxies: hops,
            forwarded_for: ForwardedFor::Vouched,
            ..Trust::default()
        };
        let head =
            apply(&[("x-forwarded-for", sent)], trust, &peer(PeerKind::Edge)).expect("it is good");
        assert_eq!(value(&head, "x-forwarded-for"), Some(out));
    }
}

#[test]
fn the_scheme_is_that_of_the_transport_unless_a_trusted_proxy_says_otherwise() {
    use PeerKind::*;
    for (kind, hops, sent, scheme) in [
        (Edge, 0, &[][..], "http"),
        (Edge, 0, &["https"], "http"),
        (Edge, 1, &["https"], "https"),
        (Edge, 1, &["HTTPS"], "https"),
        (Edge, 1, &["ftp"], "http"),
        (Edge, 1, &["https", "http"], "http"),
        (Edge, 1, &["https, http"], "http"),
        (Mesh, 0, &["https"], "https"),
        (Mesh, 0, &[], "http"),
    ] {
        let sent: Vec<_> = sent
            .iter()
            .map(|value| ("x-forwarded-proto", *value))
            .collect();
        let trust = Trust {
            trusted_proxies: hops,
            ..Trust::default()
        };
        let head = apply(&sent, trust, &peer(kind)).expect("it is good");
        assert_eq!(head.scheme().as_str(), scheme, "{kind:?} {hops} {sent:?}");
        let field = value(&head, "x-forwarded-proto").expect("it is always there");
        assert_eq!(field.to_ascii_lowercase(), scheme);
    }
}

#[test]
fn each_field_is_removed_or_kept_by_the_place_of_the_sender() {
    // Kept at the edge without trusted proxies, at the edge behind one, in the mesh.
    for (name, expected) in [
        ("x-forwarded-host", [false, true, true]),
        ("x-forwarded-port", [false, true, true]),
        ("x-forwarded-prefix", [false, true, true]),
        ("x-forwarded-server", [false, true, true]),
        ("X-Forwarded-Anything", [false, true, true]),
        ("forwarded", [false, true, true]),
        ("x-real-ip", [false, true, true]),
        ("x-forwarded-network", [false, false, true]),
        ("x-istio-source", [false, false, true]),
        ("baggage", [false, false, true]),
        ("x-envoy-retry-on", [false, false, true]),
        ("x-envoy-max-retries", [false, false, true]),
        ("x-envoy-upstream-rq-timeout-ms", [false, false, true]),
        ("x-envoy-decorator-operation", [false, false, true]),
        ("x-envoy-peer-metadata", [false, false, true]),
        ("x-envoy-force-trace", [false, false, true]),
        ("X-Envoy-Unknown-Yet", [false, false, true]),
        ("x-envoy-internal", [false, false, false]),
        ("x-envoy-original-path", [false, false, false]),
        ("x-envoy-original-dst-host", [false, false, false]),
        ("traceparent", [true, true, true]),
        ("tracestate", [true, true, true]),
        ("b3", [true, true, true]),
        ("x-b3-traceid", [true, true, true]),
        ("x-b3-sampled", [true, true, true]),
        ("x-custom", [true, true, true]),
    ] {
        let places = [
            (PeerKind::Edge, 0),
            (PeerKind::Edge, 1),
            (PeerKind::Mesh, 0),
        ];
        for ((kind, hops), expected) in places.into_iter().zip(expected) {
            let trust = Trust {
                trusted_proxies: hops,
                ..Trust::default()
            };
            let head = apply(&[(name, "v")], trust, &peer(kind)).expect("it is good");
            assert_eq!(
                value(&head, name).is_some(),
                expected,
                "{name} {kind:?} {hops}"
            );
        }
    }
}

/// CVE-2024-45806: a peer was trusted because its address is a private one.
#[test]
fn a_private_address_at_the_edge_has_no_trust() {
    for address in ["10.0.0.7:40000", "[fd00::7]:40000"] {
        let address: std::net::SocketAddr = address.parse().expect("an address");
        let private = Downstream::new(PeerKind::Edge, address, Scheme::Http);
        let sent = [
            ("x-envoy-retry-on", "5xx"),
            ("x-envoy-internal", "true"),
            ("x-forwarded-for", "1.1.1.1"),
        ];
        let head = apply(&sent, Trust::default(), &private).expect("it is good");
        assert_eq!(value(&head, "x-envoy-retry-on"), None, "{address}");
        assert_eq!(value(&head, "x-envoy-internal"), None, "{address}");
        assert_eq!(head.client(), address.ip(), "{address}");
    }
}

#[test]
fn trace_context_of_the_edge_is_dropped_if_the_setting_says_so() {
    let trust = Trust {
        drops_trace_context: true,
        ..Trust::default()
    };
    for name in [
        "traceparent",
        "tracestate",
        "b3",
        "x-b3-traceid",
        "x-b3-spanid",
        "x-b3-parentspanid",
        "x-b3-sampled",
        "x-b3-flags",
    ] {
        let of = |kind| {
            value(
                &apply(&[(name, "v")], trust, &peer(kind)).expect("it is good"),
                name,
            )
        };
        assert_eq!(of(PeerKind::Edge), None, "{name}");
        assert_eq!(of(PeerKind::Mesh).as_deref(), Some("v"), "{name}");
    }
}

#[test]
fn request_ids_of_the_edge_are_replaced_and_those_of_the_mesh_kept() {
    let id = |kind, keeps, sent: &[(&str, &str)]| {
        let trust = Trust {
            keeps_request_id: keeps,
            ..Trust::default()
        };
        value(
            &apply(sent, trust, &peer(kind)).expect("it is good"),
            "x-request-id",
        )
        .expect("it is always there")
    };
    let sent = &[("x-request-id", "mine")][..];
    let twice = &[("x-request-id", "mine"), ("x-request-id", "other")][..];
    assert_eq!(id(PeerKind::Mesh, false, twice), "mine,other");
    assert_eq!(id(PeerKind::Edge, false, sent), ID);
    assert_eq!(id(PeerKind::Edge, true, sent), "mine");
    assert_eq!(id(PeerKind::Edge, true, &[]), ID);
    assert_eq!(id(PeerKind::Mesh, false, sent), "mine");
    assert_eq!(id(PeerKind::Mesh, false, &[]), ID);
    assert_eq!(id(PeerKind::Mesh, false, &[("x-request-id", "")]), ID);
}

#[test]
fn names_with_underscores_are_kept_removed_or_refused() {
    let of = |underscores| {
        let trust = Trust {
            underscores,
            ..Trust::default()
        };
        let head = apply(
            &[("x_forwarded_for", "1.1.1.1")],
            trust,
            &peer(PeerKind::Edge),
        );
        head.map(|head| value(&head, "x_forwarded_for"))
            .map_err(|refusal| refusal.cause())
    };
    assert_eq!(of(Underscores::Keep), Ok(Some("1.1.1.1".to_owned())));
    assert_eq!(of(Underscores::Remove), Ok(None));
    assert_eq!(of(Underscores::Refuse), Err(Cause::NameUnderscore));
}

/// CGI and WSGI make one name of both spellings.
#[test]
fn names_with_underscores_do_not_stand_for_fields_of_framing_or_of_this_proxy() {
    for name in [
        "content_length",
        "Content_Length",
        "transfer_encoding",
        "transfer-encoding_",
        "x_forwarded_client_cert",
        "X-Forwarded_Client-Cert",
        "x_envoy_internal",
        "proxy_connection",
        "x_user",
        "x_forwarded_for",
    ] {
        let is_kept = ["x_user", "x_forwarded_for", "transfer-encoding_"].contains(&name);
        for kind in [PeerKind::Mesh, PeerKind::Edge] {
            let head = apply(&[(name, "v")], Trust::default(), &peer(kind)).expect("it is good");
            assert_eq!(value(&head, name).is_some(), is_kept, "{name} {kind:?}");
        }
    }
    let edge = apply(
        &[("x_real_ip", "v")],
        Trust::default(),
        &peer(PeerKind::Edge),
    );
    assert_eq!(value(&edge.expect("it is good"), "x_real_ip"), None);
}

fn certificate() -> ClientCertificate {
    ClientCertificate {
        hash: "ab12".to_owned(),
        subject: "CN=a \"b\",O=c;d".to_owned(),
        uris: vec!["spiffe://cluster.local/ns/default/sa/a".to_owned()],
        dns: vec!["a.b".to_owned()],
        pem: "-----BEGIN\n+/=".to_owned(),
        chain: "-\n".to_owned(),
        local_uris: vec!["spiffe://cluster.local/ns/default/sa/b".to_owned()],
    }
}

#[test]
fn client_certificates_are_forwarded_as_the_setting_says() {
    use ForwardClientCert::*;
    let own = "By=spiffe://cluster.local/ns/default/sa/b;Hash=ab12;Subject=\"CN=a \\\"b\\\",O=c;d\";URI=spiffe://cluster.local/ns/default/sa/a;DNS=a.b";
    let both = format!("Hash=old,{own}");
    for (setting, sent, with, without) in [
        (Sanitize, true, None, None),
        (ForwardOnly, true, Some("Hash=old"), None),
        (ForwardOnly, false, None, None),
        (AppendForward, true, Some(&*both), None),
        (AppendForward, false, Some(own), None),
        (SanitizeSet, true, Some(own), None),
        (AlwaysForwardOnly, true, Some("Hash=old"), Some("Hash=old")),
    ] {
        let trust = Trust {
            client_cert: setting,
            cert_details: CertDetails::ISTIO,
            ..Trust::default()
        };
        let fields = if sent {
            &[("x-forwarded-client-cert", "Hash=old")][..]
        } else {
            &[]
        };
        for kind in [PeerKind::Edge, PeerKind::Mesh] {
            let of = |downstream: &Downstream| {
                value(
                    &apply(fields, trust, downstream).expect("it is good"),
                    "x-forwarded-client-cert",
                )
            };
            assert_eq!(
                of(&peer(kind).with_certificate(certificate())).as_deref(),
                with,
                "{setting:?} {kind:?}"
            );
            assert_eq!(of(&peer(kind)).as_deref(), without, "{setting:?} {kind:?}");
        }
    }
}

#[test]
fn pem_is_encoded_and_roles_have_istios_settings() {
    let details = CertDetails {
        cert: true,
        chain: true,
        ..CertDetails::default()
    };
    let trust = Trust {
        client_cert: ForwardClientCert::SanitizeSet,
        cert_details: details,
        ..Trust::default()
    };
    let head = apply(
        &[],
        trust,
        &peer(PeerKind::Edge).with_certificate(certificate()),
    )
    .expect("it is good");
    let expected = "By=spiffe://cluster.local/ns/default/sa/b;Hash=ab12;Cert=\"-----BEGIN%0A%2B%2F%3D\";Chain=\"-%0A\"";
    assert_eq!(
        value(&head, "x-forwarded-client-cert").as_deref(),
        Some(expected)
    );
    assert_eq!(
        Trust::gateway(2).client_cert,
        ForwardClientCert::SanitizeSet
    );
    assert_eq!(Trust::gateway(2).trusted_proxies, 2);
    assert_eq!(
        Trust::sidecar().client_cert,
        ForwardClientCert::AppendForward
    );
    assert_eq!(Trust::waypoint().client_cert, ForwardClientCert::Sanitize);
}

#[test]
fn responses_to_the_edge_carry_nothing_of_the_mesh() {
    for (kind, kept) in [
        (PeerKind::Edge, &["server"][..]),
        (
            PeerKind::Mesh,
            &["server", "x-envoy-peer-metadata", "baggage"],
        ),
    ] {
        let fields = [
            ("server", "a"),
            ("x-envoy-peer-metadata", "b"),
            ("baggage", "c"),
            ("x-envoy-internal", "true"),
        ];
        let head = response1(200, &fields).and_then(|raw| raw.frame(Asked::Ordinary));
        let head = head
            .and_then(|framed| framed.canonical(None, kind))
            .expect("it is good");
        let names: Vec<_> = head
            .fields()
            .iter()
            .map(|field| text(field.name()))
            .collect();
        assert_eq!(names, kept, "{kind:?}");
    }
}
