//! Fetches, keeps and renews the certificates of the workloads on this node, or of a waypoint or gateway itself. It decides when, and asks an [`Issuer`];
//! what a certificate must look like and how peers are verified is the tls crate's business.
#![forbid(unsafe_code)]

mod ca;
mod issuer;
mod manager;
pub mod schedule;

pub use ca::{Behalf, CaClient, CaError, CaSettings, TokenSource};
pub use issuer::{IssueError, Issued, Issuer};
pub use manager::{Clock, FetchError, Manager, State, SystemClock};
