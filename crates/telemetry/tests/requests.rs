//! The metrics of requests as Prometheus reads them.

use std::time::Duration;

use lateen_telemetry::{
    BuildInfo, Finished, GrpcStatus, Labels, Metrics, Party, Protocol, Reporter, RequestFlags,
    ResponseFlags, Security, Service,
};

/// The labels that all series of the page have, but for the response's.
const ENDS: &str = "source_workload=\"web\",source_canonical_service=\"unknown\",\
    source_canonical_revision=\"unknown\",source_workload_namespace=\"shop\",source_principal=\"unknown\",\
    source_app=\"unknown\",source_version=\"unknown\",source_cluster=\"unknown\",\
    destination_service=\"pay.shop.svc.cluster.local\",destination_service_namespace=\"shop\",\
    destination_service_name=\"pay\",destination_workload=\"unknown\",\
    destination_canonical_service=\"unknown\",destination_canonical_revision=\"unknown\",\
    destination_workload_namespace=\"unknown\",destination_principal=\"unknown\",destination_app=\"unknown\",\
    destination_version=\"unknown\",destination_cluster=\"unknown\"";

const BUCKETS: [&str; 20] = [
    "0.5",
    "1.0",
    "5.0",
    "10.0",
    "25.0",
    "50.0",
    "100.0",
    "250.0",
    "500.0",
    "1000.0",
    "2500.0",
    "5000.0",
    "10000.0",
    "30000.0",
    "60000.0",
    "300000.0",
    "600000.0",
    "1800000.0",
    "3600000.0",
    "+Inf",
];

/// A series' labels, without the brackets.
fn labels(protocol: &str, code: &str, status: &str, flags: &str) -> String {
    format!(
        "reporter=\"waypoint\",{ENDS},request_protocol=\"{protocol}\",response_flags=\"{flags}\",\
         connection_security_policy=\"mutual_tls\",response_code=\"{code}\",grpc_response_status=\"{status}\""
    )
}

/// The lines of a histogram with one value.
fn histogram(name: &str, labels: &str, value: f64, shown: &str) -> String {
    let mut lines =
        format!("istio_{name}_sum{{{labels}}} {shown}\nistio_{name}_count{{{labels}}} 1\n");
    for bound in BUCKETS {
        let reached = bound == "+Inf" || value <= bound.parse().expect("a number");
        let count = u64::from(reached);
        lines += &format!("istio_{name}_bucket{{le=\"{bound}\",{labels}}} {count}\n");
    }
    lines
}

fn page() -> String {
    let build = BuildInfo {
        component: "waypoint",
        tag: "1",
    };
    let metrics = Metrics::new(&build, Vec::new);
    let cell = metrics.requests().cell(Labels {
        reporter: Reporter::Waypoint,
        source: Party {
            workload: Some("web".into()),
            namespace: Some("shop".into()),
            ..Party::default()
        },
        service: Some(Service {
            hostname: "pay.shop.svc.cluster.local".into(),
            name: "pay".into(),
            namespace: "shop".into(),
        }),
        destination: Party::default(),
        flags: ResponseFlags::None,
        security: Security::MutualTls,
    });
    cell.finish(&Finished {
        protocol: Protocol::Http,
        code: 404,
        grpc_status: None,
        flags: RequestFlags::NoRoute,
        duration: Duration::from_micros(1500),
        request_bytes: 300,
        response_bytes: 70,
        request_messages: 0,
        response_messages: 0,
    });
    cell.finish(&Finished {
        protocol: Protocol::Grpc,
        code: 200,
        grpc_status: Some(GrpcStatus::new(14)),
        flags: RequestFlags::None,
        duration: Duration::from_millis(20),
        request_bytes: 1_000,
        response_bytes: 4_000_000,
        request_messages: 1,
        response_messages: 7,
    });
    metrics.render()
}

#[test]
fn a_page_has_istios_metrics_of_requests() {
    let http = labels("http", "404", "", "NR");
    let grpc = labels("grpc", "200", "14", "-");
    let mut expected = String::new();
    let counter = |name: &str, help: &str, lines: &[(&str, u64)]| {
        let mut text = format!("# HELP istio_{name} {help}\n# TYPE istio_{name} counter\n");
        for (labels, value) in lines {
            text += &format!("istio_{name}_total{{{labels}}} {value}\n");
        }
        text
    };
    expected += &counter(
        "requests",
        "The total number of requests",
        &[(&grpc, 1), (&http, 1)],
    );
    expected += &counter(
        "request_messages",
        "The total number of gRPC messages from clients to servers",
        &[(&grpc, 1)],
    );
    expected += &counter(
        "response_messages",
        "The total number of gRPC messages from servers to clients",
        &[(&grpc, 7)],
    );
    for (name, help, [of_http, of_grpc]) in [
        (
            "request_duration_milliseconds",
            "How long requests took, from their first byte to the last one of their response",
            [(1.5, "1.5"), (20., "20.0")],
        ),
        (
            "request_bytes",
            "The bytes of requests, with their headers",
            [(300., "300.0"), (1000., "1000.0")],
        ),
        (
            "response_bytes",
            "The bytes of responses, with their headers",
            [(70., "70.0"), (4_000_000., "4000000.0")],
        ),
    ] {
        expected += &format!("# HELP istio_{name} {help}\n# TYPE istio_{name} histogram\n");
        expected += &histogram(name, &grpc, of_grpc.0, of_grpc.1);
        expected += &histogram(name, &http, of_http.0, of_http.1);
    }
    let page = page();
    let start = page
        .find("# HELP istio_requests ")
        .expect("requests are declared");
    let end = page.find("# EOF").expect("a page has an end");
    assert_eq!(&page[start..end], expected);
}

#[test]
fn each_reporter_has_its_word() {
    let words = [Reporter::Source, Reporter::Destination, Reporter::Waypoint];
    assert_eq!(
        words.map(Reporter::as_str),
        ["source", "destination", "waypoint"]
    );
}
