use std::collections::BTreeMap;
use std::time::Duration;

use lateen_types::{Identity, Strng};
use proptest::prelude::*;

use super::*;
use crate::dropped::{Dropped, NAMES};
use crate::labels::{Party, Reporter, Security, Service};
use crate::metrics::{BuildInfo, Metrics};

const HOUR: Duration = Duration::from_secs(3600);

fn metrics(options: SeriesOptions) -> Metrics {
    let build = BuildInfo {
        component: "ztunnel",
        tag: "0",
    };
    Metrics::with(&build, options, Vec::new)
}

fn from(workload: &str) -> Labels {
    Labels {
        reporter: Reporter::Source,
        source: Party {
            workload: Some(workload.into()),
            ..Party::default()
        },
        service: None,
        destination: Party::default(),
        flags: ResponseFlags::None,
        security: Security::MutualTls,
    }
}

/// A series' labels by name.
type Names = BTreeMap<String, String>;

/// What a page says of connections, by metric and labels; each may be there once.
fn page(metrics: &Metrics) -> BTreeMap<(String, Names), u64> {
    let mut all = BTreeMap::new();
    for line in metrics.render().lines() {
        let Some((metric, rest)) = line
            .strip_prefix("istio_tcp_")
            .and_then(|rest| rest.split_once('{'))
        else {
            continue;
        };
        let (labels, value) = rest.rsplit_once("} ").unwrap();
        let labels = labels.split(',').map(|label| {
            let (name, value) = label.split_once('=').unwrap();
            (name.to_owned(), value.to_owned())
        });
        let twice = all.insert(
            (metric.to_owned(), labels.collect::<Names>()),
            value.parse().unwrap(),
        );
        assert_eq!(twice, None, "a series is there twice: {line}");
    }
    all
}

/// The sums over all labels but these.
fn sums(
    page: BTreeMap<(String, Names), u64>,
    keep: impl Fn(&str) -> bool,
) -> BTreeMap<(String, Names), u64> {
    let mut sums = BTreeMap::new();
    for ((metric, mut labels), value) in page {
        labels.retain(|name, _| keep(name));
        *sums.entry((metric, labels)).or_default() += value;
    }
    sums
}

fn word() -> impl Strategy<Value = Option<Strng>> {
    prop_oneof![
        Just(None),
        Just(Some("".into())),
        Just(Some("unknown".into())),
        Just(Some("a".into())),
        Just(Some("b".into())),
    ]
}

prop_compose! {
    fn party()(
        words in prop::array::uniform7(word()),
        principal in prop::option::of("[ab]"),
        locality in prop::option::of((word(), word())),
    ) -> Party {
        let [workload, canonical_service, canonical_revision, namespace, app, version, cluster] = words;
        let principal = principal.and_then(|name| Identity::new("t", "n", &name).ok());
        Party { workload, canonical_service, canonical_revision, namespace, principal, app, version, cluster, locality }
    }
}

prop_compose! {
    fn any_labels()(
        client in any::<bool>(),
        source in party(),
        destination in party(),
        service in prop::option::of((word(), word(), word())),
        flags in prop::sample::select(&ResponseFlags::ALL[..]),
        secured in any::<bool>(),
    ) -> Labels {
        let known = |word: Option<Strng>| word.unwrap_or_default();
        Labels {
            reporter: if client { Reporter::Source } else { Reporter::Destination },
            source,
            service: service.map(|(hostname, name, namespace)| Service {
                hostname: known(hostname), name: known(name), namespace: known(namespace),
            }),
            destination,
            flags,
            security: if secured { Security::MutualTls } else { Security::Unknown },
        }
    }
}

/// A connection: whose it is, how it ends (`None`: it does not), and its bytes.
#[derive(Clone, Debug)]
struct Made {
    labels: Labels,
    opens: bool,
    ends: bool,
    bytes: (u64, u64),
}

prop_compose! {
    fn made()(
        labels in any_labels(),
        opens in any::<bool>(),
        ends in any::<bool>(),
        bytes in (0u64..1000, 0u64..1000),
    ) -> Made {
        Made { labels, opens, ends, bytes }
    }
}

fn count(metrics: &Metrics, all: &[Made]) {
    for made in all {
        let flags = made.labels.flags;
        if !made.opens {
            metrics.refused(made.labels.clone());
            continue;
        }
        let (_, series) = metrics.traffic().series(made.labels.clone());
        series.add_opened();
        series.add_received(made.bytes.0);
        series.add_sent(made.bytes.1);
        if made.ends {
            series.add_closed(flags);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// What is left of a page without some labels is what a query that sums over them would say.
    #[test]
    fn dropping_labels_sums_over_them(
        all in prop::collection::vec(made(), 1..40),
        dropped in prop::collection::btree_set(1..NAMES.len(), 0..NAMES.len()),
    ) {
        let names: Vec<&str> = dropped.iter().map(|label| NAMES[*label]).collect();
        let whole = metrics(SeriesOptions::default());
        let less = metrics(SeriesOptions {
            dropped: Dropped::parse(&names.join(",")).unwrap(),
            ..SeriesOptions::default()
        });
        count(&whole, &all);
        count(&less, &all);
        let wanted = sums(page(&whole), |name| !names.contains(&name));
        prop_assert_eq!(page(&less), wanted);
    }

    /// However few label sets there may be, nothing is lost, and reporter, flags and security stay what they are.
    #[test]
    fn folding_keeps_sums_and_what_is_no_end(
        all in prop::collection::vec(made(), 1..40),
        most in 0usize..10,
    ) {
        let keep = |name: &str| ["reporter", "response_flags", "connection_security_policy"].contains(&name);
        let whole = metrics(SeriesOptions::default());
        let few = metrics(SeriesOptions { most, ..SeriesOptions::default() });
        count(&whole, &all);
        count(&few, &all);
        prop_assert_eq!(sums(page(&few), keep), sums(page(&whole), keep));
        prop_assert!(few.traffic().0.all().len() <= most + 4);
    }
}

#[test]
fn a_fold_is_counted_and_the_log_keeps_the_labels() {
    let few = metrics(SeriesOptions {
        most: 1,
        dropped: Dropped::parse("source_app").unwrap(),
        ..SeriesOptions::default()
    });
    let mut second = from("second");
    second.source.app = Some("app".into());
    let _first = few.traffic().series(from("first"));
    let (whole, _) = few.traffic().series(second.clone());
    assert_eq!(*whole, second);
    let page = few.render();
    assert!(
        page.contains("\nlateen_metric_series_folded_total 1\n"),
        "{page}"
    );
    assert!(page.contains("\nlateen_metric_series 2\n"), "{page}");
}

#[test]
fn series_expire_after_their_last_connection_and_start_again_from_nothing() {
    let metrics = metrics(SeriesOptions {
        idle: Some(HOUR),
        ..SeriesOptions::default()
    });
    let traffic = metrics.traffic();
    let is_there = || !page(&metrics).is_empty();
    let start = Instant::now();
    let (_, series) = traffic.series(from("a"));
    series.add_opened();
    traffic.expire(start);
    traffic.expire(start + HOUR * 10);
    assert!(is_there(), "a connection is open");

    series.add_closed(ResponseFlags::Denied);
    drop(series);
    // No page has shown how it ended.
    let ended = start + HOUR * 20;
    traffic.expire(ended);
    assert!(is_there());
    traffic.expire(ended + HOUR / 2);
    drop(traffic.series(from("a")));
    traffic.expire(ended + HOUR);
    assert!(is_there(), "there was another one");
    traffic.expire(ended + HOUR * 3 / 2);
    assert!(is_there());
    traffic.expire(ended + HOUR * 2);
    assert!(!is_there(), "all flags go together");
    assert_eq!(traffic.0.expired.get(), 1);
    assert_eq!(traffic.0.held.get(), 0);

    traffic.series(from("a")).1.add_opened();
    assert_eq!(page(&metrics).get(&opened_of("a")), Some(&1));
}

#[test]
fn without_an_idle_time_series_stay() {
    let metrics = metrics(SeriesOptions {
        idle: None,
        ..SeriesOptions::default()
    });
    metrics.refused(from("a"));
    for days in 0..3 {
        metrics.traffic().expire(Instant::now() + HOUR * 24 * days);
    }
    assert_eq!(page(&metrics).len(), 1);
}

#[test]
fn what_expires_makes_room() {
    let metrics = metrics(SeriesOptions {
        idle: Some(HOUR),
        most: 1,
        ..SeriesOptions::default()
    });
    let traffic = metrics.traffic();
    let start = Instant::now();
    drop(traffic.series(from("a")));
    traffic.expire(start);
    traffic.expire(start + HOUR);
    let (_, series) = traffic.series(from("b"));
    series.add_opened();
    assert_eq!(page(&metrics).get(&opened_of("b")), Some(&1));
    assert_eq!(traffic.0.folded.get(), 0);
}

fn opened_of(workload: &str) -> (String, Names) {
    let alone = metrics(SeriesOptions::default());
    alone.traffic().series(from(workload)).1.add_opened();
    let mut all = page(&alone).into_keys();
    all.find(|(metric, _)| metric == "connections_opened_total")
        .unwrap()
}
