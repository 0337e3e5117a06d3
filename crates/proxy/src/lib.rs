//! Assembles the data plane: threads, settings, and one file a role. What a connection costs and what it may do is
//! decided in the crates below; the order in which they are asked is decided here.
#![forbid(unsafe_code)]

mod certificates;
mod connections;
mod current;
mod dns;
mod dump;
mod live;
mod meeting;
mod node;
mod notify;
mod pod;
mod pods;
mod publish;
pub mod reference;
mod revocations;
mod run;
pub mod settings;
mod tunnels;

pub use run::{StartError, node as run_node};

/// The version of this binary.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
