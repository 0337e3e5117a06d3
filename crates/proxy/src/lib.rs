//! Assembly of the data plane: threads, settings, and one module for each role. The crates below decide about a connection;
//! this crate decides in which order they are asked.
#![forbid(unsafe_code)]

mod certificates;
mod certified;
mod connection_table;
mod connections;
mod counted;
mod current;
mod describe;
mod dns;
mod dump;
mod inner_tunnel;
mod local_tunnels;
mod node;
mod notify;
mod pod;
mod pods;
mod publish;
pub mod reference;
mod revocations;
mod run;
mod sampling;
pub mod settings;
mod takeover;
#[cfg(test)]
mod testing;
mod tunnels;
mod waypoint;

#[cfg(feature = "measured")]
pub use waypoint::measured;

pub use run::{StartError, node as run_node, waypoint as run_waypoint};

/// The version of this binary.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
