//! What the environment asks for.
//!
//! Every value is checked here once; a bad one ends the process before it has touched anything.

mod common;
mod environment;
mod error;
mod l7;
mod node;
pub mod reference;
mod reports;

use std::ffi::OsString;

pub use common::{Authority, Common};
pub(crate) use environment::parse_duration;
pub use environment::{Acceleration, Lookup};
pub use error::SettingError;
pub use l7::WaypointSettings;
pub use node::{Settings, SocketSettings};
pub use reports::Reports;

/// systemd's socket for what it wants to be told, sd_notify(3); its name may hold any bytes.
pub(crate) fn notify_socket() -> Option<OsString> {
    const VARIABLE: &str = "NOTIFY_SOCKET";
    reference::expect_declared(VARIABLE);
    std::env::var_os(VARIABLE)
}

#[cfg(test)]
mod tests;
