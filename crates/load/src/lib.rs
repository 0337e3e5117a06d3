//! The load generator of the lab and the echo service that it sends requests to. It measures from outside and knows
//! nothing of meshes and proxies.
#![forbid(unsafe_code)]

mod arrivals;
mod cli;
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

pub use cli::main;
