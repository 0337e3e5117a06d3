//! Fetches, keeps and renews the certificates of the workloads on this node, or of a waypoint or gateway itself.
//!
//! The crate decides when to ask, and asks an [`Issuer`]. `lateen-tls` says what a certificate must contain and how peers are
//! verified.
#![forbid(unsafe_code)]

mod ca;
mod issuer;
mod manager;
pub mod schedule;

pub use ca::{Behalf, CaClient, CaError, CaSettings, TokenSource};
pub use issuer::{IssueError, Issued, Issuer};
pub use manager::{Clock, FetchError, Manager, State, SystemClock};
