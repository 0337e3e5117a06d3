//! Objective of a search: the limits of times and failures within which a rate counts as carried.

use std::fmt;

use crate::record::Kind;
use crate::report::{PERCENTILES, Report, is_told};
use crate::text;

/// One limit, for example `p99<5ms`.
#[derive(Debug, Clone, PartialEq)]
pub struct Objective {
    text: String,
    limit: Limit,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Limit {
    /// Milliseconds of a response or service time.
    Time {
        kind: Kind,
        point: &'static str,
        ms: f64,
    },
    /// The share of failed requests.
    Failed(f64),
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Objective {
    /// Reads `p99<5ms`, `avg<1ms`, `service.p99.9<10ms` or `errors<0.1%`.
    pub fn parse(text: &str) -> Result<Objective, String> {
        let examples = "p99<5ms, service.avg<1ms or errors<0.1%";
        let bad = || format!("{text:?} is no objective; write for example {examples}");
        let (name, limit) = text.split_once('<').ok_or_else(bad)?;
        let (name, limit) = (name.trim(), limit.trim());
        let limit = if name == "errors" {
            let percent = limit.strip_suffix('%').ok_or_else(bad)?;
            let percent: f64 = percent.parse().map_err(|_| bad())?;
            if !(0.0..=100.0).contains(&percent) {
                return Err(bad());
            }
            Limit::Failed(percent / 100.0)
        } else {
            let (kind, name) = match name.split_once('.') {
                Some(("service", name)) => (Kind::Service, name),
                Some(("response", name)) => (Kind::Response, name),
                _ => (Kind::Response, name),
            };
            let names = PERCENTILES.map(|(_, name)| name);
            let mut points = names.into_iter().chain(["avg", "max"]);
            let point = points.find(|known| *known == name).ok_or_else(bad)?;
            let ms = text::duration(limit)?.as_secs_f64() * 1e3;
            if ms <= 0.0 {
                return Err(bad());
            }
            Limit::Time { kind, point, ms }
        };
        let text = text.trim().to_owned();
        Ok(Objective { text, limit })
    }

    /// Why a report misses it; `None` if it does not.
    pub fn missed_by(&self, report: &Report) -> Option<String> {
        match self.limit {
            Limit::Time { kind, point, ms } => {
                let times = &report.times[kind];
                let mut figures = times.figures().filter(|(name, _)| *name == point);
                // The search says so where few times lie beyond a percentile, but it must go on.
                let value = figures.find_map(|(_, value)| value).unwrap_or(times.max);
                (times.count == 0 || value >= ms).then(|| format!("{}: {value:.3} ms", self.text))
            }
            Limit::Failed(share) => {
                let all = report.counts.ok + report.counts.failed;
                let failed = report.counts.failed as f64 / all.max(1) as f64;
                let missed = all == 0 || failed > 0.0 && failed >= share;
                missed.then(|| format!("{}: {:.3} %", self.text, failed * 100.0))
            }
        }
    }

    /// Whether fewer than 100 of the report's times lie beyond the point that is limited.
    pub fn rests_on_few(&self, report: &Report) -> bool {
        let Limit::Time { kind, point, .. } = self.limit else {
            return false;
        };
        let quantile = PERCENTILES.iter().find(|(_, name)| *name == point);
        quantile.is_some_and(|(quantile, _)| !is_told(*quantile, report.times[kind].count))
    }

    /// Whether it limits failures.
    pub fn is_of_failures(&self) -> bool {
        matches!(self.limit, Limit::Failed(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Summary;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn report() -> Report {
        let percentiles = [
            ("p50", 2.0),
            ("p75", 3.0),
            ("p90", 4.0),
            ("p99", 5.0),
            ("p99.9", 6.0),
        ];
        let response_time = Summary {
            count: 9_900,
            avg: 1.0,
            percentiles: percentiles.into(),
            max: 7.0,
            ..Summary::default()
        };
        let service_time = Summary {
            count: 10_000,
            percentiles: BTreeMap::from([("p99", 0.5)]),
            ..Summary::default()
        };
        let mut report = Report::default();
        report.times[Kind::Response] = response_time;
        report.times[Kind::Service] = service_time;
        (report.counts.ok, report.counts.failed) = (9_900, 100);
        report
    }

    #[test]
    fn each_limit_is_of_what_it_names() {
        for (name, value) in [
            ("avg", 1.0),
            ("p50", 2.0),
            ("p75", 3.0),
            ("p90", 4.0),
            ("response.p99", 5.0),
            ("p99.9", 6.0),
            ("max", 7.0),
            ("service.p99", 0.5),
        ] {
            let above = Objective::parse(&format!("{name}<{}ms", value + 0.001)).unwrap();
            let below = Objective::parse(&format!("{name} < {value}ms")).unwrap();
            assert_eq!(above.missed_by(&report()), None, "{name}");
            let why = below.missed_by(&report()).unwrap();
            assert!(why.contains(&format!("{value:.3} ms")), "{why}");
        }
        let failures = |text| Objective::parse(text).unwrap().missed_by(&report());
        assert_eq!(failures("errors<1.1%"), None);
        assert_eq!(failures("errors<1%").unwrap(), "errors<1%: 1.000 %");
        let parse = |text| Objective::parse(text).unwrap();
        let unanswered = parse("p99<1s").missed_by(&Report::default());
        assert!(unanswered.is_some(), "nothing was answered");
        for (text, few) in [
            ("p99<1s", true),
            ("service.p99<1s", false),
            ("avg<1s", false),
        ] {
            assert_eq!(parse(text).rests_on_few(&report()), few, "{text}");
        }
    }

    #[test]
    fn what_is_no_objective_is_refused() {
        let times = "p99 p99< p99<5 p98<5ms p99>5ms p99<0 total.p99<1s";
        let failures = "errors<5 errors<101% errors<x% errors<nan%";
        for text in times.split(' ').chain(failures.split(' ')).chain([""]) {
            assert!(Objective::parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(service\\.|errors|p99)?<?[\\PC]{0,9}%?") {
            let _ = Objective::parse(&text);
        }
    }
}
