//! Acceptor of a process: it takes connections from listeners and gives each to the least loaded worker, within quotas of
//! descriptors. It knows no network namespace; listeners come to it as open sockets.
#![forbid(unsafe_code)]

pub mod acceptor;
mod address;
mod fd_quota;

pub use acceptor::{Accepted, Acceptor, LoadGuard, Loads, Registration};
pub use address::canonical;
pub use fd_quota::{FdQuota, Held};
