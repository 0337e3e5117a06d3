use std::path::PathBuf;
use std::time::Duration;

use lateen_netns::Keepalive;
use lateen_telemetry::{Dropped, SeriesOptions};
use lateen_xds::Source;

use super::environment::{Environment, parse_duration};
use super::*;

fn read(variables: &[(&str, &str)], cores: usize) -> Result<Settings, SettingError> {
    let lookup = |name: &str| {
        let found = variables.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    Settings::read(&lookup, cores)
}

fn with(variable: &str, value: &str) -> Result<Settings, SettingError> {
    read(&[("NODE_NAME", "n1"), (variable, value)], 2)
}

#[test]
fn defaults_are_ztunnels() {
    let settings = with("RUST_LOG", "").unwrap();
    assert_eq!(&*settings.common.node_name, "n1");
    assert_eq!(settings.common.xds.address, "https://localhost:15012");
    assert_eq!(
        settings.common.xds.roots,
        "./var/run/secrets/istio/root-cert.pem"
    );
    assert_eq!(
        settings.zds_socket,
        PathBuf::from("/var/run/ztunnel/ztunnel.sock")
    );
    assert_eq!(&*settings.common.cluster_id, "Kubernetes");
    assert_eq!(settings.sockets.mark, 1337);
    assert!(settings.sockets.ipv6);
    assert_eq!(settings.sockets.keepalive, Some(Keepalive::default()));
    assert_eq!(settings.common.termination_deadline, Duration::from_secs(5));
    assert_eq!(settings.common.stats, "[::]:15020".parse().unwrap());
}

#[test]
fn admin_pages_are_on_a_private_socket_and_on_loopback_only_when_asked() {
    let settings = with("INPOD_UDS", "/run/node/zds.sock").unwrap();
    assert_eq!(settings.admin_socket, PathBuf::from("/run/node/admin.sock"));
    assert_eq!(settings.admin, None);
    let settings = with("LATEEN_ADMIN_SOCKET", "/run/a").unwrap();
    assert_eq!(settings.admin_socket, PathBuf::from("/run/a"));
    let settings = with("LATEEN_ADMIN_LOOPBACK", "true").unwrap();
    assert_eq!(settings.admin, Some("127.0.0.1:15000".parse().unwrap()));
}

#[test]
fn names_the_variable_the_value_and_the_cure() {
    for (variable, value) in [
        ("PROXY_MODE", "dedicated"),
        ("XDS_ADDRESS", "http://10.0.0.1:15012"),
        ("XDS_ADDRESS", "https://:15012"),
        ("CA_ADDRESS", "istiod"),
        ("IPV6_ENABLED", "no"),
        ("INSTANCE_IP", "10.0.0"),
        ("PACKET_MARK", "0"),
        ("PACKET_MARK", "0x539"),
        ("ZTUNNEL_WORKER_THREADS", "-1"),
        ("ZTUNNEL_WORKER_THREADS", "0%"),
        ("ZTUNNEL_WORKER_THREADS", "101%"),
        ("ZTUNNEL_WORKER_THREADS", "NaN%"),
        ("ZTUNNEL_RESOURCE_CPU_LIMIT", "-1"),
        ("HTTP2_FRAME_SIZE", "16383"),
        ("LATEEN_ACCELERATOR", "on"),
        ("LATEEN_WORKER_SLICE", "99us"),
        ("LATEEN_WORKER_SLICE", "101ms"),
        ("HTTP2_STREAM_WINDOW_SIZE", "2147483648"),
        ("POOL_MAX_STREAMS_PER_CONNECTION", "0"),
        ("POOL_UNUSED_RELEASE_TIMEOUT", "5 minutes"),
        ("SECRET_TTL", "1x"),
        ("TERMINATION_GRACE_PERIOD_SECONDS", "0"),
        ("KEEPALIVE_RETRIES", "128"),
        ("KEEPALIVE_TIME", "999ms"),
        ("KEEPALIVE_INTERVAL", "32768s"),
        ("COMPLIANCE_POLICY", "fips-140-2"),
        ("TRUST_DOMAIN_ALIASES", "old.example,/"),
        ("XDS_ON_DEMAND", "true"),
        ("FAKE_CA", "true"),
        ("ENABLE_ORIG_SRC", "false"),
    ] {
        let error = with(variable, value).unwrap_err();
        assert_eq!(
            (error.variable.as_str(), error.value.as_str()),
            (variable, value)
        );
        let text = error.to_string();
        assert!(
            text.contains(variable) && (text.contains("use ") || text.contains("unset")),
            "{text}"
        );
    }
}

#[test]
fn a_node_name_is_needed() {
    let error = read(&[], 2).unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"NODE_NAME="": set it to the name of the node that this proxy serves"#
    );
}

#[test]
fn a_token_in_the_environment_is_refused_and_not_repeated() {
    let error = with("AUTH_TOKEN", "eyJhbGciOiJFUzI1NiJ9.e30.c2ln").unwrap_err();
    assert!(!error.to_string().contains("eyJ"), "{error}");
    let settings = with("AUTH_TOKEN", "/var/run/token").unwrap();
    assert_eq!(settings.common.token, Some(PathBuf::from("/var/run/token")));
}

#[test]
fn an_empty_variable_counts_as_unset() {
    assert_eq!(with("IPV6_ENABLED", ""), with("RUST_LOG", ""));
}

#[test]
fn workers_follow_the_cores_unless_told() {
    let workers = |variables: &[(&str, &str)], cores| {
        let mut all = vec![("NODE_NAME", "n1")];
        all.extend(variables);
        read(&all, cores).unwrap().common.workers
    };
    assert_eq!(workers(&[], 1), 1);
    assert_eq!(workers(&[], 3), 1);
    assert_eq!(workers(&[], 4), 1);
    assert_eq!(workers(&[], 16), 4);
    assert_eq!(workers(&[("ZTUNNEL_WORKER_THREADS", "2")], 8), 2);
    assert_eq!(workers(&[("ZTUNNEL_WORKER_THREADS", "0")], 8), 8);
    assert_eq!(workers(&[("ZTUNNEL_WORKER_THREADS", "50%")], 5), 3);
    assert_eq!(workers(&[("ZTUNNEL_CPU_LIMIT", "16")], 2), 4);
    assert_eq!(workers(&[("ZTUNNEL_RESOURCE_CPU_LIMIT", "1500m")], 64), 2);
    assert_eq!(workers(&[("ZTUNNEL_RESOURCE_CPU_REQUEST", "3")], 4), 3);
}

#[test]
fn the_grace_period_leaves_time_for_an_orderly_end() {
    let deadline = |value| {
        with("TERMINATION_GRACE_PERIOD_SECONDS", value)
            .unwrap()
            .common
            .termination_deadline
    };
    assert_eq!(deadline("30"), Duration::from_secs(25));
    assert_eq!(deadline("10"), Duration::from_secs(9));
    assert_eq!(deadline("1"), Duration::from_secs(1));
    let explicit = with("CONNECTION_TERMINATION_DEADLINE", "1m30s").unwrap();
    assert_eq!(
        explicit.common.termination_deadline,
        Duration::from_secs(90)
    );
}

#[test]
fn worker_slice_is_short_unless_left_to_the_system() {
    let slice = |value| {
        with("LATEEN_WORKER_SLICE", value)
            .unwrap()
            .common
            .worker_slice
    };
    assert_eq!(slice("100us"), Some(Duration::from_micros(100)));
    assert_eq!(slice("3ms"), Some(Duration::from_millis(3)));
    assert_eq!(slice("0s"), None);
}

#[test]
fn durations_have_units() {
    for (text, seconds) in [
        ("90", 90),
        ("90s", 90),
        ("1h30m", 5400),
        ("2d", 172_800),
        ("0s", 0),
    ] {
        assert_eq!(
            parse_duration(text),
            Some(Duration::from_secs(seconds)),
            "{text}"
        );
    }
    assert_eq!(parse_duration("250ms"), Some(Duration::from_millis(250)));
    assert_eq!(parse_duration("1ms50us"), Some(Duration::from_micros(1050)));
    for text in [
        "",
        "s",
        "-1s",
        "1w",
        "1 s",
        "99999999999999999999s",
        "18446744073709551615d",
    ] {
        assert_eq!(parse_duration(text), None, "{text}");
    }
}

#[test]
fn certificates_may_be_revoked_aliased_and_post_quantum() {
    let settings = with("CRL_PATH", "/etc/crl.pem").unwrap();
    assert_eq!(
        settings.common.revocation_lists,
        Some("/etc/crl.pem".into())
    );
    let settings = with("COMPLIANCE_POLICY", "pqc").unwrap();
    assert_eq!(
        settings.common.compliance,
        lateen_tls::Compliance::PostQuantum
    );
    let settings = with("COMPLIANCE_POLICY", "classical").unwrap();
    assert_eq!(
        settings.common.compliance,
        lateen_tls::Compliance::Classical
    );
    let settings = with("COMPLIANCE_POLICY", "").unwrap();
    assert_eq!(
        settings.common.compliance,
        lateen_tls::Compliance::Preferred
    );
    let settings = with("TRUST_DOMAIN_ALIASES", "old.example, older.example,").unwrap();
    let aliases: Vec<&str> = settings
        .common
        .trust_domain_aliases
        .iter()
        .map(|a| &**a)
        .collect();
    assert_eq!(aliases, ["old.example", "older.example"]);
    let settings = with("CRL_PATH", "").unwrap();
    assert_eq!(settings.common.revocation_lists, None);
    assert!(settings.common.trust_domain_aliases.is_empty());
}

#[test]
fn configuration_has_one_source() {
    let local = |more: &[(&str, &str)]| {
        let mut all = vec![("NODE_NAME", "n1"), ("LOCAL_XDS_PATH", "mesh.yaml")];
        all.extend(more);
        read(&all, 2)
    };
    // ztunnel's manifests unset the address by emptying it.
    let settings = local(&[("XDS_ADDRESS", "")]).unwrap();
    assert_eq!(settings.local, Some(Source::File("mesh.yaml".into())));
    for (variable, value) in [
        ("XDS_ADDRESS", "https://istiod:15012"),
        ("LOCAL_XDS", "{}"),
        ("XDS_ON_DEMAND", "true"),
    ] {
        let error = local(&[(variable, value), ("ISTIO_META_DNS_CAPTURE", "false")]).unwrap_err();
        assert!(error.to_string().contains("unset"), "{error}");
    }
    let inline = with("LOCAL_XDS", "workloads: []").unwrap().local;
    assert_eq!(inline, Some(Source::Inline("workloads: []".into())));
}

#[test]
fn on_demand_and_the_dns_proxy_exclude_each_other() {
    let on_demand = [
        ("NODE_NAME", "n1"),
        ("XDS_ON_DEMAND", "true"),
        ("ISTIO_META_DNS_CAPTURE", "false"),
    ];
    assert!(read(&on_demand, 2).unwrap().xds_on_demand);
    let error = read(&on_demand[..2], 2).unwrap_err();
    assert!(error.to_string().contains("DNS"), "{error}");
}

#[test]
fn the_listener_store_is_beside_the_agents_other_socket_unless_named() {
    let settings = with("INPOD_UDS", "/run/node/zds.sock").unwrap();
    assert_eq!(
        settings.listener_store_socket,
        PathBuf::from("/run/node/listener-store.sock")
    );
    let settings = with("LATEEN_LISTENER_STORE", "/run/k").unwrap();
    assert_eq!(settings.listener_store_socket, PathBuf::from("/run/k"));
}

mod declared {
    use super::super::reference::{Fallback, Form, VARIABLES, is_declared};
    use super::*;

    /// What else must be said for a variable to count.
    fn told(variable: &str, value: &str) -> Result<(Settings, WaypointSettings), SettingError> {
        let mut variables = vec![("NODE_NAME", "n1"), (variable, value)];
        if variable == "XDS_ON_DEMAND" {
            variables.push(("ISTIO_META_DNS_CAPTURE", "false"));
        }
        variables.reverse();
        let node = read(&variables, 2)?;
        // A waypoint needs these, whatever they are.
        let names = [
            ("GATEWAY_NAME", "gate"),
            ("POD_NAME", "gate-1"),
            ("POD_NAMESPACE", "shop"),
            ("SERVICE_ACCOUNT", "gate"),
        ];
        let lookup = |name: &str| {
            let found = names.iter().chain(&variables).find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Ok((node, WaypointSettings::read(&lookup, 2)?))
    }

    fn untold(variable: &str) -> (Settings, WaypointSettings) {
        told(variable, "").unwrap()
    }

    #[test]
    fn defaults_are_what_the_table_says() {
        let mut checked = 0;
        for variable in VARIABLES {
            if let Fallback::Is(value) = variable.default {
                let name = variable.name;
                // What is left empty means the same in words that the settings keep as they came.
                if name != "RUST_LOG" {
                    assert_eq!(told(name, value), Ok(untold(name)), "{name}={value}");
                    checked += 1;
                }
            }
        }
        assert!(checked > 20);
    }

    #[test]
    fn forms_are_what_the_table_says() {
        for variable in VARIABLES {
            let name = variable.name;
            let (good, bad) = match variable.form {
                Form::Boolean => (
                    vec!["true".to_owned(), "false".to_owned()],
                    vec!["maybe".to_owned()],
                ),
                Form::Duration => (
                    vec!["90s".to_owned(), "1h30m".to_owned()],
                    vec!["soon".to_owned(), "1x".to_owned()],
                ),
                Form::Number(least, most) => (
                    vec![least.to_string(), most.to_string()],
                    vec![(least - 1).to_string(), (most + 1).to_string()],
                ),
                Form::Words(_) => continue,
            };
            for value in good {
                assert!(told(name, &value).is_ok(), "{name}={value} is refused");
            }
            for value in bad {
                let error = told(name, &value).expect_err(name);
                assert_eq!(error.variable, name, "{value}");
            }
        }
    }

    #[test]
    fn each_variable_is_declared_once() {
        let mut names: Vec<_> = VARIABLES.iter().map(|variable| variable.name).collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    #[should_panic(expected = "is read and not declared")]
    fn reading_another_variable_fails() {
        let lookup = |_: &str| None;
        assert!(!is_declared("LATEEN_NOWHERE"));
        let _ = Environment { lookup: &lookup }.get("LATEEN_NOWHERE");
    }
}

#[test]
fn connections_may_be_idle_for_ever_and_half_closed_for_an_hour_unless_told_otherwise() {
    use lateen_relay::Limits;
    let (hour, day) = (Duration::from_secs(3600), Duration::from_secs(86_400));
    assert_eq!(
        with("RUST_LOG", "").unwrap().common.limits,
        Limits::new(None, Some(hour)),
        "by default"
    );
    let set = [
        ("NODE_NAME", "n1"),
        ("LATEEN_IDLE_TIMEOUT", "24h"),
        ("LATEEN_HALF_CLOSE_TIMEOUT", "1500ms"),
    ];
    let short = Duration::from_millis(1500);
    assert_eq!(
        read(&set, 2).unwrap().common.limits,
        Limits::new(Some(day), Some(short))
    );
    let off = with("LATEEN_HALF_CLOSE_TIMEOUT", "0s");
    assert_eq!(off.unwrap().common.limits, Limits::new(None, None));
    for name in ["LATEEN_IDLE_TIMEOUT", "LATEEN_HALF_CLOSE_TIMEOUT"] {
        for bad in ["soon", "-1s", "1y"] {
            let error = with(name, bad).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(bad), "{error}");
        }
    }
}

#[test]
fn reports_go_where_the_standards_variables_say() {
    let read = |pairs: &[(&str, &str)]| {
        let pairs: Vec<_> = pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        let lookup = move |name: &str| match name {
            "NODE_NAME" => Some("n1".to_owned()),
            _ => pairs
                .iter()
                .find(|(key, _)| key == name)
                .map(|(_, value)| value.clone()),
        };
        Settings::read(&lookup, 4).map(|settings| settings.common.reports)
    };
    assert_eq!(read(&[]).unwrap(), Reports::default());
    const ALL: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317");
    let reports = read(&[ALL]).unwrap();
    assert_eq!(
        (reports.logs.as_deref(), reports.traces),
        (Some(ALL.1), None),
        "traces are off unless asked for"
    );
    let reports = read(&[
        ALL,
        ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "https://logs:4317"),
        ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
        ("OTEL_TRACES_SAMPLER_ARG", "0.5"),
        (
            "OTEL_EXPORTER_OTLP_HEADERS",
            "authorization=Basic%20a=, x=1+1",
        ),
    ])
    .unwrap();
    assert_eq!(reports.logs.as_deref(), Some("https://logs:4317"));
    assert_eq!(reports.traces.as_deref(), Some(ALL.1));
    let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(
        reports.headers,
        [header("authorization", "Basic a="), header("x", "1+1")]
    );
    for (variable, value) in [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317"),
        ("OTEL_TRACES_SAMPLER", "traceidratio"),
        ("OTEL_LOGS_EXPORTER", "console"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "secret"),
    ] {
        let error = read(&[(variable, value)]).unwrap_err();
        assert_eq!(error.variable, variable);
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}

#[test]
fn series_of_connections_are_as_the_variables_say() {
    let read = |name, value| with(name, value).map(|settings| settings.common.series);
    assert_eq!(read("RUST_LOG", "").unwrap(), SeriesOptions::default());
    assert_eq!(
        read("LATEEN_METRICS_IDLE", "90s").unwrap().idle,
        Some(Duration::from_secs(90))
    );
    assert_eq!(read("LATEEN_METRICS_IDLE", "0s").unwrap().idle, None);
    assert_eq!(read("LATEEN_METRICS_SERIES", "7").unwrap().most, 7);
    let dropped = read("LATEEN_METRICS_DROP_LABELS", "source_app, source_version").unwrap();
    assert_eq!(
        Ok(dropped.dropped),
        Dropped::parse("source_version,source_app")
    );
    for (variable, value, named) in [
        ("LATEEN_METRICS_IDLE", "soon", "90s"),
        ("LATEEN_METRICS_SERIES", "0", "from 1"),
        ("LATEEN_METRICS_DROP_LABELS", "source_app,pod", "\"pod\""),
        ("LATEEN_METRICS_DROP_LABELS", "reporter", "twice"),
    ] {
        let error = read(variable, value).unwrap_err();
        assert_eq!(error.variable, variable);
        assert!(error.fix.contains(named), "{error}");
    }
}

#[test]
fn log_lines_are_json_when_asked() {
    assert!(with("LOG_FORMAT", "json").unwrap().common.log_json);
    for other in ["text", "plain", ""] {
        assert!(
            !with("LOG_FORMAT", other).unwrap().common.log_json,
            "{other}"
        );
    }
}

#[test]
fn a_waypoint_needs_its_gateway_and_its_own_names() {
    let all = [
        ("GATEWAY_NAME", "gate"),
        ("POD_NAME", "gate-1"),
        ("POD_NAMESPACE", "shop"),
        ("SERVICE_ACCOUNT", "gate"),
    ];
    let read = |variables: &[(&str, &str)]| {
        let lookup = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        WaypointSettings::read(&lookup, 2)
    };
    let settings = read(&all).unwrap();
    assert_eq!(settings.gateway.to_string(), "shop/gate");
    assert_eq!(
        settings.identity.to_string(),
        "spiffe://cluster.local/ns/shop/sa/gate"
    );
    assert_eq!(settings.uid.as_str(), "Kubernetes//Pod/shop/gate-1");
    assert_eq!(settings.hbone, "[::]:15008".parse().unwrap());
    for missing in 0..all.len() {
        let mut rest = all.to_vec();
        let (variable, _) = rest.remove(missing);
        let error = read(&rest).unwrap_err();
        assert_eq!(error.variable, variable);
        assert!(error.fix.starts_with("set it to"), "{error}");
    }
}
