//! The command line: run, search, serve, table.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::report::{FORMAT, Report};
use crate::run;
use crate::search;
use crate::serve::{self, args::ServeArgs};
use crate::table;

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
    #[command(after_help = run::HELP)]
    Run(Box<run::RunArgs>),
    /// Find the highest rate that a service carries under an objective.
    #[command(after_help = search::HELP)]
    Search(Box<search::SearchArgs>),
    /// Answer requests as their query asks: an echo service.
    #[command(after_help = serve::args::HELP)]
    Serve(ServeArgs),
    /// Set results with a mesh beside results without.
    Table(TableArgs),
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
        Command::Run(args) => run::run(*args),
        Command::Search(args) => search::search(*args),
        Command::Serve(args) => args.serve().map(|()| ExitCode::SUCCESS).map_err(Into::into),
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
        assert_eq!(proxy_cpu("a/b/2=1.5"), Ok((("a/b".to_owned(), 2), 1.5)));
        for value in ["mesh=1", "mesh/x=1", "mesh/1", "mesh/1=-1", "mesh/1=inf"] {
            assert!(proxy_cpu(value).is_err(), "{value}");
        }
    }
}
