//! The command line: run, serve, table.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::arrivals::Arrivals;
use crate::report::{FORMAT, Report};
use crate::run::{Plan, raise_descriptor_limit};
use crate::serve::Server;
use crate::signals::Signals;
use crate::table;
use crate::text;

/// The exit status for a command line that cannot be understood (EX_USAGE of sysexits.h).
const USAGE: u8 = 64;

#[derive(Debug, Parser)]
#[command(
    name = "lateen-load",
    version,
    about = "Load at a fixed rate, a service to aim it at, and a table of the results"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Send requests at a fixed rate and say how long the answers took.
    #[command(after_help = RUN_HELP)]
    Run(RunArgs),
    /// Answer requests as their query asks: an echo service.
    #[command(after_help = SERVE_HELP)]
    Serve(ServeArgs),
    /// Set results with a mesh beside results without.
    Table(TableArgs),
}

const RUN_HELP: &str = "\
Example:
  lateen-load run --url http://details:9080/details/0 --qps 100 --connections 10 --json none-1.json --name none

Requests start when they are due, whatever became of the earlier ones (an open loop), and take turns on
the connections. One that finds its connection busy waits, and its response time counts from when
it was due. Times are reported three ways: the response time from when a request was due, the
service time from when it was sent, and the generator's own lateness. --qps 0 makes it a closed loop.

Exit status: 0 when there were answers, 1 when there was none or the target cannot be used, 64 for a
wrong command line. Ctrl-C ends a run early; it still writes what it has.";

const SERVE_HELP: &str = "\
The query of a request says how to answer it; values with probabilities as in Fortio:
  size=1024           length of the body in bytes; without it the request's body comes back
  delay=5ms           wait first; delay=10ms:20,1s:1 waits 10 ms in 20 % and 1 s in 1 % of cases
  status=503:10       answer with 503 in 10 % of cases
  close=true          end the connection afterwards; close=5 does so in 5 % of cases
  header=Name:value   add a field
  writes=2            write head and body apart; more writes cut the body further
  nodelay=0           leave TCP_NODELAY unset for this response
GET /health answers 200.";

#[derive(Debug, Args)]
struct RunArgs {
    /// Where to send requests: http://host[:port][/path]
    #[arg(long)]
    url: String,
    /// Requests per second; 0 sends the next request when an answer is there
    #[arg(long, default_value_t = 100.0, value_parser = rate)]
    qps: f64,
    /// Connections to keep
    #[arg(long, short = 'c', default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    connections: u16,
    /// How long to measure
    #[arg(long, short = 'd', default_value = "10s", value_parser = positive_duration)]
    duration: Duration,
    /// How long to send before measuring
    #[arg(long, default_value = "2s", value_parser = text::duration)]
    warmup: Duration,
    /// How starts are spread in time
    #[arg(long, value_enum, default_value_t = Arrivals::Uniform)]
    arrivals: Arrivals,
    /// Open a new connection for every request
    #[arg(long)]
    no_keepalive: bool,
    /// Give a request up after this time
    #[arg(long, default_value = "10s", value_parser = positive_duration)]
    timeout: Duration,
    /// Add a field to every request (repeatable)
    #[arg(long = "header", short = 'H', value_name = "NAME:VALUE", value_parser = text::header)]
    headers: Vec<(String, String)>,
    /// Write the result as JSON to a file, or to standard output with -
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// What this measures, for the table: none, mesh, ...
    #[arg(long, default_value = "")]
    name: String,
    /// Which repetition this is, for the table
    #[arg(long, default_value_t = 1)]
    round: u32,
    /// What random arrivals begin with
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Say each second how it goes
    #[arg(long)]
    progress: bool,
}

#[derive(Debug, Args)]
struct ServeArgs {
    /// Address and port; port 0 takes a free one and says which
    #[arg(long, default_value = "0.0.0.0:8080")]
    listen: SocketAddr,
}

#[derive(Debug, Args)]
struct TableArgs {
    /// Results that `lateen-load run --json` wrote
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The name of the runs that the others are compared with
    #[arg(long, default_value = "none")]
    baseline: String,
    /// Processor time of the proxies in µs per request (repeatable), where the results lack it
    #[arg(long, value_name = "NAME/ROUND=MICROSECONDS", value_parser = proxy_cpu)]
    proxy_cpu: Vec<((String, u32), f64)>,
    /// Print Markdown
    #[arg(long)]
    markdown: bool,
}

/// Runs the program.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { USAGE } else { 0 });
        }
    };
    let result = match cli.command {
        Command::Run(args) => run(args),
        Command::Serve(args) => serve(&args),
        Command::Table(args) => print_table(args),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("lateen-load: {error}");
            ExitCode::FAILURE
        }
    }
}

type Outcome = Result<ExitCode, Box<dyn std::error::Error>>;

fn run(args: RunArgs) -> Outcome {
    let mut signals = Signals::take_over()?;
    let plan = Plan {
        url: args.url,
        qps: args.qps,
        connections: usize::from(args.connections),
        duration: args.duration,
        warmup: args.warmup,
        arrivals: args.arrivals,
        keepalive: !args.no_keepalive,
        timeout: args.timeout,
        headers: args.headers,
        name: args.name,
        round: args.round,
        seed: args.seed,
        progress: args.progress,
    };
    let report = plan.run(&mut signals)?;
    let to_stdout = args.json.as_deref() == Some(Path::new("-"));
    if let Some(path) = args.json.filter(|_| !to_stdout) {
        std::fs::write(&path, report.to_json())
            .map_err(|error| format!("write {}: {error}", path.display()))?;
    }
    if to_stdout {
        io::stdout().write_all(report.to_json().as_bytes())?;
        io::stderr().write_all(report.to_text().as_bytes())?;
    } else {
        io::stdout().write_all(report.to_text().as_bytes())?;
    }
    let nothing_answered = report.counts.ok + report.counts.warmup_ok == 0;
    if nothing_answered && !report.interrupted {
        return Err(format!(
            "{}: no request was answered with success",
            report.config.url
        )
        .into());
    }
    Ok(ExitCode::SUCCESS)
}

fn serve(args: &ServeArgs) -> Outcome {
    let mut signals = Signals::take_over()?;
    raise_descriptor_limit();
    let server = Server::bind(args.listen)?;
    eprintln!("lateen-load: listening on {}", server.address()?);
    server.run(&mut signals)?;
    Ok(ExitCode::SUCCESS)
}

fn print_table(args: TableArgs) -> Outcome {
    let mut reports = Vec::new();
    for path in &args.files {
        reports.push(read_report(path)?);
    }
    let proxy_cpu: BTreeMap<(String, u32), f64> = args.proxy_cpu.into_iter().collect();
    let options = table::Options {
        baseline: args.baseline,
        proxy_cpu,
        markdown: args.markdown,
    };
    io::stdout().write_all(table::render(&reports, &options)?.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn read_report(path: &Path) -> Result<Report, String> {
    let name = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| format!("read {name}: {error}"))?;
    let report: Report = serde_json::from_str(&text).map_err(|error| {
        format!("read {name}: {error}; is it what `lateen-load run --json` wrote?")
    })?;
    if report.format != FORMAT {
        return Err(format!(
            "read {name}: format {:?}; this program reads {FORMAT:?}",
            report.format
        ));
    }
    Ok(report)
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if rate == 0.0 || (0.001..=1_000_000.0).contains(&rate) {
        Ok(rate)
    } else {
        Err("must be 0, or between 0.001 and 1000000".to_owned())
    }
}

fn positive_duration(value: &str) -> Result<Duration, String> {
    match text::duration(value)? {
        Duration::ZERO => Err("must be longer than zero".to_owned()),
        duration => Ok(duration),
    }
}

fn proxy_cpu(text: &str) -> Result<((String, u32), f64), String> {
    let bad = || "write NAME/ROUND=MICROSECONDS, for example mesh/1=52.5".to_owned();
    let (run, value) = text.split_once('=').ok_or_else(bad)?;
    let (name, round) = run.rsplit_once('/').ok_or_else(bad)?;
    let value: f64 = value.parse().map_err(|_| bad())?;
    if !value.is_finite() || value < 0.0 {
        return Err(bad());
    }
    Ok(((name.to_owned(), round.parse().map_err(|_| bad())?), value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for value in ["-1", "nan", "inf", "0.0001", "2000000", "x"] {
            assert!(rate(value).is_err(), "{value}");
        }
        assert_eq!(rate("0"), Ok(0.0));
        assert_eq!(proxy_cpu("a/b/2=1.5"), Ok((("a/b".to_owned(), 2), 1.5)));
        for value in ["mesh=1", "mesh/x=1", "mesh/1", "mesh/1=-1", "mesh/1=inf"] {
            assert!(proxy_cpu(value).is_err(), "{value}");
        }
    }
}
