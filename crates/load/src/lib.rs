//! The load generator of the lab, the echo service it aims at, and the table that sets two sets of
//! results side by side. It measures from outside and knows nothing of meshes, proxies or TLS.
#![forbid(unsafe_code)]

mod arrivals;
mod cli;
pub mod http;
mod poll;
mod record;
mod report;
mod run;
mod serve;
mod signals;
mod table;
mod target;
mod text;

pub use cli::main;
