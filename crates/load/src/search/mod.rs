//! The highest rate that a service carries under an objective, found by runs at one rate after another.
//! It says whose limit was reached: the service's or the generator's own.

mod bisection;
mod objective;

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use crate::record::Kind;
use crate::report::{Report, Summary, is_told};
use crate::run::{LoadArgs, Plan, RunError, positive_duration, round, write};
use crate::signals;
use crate::text;
use bisection::{Bisection, Bounds, Purpose, Verdict};
use objective::Objective;

/// The text that `--help` shows below the options.
pub const HELP: &str = "\
Example:
  lateen-load search --url http://details:9080/details/0 --objective 'p99<5ms' -c 32

Rates are tried for --duration each: twice the rate as long as the objective is met, then between the
highest that was met and the lowest that was not, until they are within --precision, and at last the
answer again --confirm times. A miss counts only when it is seen twice. A rate that is not kept to
99 % is missed, whatever the times are.

An objective is a limit of a response time (avg, p50, p75, p90, p99, p99.9, max), of a service time
(service.p99<...), or of failures (errors<0.1%; errors<1% unless given). Several must all hold.

The result says what the limit was: the service, the generator's own (it was late, or used up its
core), or --max-qps. Exit status: 0 when a rate was found, 1 when none was, 64 for a wrong command line.";

/// The command line of `lateen-load search`.
#[derive(Debug, Args)]
pub struct SearchArgs {
    #[command(flatten)]
    load: LoadArgs,
    /// A limit that must hold (repeatable): p99<5ms, service.avg<1ms, errors<0.1%
    #[arg(long = "objective", value_name = "LIMIT", required = true, value_delimiter = ',', value_parser = Objective::parse)]
    objectives: Vec<Objective>,
    #[command(flatten)]
    bounds: Bounds,
    /// Time to measure at each rate
    #[arg(long, short = 'd', default_value = "5s", value_parser = positive_duration)]
    duration: Duration,
    /// Time to send before measuring, at each rate
    #[arg(long, default_value = "1s", value_parser = text::duration)]
    warmup: Duration,
    /// Write the result as JSON to a file, or to standard output with -
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs `lateen-load search`.
pub fn search(args: SearchArgs) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let signals = signals::take_over()?;
    if args.bounds.least > args.bounds.most {
        return Err("--min-qps is above --max-qps".into());
    }
    let mut objectives = args.objectives;
    if !objectives.iter().any(Objective::is_of_failures) {
        objectives.extend(Objective::parse("errors<1%"));
    }
    let plan = Plan {
        load: args.load,
        qps: 0.0,
        duration: args.duration,
        requests: None,
        warmup: args.warmup,
        think_time: Duration::ZERO,
        round: 1,
    };
    let found = find(&plan, &objectives, args.bounds, &signals)?;
    write(&found, &found.to_text(), args.json.as_deref())?;
    Ok(match found.found_qps {
        Some(_) => ExitCode::SUCCESS,
        None => ExitCode::FAILURE,
    })
}

/// The version of the JSON that a search writes.
const FORMAT: &str = "lateen-load-search/1";

/// The result of a search.
#[derive(Debug, Clone, Serialize)]
struct Found {
    /// [`FORMAT`].
    format: &'static str,
    /// The limits that had to hold.
    objectives: Vec<String>,
    /// The highest rate at which it held every time, in requests per second; null if there is none.
    found_qps: Option<f64>,
    /// The cause that kept it from being higher: `service`, `generator`, `max-qps`, or `interrupted`.
    limited_by: &'static str,
    /// The reason why the search ended before its time.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// The tries, in order.
    steps: Vec<Step>,
    /// The last run at the rate that was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    report: Option<Report>,
}

/// One try.
#[derive(Debug, Clone, Serialize)]
struct Step {
    qps: f64,
    purpose: Purpose,
    verdict: Verdict,
    /// The limits that were missed, in words.
    why: Vec<String>,
    achieved_qps: f64,
    /// Absent where fewer than 100 times lie beyond, as `p99_ms` is.
    #[serde(skip_serializing_if = "Option::is_none")]
    p50_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p99_ms: Option<f64>,
    failed: u64,
    /// The generator's own lateness, and the shares of time in which it ran and waited to run.
    lateness_p99_ms: f64,
    cpu_share: f64,
    wait_share: f64,
    /// Whether fewer than 100 times lie beyond a percentile that decided.
    few_samples: bool,
}

/// Judges a run.
fn judge(report: &Report, objectives: &[Objective]) -> (Verdict, Vec<String>) {
    let misses = |objective: &Objective| objective.missed_by(report);
    let mut why: Vec<String> = objectives.iter().filter_map(misses).collect();
    if report.fell_behind() {
        let (achieved, wanted) = (report.rates.achieved_qps, report.rates.wanted_qps);
        why.push(format!("{achieved:.1} of {wanted:.1} requests/s"));
    }
    if why.is_empty() {
        return (Verdict::Met, why);
    }
    let failed = |objective: &Objective| objective.is_of_failures() && misses(objective).is_some();
    // A generator that is late makes no answer fail.
    if objectives.iter().any(failed) {
        return (Verdict::Missed, why);
    }
    let busy = report.generator.is_at_its_limit();
    if report.own_lateness().is_some() || busy {
        why.push(format!(
            "the generator was late by {:.3} ms (P99), ran {:.0} % of the time and waited for a processor {:.0} %",
            report.times[Kind::Lateness].quantile(0.99),
            report.generator.cpu_share * 100.0,
            report.generator.wait_share * 100.0
        ));
        return (Verdict::Generator, why);
    }
    (Verdict::Missed, why)
}

/// Searches, and writes a line for each try to standard error.
fn find(
    plan: &Plan,
    objectives: &[Objective],
    bounds: Bounds,
    signals: &UnixStream,
) -> Result<Found, RunError> {
    let mut bisection = Bisection::new(bounds);
    let mut steps: Vec<Step> = Vec::new();
    let (mut best, mut error, mut interrupted) = (None, None, false);
    while let Some((qps, purpose)) = bisection.next() {
        let qps = round(qps);
        let mut run = plan.clone();
        run.qps = qps;
        run.load.name = format!("{qps:.1} requests/s");
        run.load.seed = plan.load.seed.wrapping_add(steps.len() as u64);
        let mut report = match run.run(signals) {
            Ok(report) => report,
            // The findings so far are worth keeping.
            Err(stopped) if !steps.is_empty() => {
                error = Some(stopped.to_string());
                break;
            }
            Err(stopped) => return Err(stopped),
        };
        if report.interrupted {
            interrupted = true;
            break;
        }
        let (verdict, why) = judge(&report, objectives);
        let few = |objective: &Objective| objective.rests_on_few(&report);
        let step = Step {
            qps,
            purpose,
            verdict,
            why,
            achieved_qps: report.rates.achieved_qps,
            p50_ms: told(&report.times[Kind::Response], 0.5),
            p99_ms: told(&report.times[Kind::Response], 0.99),
            failed: report.counts.failed,
            lateness_p99_ms: report.times[Kind::Lateness].quantile(0.99),
            cpu_share: report.generator.cpu_share,
            wait_share: report.generator.wait_share,
            few_samples: objectives.iter().any(few),
        };
        // Nobody is left to tell if it fails.
        let _ = writeln!(io::stderr(), "{}", step.to_text());
        steps.push(step);
        if verdict == Verdict::Met {
            report.leave_out_few();
            best = Some(report);
        }
        bisection.take(verdict);
    }
    let found_qps = bisection.answer().map(round);
    let limited_by = match (interrupted || error.is_some(), bisection.missed()) {
        (true, _) => "interrupted",
        (false, None) => "max-qps",
        (false, Some((_, Verdict::Generator))) => "generator",
        (false, Some(_)) => "service",
    };
    Ok(Found {
        format: FORMAT,
        objectives: objectives.iter().map(ToString::to_string).collect(),
        found_qps,
        limited_by,
        error,
        steps,
        report: best.filter(|report| Some(report.config.qps) == found_qps),
    })
}

/// A percentile, if enough of the times lie beyond it.
fn told(times: &Summary, quantile: f64) -> Option<f64> {
    is_told(quantile, times.count).then(|| times.quantile(quantile))
}

impl Step {
    fn to_text(&self) -> String {
        let verdict = match self.verdict {
            Verdict::Met => "met",
            Verdict::Missed => "missed",
            Verdict::Generator => "missed, by the generator",
        };
        let mut out = format!("{:>12.1} requests/s: {verdict}", self.qps);
        let mut separator = ';';
        for (name, value) in [("P50", self.p50_ms), ("P99", self.p99_ms)] {
            if let Some(value) = value {
                let _ = write!(out, "{separator} {name} {value:.3} ms");
                separator = ',';
            }
        }
        if !self.why.is_empty() {
            let _ = write!(out, " ({})", self.why.join(", "));
        }
        out
    }
}

impl Found {
    /// The result as a person reads it.
    fn to_text(&self) -> String {
        let objective = self.objectives.join(" and ");
        let mut out = match self.found_qps {
            Some(qps) => format!("{qps:.1} requests/s under {objective}\n"),
            None => format!("no rate was found under {objective}\n"),
        };
        let note = match (self.limited_by, &self.error) {
            (_, Some(error)) => format!("the search ended early: {error}"),
            ("interrupted", _) => "interrupted: what was met is not confirmed".to_owned(),
            ("generator", _) => "the generator reached its own limit: the service may carry more; use more --threads or another machine".to_owned(),
            ("max-qps", _) => "the highest rate that was to be tried; raise --max-qps".to_owned(),
            _ => String::new(),
        };
        if !note.is_empty() {
            let _ = writeln!(out, "note: {note}");
        }
        if self.steps.iter().any(|step| step.few_samples) {
            out.push_str("note: at some rates fewer than 100 answers lay beyond the percentile; a longer --duration tells more\n");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::times_of;

    fn of(count: u32, ms: f64) -> Summary {
        Summary::of(&times_of((0..count).map(|_| (ms * 1e6) as u64)))
    }

    fn report() -> Report {
        let mut report = Report::default();
        (report.config.qps, report.rates.wanted_qps) = (100.0, 100.0);
        report.rates.achieved_qps = 100.0;
        report.times[Kind::Response] = of(1000, 4.0);
        report.counts.ok = 1000;
        report
    }

    #[test]
    fn a_miss_is_the_generators_when_it_was_late_or_busy() {
        let objectives = [Objective::parse("p99<5ms").unwrap()];
        let verdict = |report: &Report| judge(report, &objectives).0;
        assert_eq!(verdict(&report()), Verdict::Met);
        let mut slow = report();
        slow.times[Kind::Response] = of(1000, 6.0);
        assert_eq!(verdict(&slow), Verdict::Missed);
        let mut behind = report();
        behind.rates.achieved_qps = 90.0;
        assert_eq!(verdict(&behind), Verdict::Missed, "the rate is part of it");
        let mut late = slow.clone();
        late.times[Kind::Lateness] = of(1000, 0.7);
        assert_eq!(verdict(&late), Verdict::Generator);
        let mut busy = behind;
        (busy.generator.cpu_share, busy.generator.wait_share) = (0.6, 0.37);
        assert_eq!(verdict(&busy), Verdict::Generator);
        let failing = [Objective::parse("errors<1%").unwrap()];
        let mut failed = late;
        failed.counts.failed = 100;
        assert_eq!(judge(&failed, &failing).0, Verdict::Missed);
        let mut fine = report();
        fine.generator.cpu_share = 0.97;
        assert_eq!(verdict(&fine), Verdict::Met, "it was met all the same");
    }

    #[test]
    fn a_step_tells_only_percentiles_that_rest_on_enough() {
        let (few, enough) = (of(1000, 4.0), of(10_000, 4.0));
        let mut step = Step {
            qps: 100.0,
            purpose: Purpose::Explore,
            verdict: Verdict::Met,
            why: Vec::new(),
            achieved_qps: 100.0,
            p50_ms: told(&few, 0.5),
            p99_ms: None,
            failed: 0,
            lateness_p99_ms: 0.0,
            cpu_share: 0.0,
            wait_share: 0.0,
            few_samples: true,
        };
        for (p99_ms, said) in [(told(&few, 0.99), false), (told(&enough, 0.99), true)] {
            step.p99_ms = p99_ms;
            let text = step.to_text();
            assert!(text.contains("; P50 4.0"), "{text}");
            assert_eq!(text.contains(", P99 4.0"), said, "{text}");
        }
    }
}
