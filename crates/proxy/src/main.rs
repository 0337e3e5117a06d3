//! lateen-proxy: the data plane, one binary, one role a process.
#![forbid(unsafe_code)]

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use lateen_proxy::settings::{Common, SettingError, Settings, WaypointSettings};
use lateen_proxy::{StartError, reference, run_node, run_waypoint};
use lateen_telemetry::log;

/// Many short-lived buffers of very different sizes: jemalloc gives memory back where glibc's arenas keep it.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The data plane of Lateen.
#[derive(Parser)]
#[command(name = "lateen-proxy", version)]
struct Cli {
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Serve the pods of one node at L4: identity, encryption, policy, telemetry.
    ///
    /// It is configured by the environment variables that ztunnel reads, NODE_NAME, XDS_ADDRESS, CA_ADDRESS and
    /// INPOD_UDS first among them.
    Node {
        /// Print every variable, metric and field of the access log instead, and end.
        #[arg(long, value_name = "FORMAT")]
        reference: Option<ReferenceFormat>,
    },
    /// Serve the requests for services that are bound to a Gateway: policy, endpoints, telemetry.
    ///
    /// It is configured by the environment: GATEWAY_NAME, POD_NAME, POD_NAMESPACE, SERVICE_ACCOUNT, and the variables of the
    /// node role that are not about pods.
    Waypoint,
}

#[derive(Clone, Copy, ValueEnum)]
enum ReferenceFormat {
    Json,
}

fn main() -> ExitCode {
    match Cli::parse().role {
        Role::Node {
            reference: Some(ReferenceFormat::Json),
        } => match writeln!(io::stdout(), "{}", reference::json()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE, // the reader has left
        },
        Role::Node { reference: None } => match Settings::from_environment() {
            Ok(settings) => run(&settings.common.clone(), || run_node(settings)),
            Err(error) => unusable(&error.to_string()),
        },
        Role::Waypoint => match WaypointSettings::from_environment() {
            Ok(settings) => run(&settings.common.clone(), || run_waypoint(settings)),
            Err(error) => unusable(&error.to_string()),
        },
    }
}

/// Runs a role, with the log that its settings ask for.
fn run(common: &Common, role: impl FnOnce() -> Result<(), StartError>) -> ExitCode {
    let format = if common.log_json {
        log::Format::Json
    } else {
        log::Format::Plain
    };
    if let Err(error) = log::init(format, &common.log_levels) {
        return unusable(&format!("RUST_LOG: {error}"));
    }
    log::flush_on_panic();
    let outcome = role();
    if let Err(error) = &outcome {
        tracing::error!(%error, "the proxy cannot run");
    }
    log::flush();
    if outcome.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn unusable(error: &str) -> ExitCode {
    eprintln!("lateen-proxy: {error}");
    ExitCode::from(SettingError::EXIT)
}
