//! The page that Prometheus reads: names and labels are an interface that dashboards are built on.

use std::sync::Arc;
use std::time::Instant;

use lateen_telemetry::{
    Buffers, BuildInfo, Connection, Failure, HttpAccounts, HttpBuffers, Labels, Metrics, Opening,
    Party, Reporter, ResponseFlags, Security, Service, XdsTermination,
};
use lateen_types::Identity;

fn metrics() -> Arc<Metrics> {
    let build = BuildInfo {
        component: "ztunnel",
        tag: "1.2.3",
    };
    Arc::new(Metrics::new(&build, || vec![3, 5]))
}

fn party(name: &str) -> Party {
    Party {
        workload: Some(name.into()),
        canonical_service: Some(format!("{name}-service").into()),
        canonical_revision: Some("v1".into()),
        namespace: Some("default".into()),
        principal: Some(Identity::new("cluster.local", "default", name).unwrap()),
        app: Some(format!("{name}-service").into()),
        version: Some("v1".into()),
        cluster: Some("Kubernetes".into()),
        locality: None,
    }
}

fn labels() -> Labels {
    Labels {
        reporter: Reporter::Source,
        source: party("client"),
        service: Some(Service {
            hostname: "echo.default.svc.cluster.local".into(),
            name: "echo".into(),
            namespace: "default".into(),
        }),
        destination: party("echo"),
        flags: ResponseFlags::None,
        security: Security::MutualTls,
    }
}

fn opening(labels: Labels) -> Opening {
    Opening {
        start: Instant::now(),
        source: "10.244.1.2:40000".parse().unwrap(),
        source_name: None,
        destination: "10.244.2.2:15008".parse().unwrap(),
        hbone: None,
        destination_name: None,
        trace: None,
        labels,
    }
}

/// The value of the one series of this metric whose labels hold all of `words`.
fn value(page: &str, metric: &str, words: &[&str]) -> Option<f64> {
    let mut found = page
        .lines()
        .filter(|line| {
            line.starts_with(&format!("{metric}{{")) || line.starts_with(&format!("{metric} "))
        })
        .filter(|line| words.iter().all(|word| line.contains(word)));
    let line = found.next()?;
    assert_eq!(
        found.next(),
        None,
        "more than one series of {metric} with {words:?}"
    );
    line.rsplit(' ').next()?.parse().ok()
}

#[test]
fn a_series_carries_ztunnels_labels_in_ztunnels_order() {
    let metrics = metrics();
    Connection::open(&metrics, opening(labels())).finish(Ok(()));
    let page = metrics.render();
    let expected = "istio_tcp_connections_opened_total{reporter=\"source\",\
        source_workload=\"client\",source_canonical_service=\"client-service\",source_canonical_revision=\"v1\",\
        source_workload_namespace=\"default\",source_principal=\"spiffe://cluster.local/ns/default/sa/client\",\
        source_app=\"client-service\",source_version=\"v1\",source_cluster=\"Kubernetes\",\
        destination_service=\"echo.default.svc.cluster.local\",destination_service_namespace=\"default\",\
        destination_service_name=\"echo\",destination_workload=\"echo\",\
        destination_canonical_service=\"echo-service\",destination_canonical_revision=\"v1\",\
        destination_workload_namespace=\"default\",\
        destination_principal=\"spiffe://cluster.local/ns/default/sa/echo\",destination_app=\"echo-service\",\
        destination_version=\"v1\",destination_cluster=\"Kubernetes\",request_protocol=\"tcp\",\
        response_flags=\"-\",connection_security_policy=\"mutual_tls\"} 1";
    assert!(page.lines().any(|line| line == expected), "{page}");
}

#[test]
fn what_is_not_known_is_unknown_and_localities_show_when_there_are_any() {
    let metrics = metrics();
    let unknown = Labels {
        source: Party::default(),
        destination: Party {
            locality: Some((Some("r1".into()), None)),
            workload: Some("".into()),
            ..Party::default()
        },
        service: None,
        security: Security::Unknown,
        ..labels()
    };
    Connection::open(&metrics, opening(unknown)).finish(Ok(()));
    let page = metrics.render();
    let words = [
        "source_workload=\"unknown\"",
        "source_principal=\"unknown\"",
        "destination_workload=\"unknown\"",
        "destination_service=\"unknown\"",
        "connection_security_policy=\"unknown\"",
        "source_region=\"unknown\",source_zone=\"unknown\",destination_region=\"r1\",destination_zone=\"unknown\"}",
    ];
    assert_eq!(
        value(&page, "istio_tcp_connections_opened_total", &words),
        Some(1.0)
    );
}

#[test]
fn bytes_count_while_the_connection_is_open() {
    let metrics = metrics();
    let connection = Connection::open(&metrics, opening(labels()));
    connection.add_received(10);
    connection.add_sent(300);
    connection.add_received(5);
    let page = metrics.render();
    assert_eq!(
        value(&page, "istio_tcp_received_bytes_total", &[]),
        Some(15.0)
    );
    assert_eq!(value(&page, "istio_tcp_sent_bytes_total", &[]), Some(300.0));
    assert_eq!(
        value(&page, "istio_tcp_connections_closed_total", &[]),
        None
    );
    connection.finish(Ok(()));
    assert_eq!(
        value(&metrics.render(), "istio_tcp_connections_closed_total", &[]),
        Some(1.0)
    );
    assert_eq!(
        value(&metrics.render(), "istio_tcp_connections_failed_total", &[]),
        None
    );
}

#[test]
fn each_failure_closes_and_fails_under_its_flag() {
    for (flags, label) in [
        (ResponseFlags::Denied, "DENY"),
        (ResponseFlags::ConnectionFailure, "CONNECT"),
        (ResponseFlags::TlsFailure, "TLS_FAILURE"),
        (ResponseFlags::Http2Handshake, "H2_HANDSHAKE_FAILURE"),
        (ResponseFlags::NetworkPolicy, "NETWORK_POLICY"),
        (ResponseFlags::Identity, "IDENTITY_ERROR"),
    ] {
        let metrics = metrics();
        let reason = "because".to_owned();
        Connection::open(&metrics, opening(labels())).finish(Err(Failure { flags, reason }));
        let page = metrics.render();
        let flagged = format!("response_flags=\"{label}\"");
        assert_eq!(
            value(&page, "istio_tcp_connections_failed_total", &[&flagged]),
            Some(1.0)
        );
        assert_eq!(
            value(&page, "istio_tcp_connections_closed_total", &[&flagged]),
            Some(1.0)
        );
        assert_eq!(
            value(
                &page,
                "istio_tcp_connections_opened_total",
                &["response_flags=\"-\""]
            ),
            Some(1.0)
        );
    }
}

#[test]
fn a_connection_that_is_dropped_counts_as_cut() {
    let metrics = metrics();
    drop(Connection::open(&metrics, opening(labels())));
    let page = metrics.render();
    assert_eq!(
        value(
            &page,
            "istio_tcp_connections_failed_total",
            &["response_flags=\"CONNECT\""]
        ),
        Some(1.0)
    );
}

#[test]
fn equal_labels_share_a_series() {
    let metrics = metrics();
    for _ in 0..3 {
        Connection::open(&metrics, opening(labels())).finish(Ok(()));
    }
    assert_eq!(
        value(&metrics.render(), "istio_tcp_connections_opened_total", &[]),
        Some(3.0)
    );
}

#[test]
fn a_connection_refused_early_only_fails() {
    let metrics = metrics();
    metrics.refused(Labels {
        flags: ResponseFlags::TlsFailure,
        ..labels()
    });
    let page = metrics.render();
    assert_eq!(
        value(
            &page,
            "istio_tcp_connections_failed_total",
            &["response_flags=\"TLS_FAILURE\""]
        ),
        Some(1.0)
    );
    assert_eq!(
        value(&page, "istio_tcp_connections_opened_total", &[]),
        None
    );
}

#[test]
fn the_other_metrics_have_their_names() {
    let metrics = metrics();
    metrics.xds_message("type.googleapis.com/istio.workload.Address", 17);
    metrics.xds_terminated(XdsTermination::Reconnect);
    metrics.certificate_requested(true);
    metrics.certificate_requested(false);
    metrics.pod_started();
    metrics.pod_started();
    metrics.pod_stopped();
    let _open = metrics.open_sockets(Reporter::Destination).inc();
    let page = metrics.render();
    let address = ["istio.workload.Address"];
    for (metric, words, expected) in [
        (
            "istio_build",
            &["component=\"ztunnel\"", "tag=\"1.2.3\""][..],
            1.0,
        ),
        ("istio_xds_message_total", &address[..], 1.0),
        ("istio_xds_message_bytes_total", &address[..], 17.0),
        (
            "istio_xds_connection_terminations_total",
            &["reason=\"Reconnect\""],
            1.0,
        ),
        ("istio_tcp_sockets_open", &["reporter=\"destination\""], 1.0),
        ("lateen_worker_connections", &["worker=\"0\""], 3.0),
        ("lateen_worker_connections", &["worker=\"1\""], 5.0),
        (
            "lateen_certificate_requests_total",
            &["outcome=\"granted\""],
            1.0,
        ),
        (
            "lateen_certificate_requests_total",
            &["outcome=\"failed\""],
            1.0,
        ),
        ("workload_manager_active_proxy_count", &[], 1.0),
        ("workload_manager_proxies_started_total", &[], 2.0),
        ("workload_manager_proxies_stopped_total", &[], 1.0),
    ] {
        assert_eq!(
            value(&page, metric, words),
            Some(expected),
            "{metric} in\n{page}"
        );
    }
    assert!(value(&page, "process_open_fds", &[]).unwrap() > 0.0);
    assert!(value(&page, "process_max_fds", &[]).unwrap() > 0.0);
    assert!(value(&page, "process_resident_memory_bytes", &[]).unwrap() > 1e5);
    assert!(page.ends_with("# EOF\n"));
}

#[test]
fn tells_what_tunnels_have_of_their_buffers() {
    let metrics = metrics();
    metrics.watch_buffers(|| {
        [("receive", 3), ("send", 4)].map(|(direction, granted)| Buffers {
            direction,
            granted,
            limit: 10 * granted,
        })
    });
    let page = metrics.render();
    for (name, expected) in [
        ("lateen_tunnel_buffer_bytes", [3.0, 4.0]),
        ("lateen_tunnel_buffer_limit_bytes", [30.0, 40.0]),
    ] {
        let had = ["receive", "send"].map(|direction| {
            let label = format!("direction=\"{direction}\"");
            value(&page, name, &[&label]).unwrap()
        });
        assert_eq!(had, expected, "{name} in\n{page}");
    }
}

#[test]
fn tells_what_accounts_of_requests_and_answers_hold() {
    let metrics = metrics();
    metrics.watch_http_buffers(|| HttpBuffers {
        accounts: [("process", 3), ("namespace", 4), ("identity", 5)].map(|(scope, number)| {
            HttpAccounts {
                scope,
                accounts: number,
                largest: 10 * number,
                limit: 100 * number,
            }
        }),
        waiting: 6,
    });
    let page = metrics.render();
    for (name, expected) in [
        ("lateen_http_buffer_accounts", [3.0, 4.0, 5.0]),
        ("lateen_http_buffer_bytes", [30.0, 40.0, 50.0]),
        ("lateen_http_buffer_limit_bytes", [300.0, 400.0, 500.0]),
    ] {
        let had = ["process", "namespace", "identity"].map(|scope| {
            let label = format!("scope=\"{scope}\"");
            value(&page, name, &[&label]).unwrap()
        });
        assert_eq!(had, expected, "{name} in\n{page}");
    }
    let waiting = value(&page, "lateen_http_buffer_waiting_connections", &[]);
    assert_eq!(waiting, Some(6.0), "{page}");
}

#[test]
fn tells_the_cpu_time_of_the_process() {
    let metrics = metrics();
    let seconds = || value(&metrics.render(), "process_cpu_seconds_total", &[]).unwrap();
    let before = seconds();
    while seconds() < before + 0.05 {} // each round uses some
    assert!(before > 0.0);
}

#[test]
fn connections_without_a_descriptor_are_counted() {
    let metrics = metrics();
    metrics.watch_shed(|| 7);
    let page = metrics.render();
    assert!(
        page.lines()
            .any(|line| line == "lateen_connections_shed_total 7"),
        "{page}"
    );
}
