//! The command line of a search.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::bisection::Bounds;
use super::find;
use super::objective::Objective;
use crate::run::{LoadArgs, Plan, positive_duration, write};
use crate::signals::Signals;
use crate::text;

/// What `--help` says below the options.
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
    /// What must hold (repeatable): p99<5ms, service.avg<1ms, errors<0.1%
    #[arg(long = "objective", value_name = "LIMIT", required = true, value_delimiter = ',', value_parser = Objective::parse)]
    objectives: Vec<Objective>,
    #[command(flatten)]
    bounds: Bounds,
    /// How long to measure at each rate
    #[arg(long, short = 'd', default_value = "5s", value_parser = positive_duration)]
    duration: Duration,
    /// How long to send before measuring, at each rate
    #[arg(long, default_value = "1s", value_parser = text::duration)]
    warmup: Duration,
    /// Write the result as JSON to a file, or to standard output with -
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs `lateen-load search`.
pub fn search(args: SearchArgs) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let signals = Signals::take_over()?;
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
    let found = find(&plan, &objectives, args.bounds, &signals, |line| {
        // Nobody is left to tell if it fails.
        let _ = writeln!(io::stderr(), "{line}");
    })?;
    write(&found.to_json(), &found.to_text(), args.json.as_deref())?;
    Ok(match found.found_qps {
        Some(_) => ExitCode::SUCCESS,
        None => ExitCode::FAILURE,
    })
}
