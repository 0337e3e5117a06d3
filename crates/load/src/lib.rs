//! The load generator of the lab and the echo service that it sends requests to. It measures from outside and knows
//! nothing of meshes and proxies.
#![forbid(unsafe_code)]

mod arrivals;
pub mod client;
mod csv;
mod fortio;
pub mod frames;
mod poll;
mod record;
mod report;
mod run;
mod search;
pub mod serve;
mod signals;
mod target;
mod text;
mod tls;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use serve::args::ServeArgs;

/// The exit status for a command line that cannot be understood (EX_USAGE of sysexits.h).
const USAGE: u8 = 64;

#[derive(Debug, Parser)]
#[command(
    name = "lateen-load",
    version,
    about = "Load at a fixed rate, and a service to aim it at"
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
    Serve(Box<ServeArgs>),
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
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("lateen-load: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
