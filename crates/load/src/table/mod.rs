//! The table that sets runs with a mesh beside runs without: one group of rows per round, the
//! medians of all rounds below. It computes from reports and measures nothing.

mod layout;

use std::collections::{BTreeMap, BTreeSet};

use crate::report::{Report, is_told};
use layout::{Row, Table};

/// What every table says about itself.
const CAVEAT: &str = "Indicative, not a claim: one machine, few rounds, generator, services and proxies on the same cores.";

/// Where a report keeps the processor time of the proxies, in microseconds per request.
const PROXY_CPU: &str = "proxy_cpu_us_per_request";

/// How to print tables.
#[derive(Debug, Clone)]
pub struct Options {
    /// The name of the runs that the others are compared with.
    pub baseline: String,
    /// Processor time of the proxies by name and round, where the reports do not have it.
    pub proxy_cpu: BTreeMap<(String, u32), f64>,
    /// Whether to print Markdown.
    pub markdown: bool,
}

/// The columns of one row; milliseconds but for the last three.
#[derive(Debug, Clone, Default)]
struct Values {
    /// What the reports tell of the times.
    times: [Option<f64>; 5],
    /// Which of them rest on fewer than 100 answers beyond the percentile.
    few: [bool; 5],
    proxy_cpu: Option<f64>,
    rate: f64,
    failed: u64,
}

const COLUMNS: [&str; 8] = [
    "avg",
    "P50",
    "P75",
    "P90",
    "P99",
    "proxies µs/req",
    "answers/s",
    "failed",
];

/// Prints a table for every service and load that the reports cover, in the order of the reports.
/// An error names what does not fit together.
pub fn render(reports: &[Report], options: &Options) -> Result<String, String> {
    let mut scenarios: Vec<(String, Vec<&Report>)> = Vec::new();
    for report in reports {
        let title = title(report);
        match scenarios.iter_mut().find(|(known, _)| *known == title) {
            Some((_, members)) => members.push(report),
            None => scenarios.push((title, vec![report])),
        }
    }
    let mut out = String::new();
    let mut notes = BTreeSet::new();
    for (title, members) in scenarios {
        let table = scenario(title, &members, options, &mut notes)?;
        out.push_str(&if options.markdown {
            table.to_markdown()
        } else {
            table.to_text()
        });
        out.push('\n');
    }
    notes.insert(CAVEAT);
    for note in notes {
        out.push_str(note);
        out.push('\n');
    }
    Ok(out)
}

fn title(report: &Report) -> String {
    let config = &report.config;
    let rate = if config.qps == 0.0 {
        "closed loop".to_owned()
    } else {
        format!("{} requests/s", config.qps)
    };
    let reuse = if config.keepalive {
        ""
    } else {
        ", a new connection per request"
    };
    format!(
        "{}: {rate} over {} connections{reuse}; response time in ms",
        config.url, config.connections
    )
}

fn scenario(
    title: String,
    members: &[&Report],
    options: &Options,
    notes: &mut BTreeSet<&'static str>,
) -> Result<Table, String> {
    let mut rounds: BTreeMap<u32, BTreeMap<&str, Values>> = BTreeMap::new();
    for report in members {
        let cpu = options
            .proxy_cpu
            .get(&(report.name.clone(), report.round))
            .or_else(|| report.extra.get(PROXY_CPU));
        let earlier = rounds
            .entry(report.round)
            .or_default()
            .insert(&report.name, values(report, cpu.copied()));
        if earlier.is_some() {
            return Err(format!(
                "{title}: two reports are named {:?} in round {}; give --round to each run",
                report.name, report.round
            ));
        }
    }
    let names: BTreeSet<&str> = rounds
        .values()
        .flat_map(|round| round.keys().copied())
        .collect();
    let baseline = options.baseline.as_str();
    if !names.contains(baseline) {
        return Err(format!(
            "{title}: no report is named {baseline:?}; name the runs to compare with by --baseline"
        ));
    }
    let mut rows = Vec::new();
    for (round, runs) in &rounds {
        group(&mut rows, baseline, runs, |name| {
            format!("{} {round}", readable(name))
        });
    }
    if rounds.len() > 1 {
        let median = |name: &&'_ str| {
            median(
                &rounds
                    .values()
                    .filter_map(|round| round.get(name))
                    .collect::<Vec<_>>(),
            )
        };
        let medians: BTreeMap<&str, Values> =
            names.iter().map(|name| (*name, median(name))).collect();
        group(&mut rows, baseline, &medians, |name| {
            format!("{} median", readable(name))
        });
    }
    let all = || rounds.values().flat_map(BTreeMap::values);
    if all().any(|values| values.few.contains(&true)) {
        notes.insert("~ rests on fewer than 100 answers beyond the percentile.");
    }
    if all().any(|values| values.times.contains(&None)) {
        notes.insert("– fewer than 100 answers lie beyond the percentile.");
    }
    Ok(Table {
        title,
        columns: COLUMNS.map(str::to_owned).to_vec(),
        rows,
    })
}

/// The rows of one round: the baseline, then each other run and its difference to it.
fn group(
    rows: &mut Vec<Row>,
    baseline: &str,
    runs: &BTreeMap<&str, Values>,
    label: impl Fn(&str) -> String,
) {
    let base = runs.get(baseline);
    if let Some(base) = base {
        rows.push(row(label(baseline), base));
    }
    for (name, values) in runs.iter().filter(|(name, _)| **name != baseline) {
        rows.push(row(label(name), values));
        if let Some(base) = base {
            rows.push(difference(base, values));
        }
    }
}

fn row(label: String, values: &Values) -> Row {
    let mut cells: Vec<String> = values
        .times
        .iter()
        .zip(values.few)
        .map(|(time, few)| match time {
            None => "–".to_owned(),
            Some(time) if few => format!("{time:.3}~"),
            Some(time) => format!("{time:.3}"),
        })
        .collect();
    cells.push(
        values
            .proxy_cpu
            .map_or("-".to_owned(), |cpu| format!("{cpu:.1}")),
    );
    cells.push(format!("{:.1}", values.rate));
    cells.push(values.failed.to_string());
    Row {
        label,
        cells,
        is_difference: false,
    }
}

fn difference(base: &Values, values: &Values) -> Row {
    let percent = |from: f64, to: f64| {
        if from > 0.0 {
            format!("{:+.0} %", (to / from - 1.0) * 100.0).replace("-0 %", "+0 %")
        } else {
            "-".to_owned()
        }
    };
    let mut cells: Vec<String> = base
        .times
        .iter()
        .zip(values.times)
        .map(|(from, to)| match (from, to) {
            (Some(from), Some(to)) => percent(*from, to),
            _ => "-".to_owned(),
        })
        .collect();
    cells.push(String::new());
    cells.push(percent(base.rate, values.rate));
    cells.push(String::new());
    Row {
        label: "difference".to_owned(),
        cells,
        is_difference: true,
    }
}

fn values(report: &Report, proxy_cpu: Option<f64>) -> Values {
    let time = &report.response_time;
    let times = [Some(time.avg), time.p50, time.p75, time.p90, time.p99];
    let quantiles = [0.0, 0.5, 0.75, 0.9, 0.99];
    Values {
        times,
        few: std::array::from_fn(|column| {
            column > 0 && times[column].is_some() && !is_told(quantiles[column], time.count)
        }),
        proxy_cpu,
        rate: report.rates.achieved_qps,
        failed: report.counts.failed + report.counts.unsent,
    }
}

/// The median of each column by itself.
fn median(runs: &[&Values]) -> Values {
    let cpus: Vec<f64> = runs.iter().filter_map(|values| values.proxy_cpu).collect();
    Values {
        times: std::array::from_fn(|column| {
            let known: Option<Vec<f64>> = runs.iter().map(|values| values.times[column]).collect();
            known.map(middle)
        }),
        few: std::array::from_fn(|column| runs.iter().any(|values| values.few[column])),
        proxy_cpu: (!cpus.is_empty()).then(|| middle(cpus)),
        rate: middle(runs.iter().map(|values| values.rate).collect()),
        failed: runs.iter().map(|values| values.failed).sum(),
    }
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        count if count % 2 == 1 => values[count / 2],
        count => f64::midpoint(values[count / 2 - 1], values[count / 2]),
    }
}

fn readable(name: &str) -> &str {
    if name == "none" { "no mesh" } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Config, Counts, FORMAT, Rates, Summary};

    fn report(name: &str, round: u32, times: [f64; 5], cpu: Option<f64>) -> Report {
        let [avg, p50, p75, p90, p99] = times;
        Report {
            format: FORMAT.to_owned(),
            name: name.to_owned(),
            round,
            config: Config {
                url: "http://details:9080/details/0".to_owned(),
                address: "10.96.0.5:9080".to_owned(),
                qps: 100.0,
                connections: 10,
                duration_s: 10.0,
                warmup_s: 2.0,
                keepalive: true,
                arrivals: "uniform".to_owned(),
                timeout_s: 10.0,
                seed: 1,
                ..Config::default()
            },
            measured_s: 10.0,
            counts: Counts {
                ok: 1000,
                ..Counts::default()
            },
            rates: Rates {
                wanted_qps: 100.0,
                achieved_qps: 100.0,
            },
            response_time: Summary {
                count: 1000,
                avg,
                p50: Some(p50),
                p75: Some(p75),
                p90: Some(p90),
                p99: Some(p99),
                ..Summary::default()
            },
            extra: cpu
                .map(|cpu| (PROXY_CPU.to_owned(), cpu))
                .into_iter()
                .collect(),
            ..Report::default()
        }
    }

    fn options(markdown: bool) -> Options {
        Options {
            baseline: "none".to_owned(),
            proxy_cpu: BTreeMap::new(),
            markdown,
        }
    }

    fn two_rounds() -> Vec<Report> {
        vec![
            report("none", 1, [0.5, 0.4, 0.6, 0.8, 1.0], None),
            report("mesh", 1, [0.55, 0.4, 0.57, 0.9, 1.5], Some(60.0)),
            report("mesh", 2, [0.65, 0.5, 0.67, 1.0, 1.6], Some(70.0)),
            report("none", 2, [0.7, 0.6, 0.8, 1.0, 1.2], None),
        ]
    }

    #[test]
    fn rounds_and_medians_stand_under_each_other() {
        let expected = "\
http://details:9080/details/0: 100 requests/s over 10 connections; response time in ms
                  avg    P50    P75    P90     P99  proxies µs/req  answers/s  failed
no mesh 1       0.500  0.400  0.600  0.800  1.000~               -      100.0       0
mesh 1          0.550  0.400  0.570  0.900  1.500~            60.0      100.0       0
  difference    +10 %   +0 %   -5 %  +12 %   +50 %                       +0 %
no mesh 2       0.700  0.600  0.800  1.000  1.200~               -      100.0       0
mesh 2          0.650  0.500  0.670  1.000  1.600~            70.0      100.0       0
  difference     -7 %  -17 %  -16 %   +0 %   +33 %                       +0 %
no mesh median  0.600  0.500  0.700  0.900  1.100~               -      100.0       0
mesh median     0.600  0.450  0.620  0.950  1.550~            65.0      100.0       0
  difference     +0 %  -10 %  -11 %   +6 %   +41 %                       +0 %

Indicative, not a claim: one machine, few rounds, generator, services and proxies on the same cores.
~ rests on fewer than 100 answers beyond the percentile.
";
        assert_eq!(render(&two_rounds(), &options(false)).unwrap(), expected);
    }

    #[test]
    fn markdown_has_one_row_per_run() {
        let rendered = render(&two_rounds()[..2], &options(true)).unwrap();
        let expected = "\
**http://details:9080/details/0: 100 requests/s over 10 connections; response time in ms**

| | avg | P50 | P75 | P90 | P99 | proxies µs/req | answers/s | failed |
|---|---:|---:|---:|---:|---:|---:|---:|---:|
| no mesh 1 | 0.500 | 0.400 | 0.600 | 0.800 | 1.000~ | - | 100.0 | 0 |
| mesh 1 | 0.550 | 0.400 | 0.570 | 0.900 | 1.500~ | 60.0 | 100.0 | 0 |
| *difference* | *+10 %* | *+0 %* | *-5 %* | *+12 %* | *+50 %* |  | *+0 %* |  |
";
        assert!(rendered.starts_with(expected), "{rendered}");
        assert!(rendered.contains("Indicative, not a claim"));
    }

    #[test]
    fn proxy_time_can_come_from_outside() {
        let mut options = options(false);
        options.proxy_cpu.insert(("mesh".to_owned(), 1), 123.4);
        assert!(
            render(&two_rounds()[..2], &options)
                .unwrap()
                .contains("123.4")
        );
    }

    #[test]
    fn loads_that_differ_get_tables_of_their_own() {
        let mut reports = two_rounds();
        for report in &mut reports[2..] {
            report.config.qps = 1000.0;
        }
        let rendered = render(&reports, &options(false)).unwrap();
        assert_eq!(rendered.matches("response time in ms").count(), 2);
        assert!(!rendered.contains("median"), "one round has no median");
    }

    #[test]
    fn what_does_not_fit_together_is_named() {
        let reports = two_rounds();
        let error = render(&reports[1..3], &options(false)).unwrap_err();
        assert!(error.contains("--baseline"), "{error}");
        let error = render(&[reports[0].clone(), reports[0].clone()], &options(false)).unwrap_err();
        assert!(error.contains("--round"), "{error}");
    }
}
