//! Starting and ending the process, one file a role.

mod control;
mod error;
mod node;
mod pages;
mod process;
mod source;
mod waypoint;
mod waypoint_control;

pub use error::StartError;
pub use node::node;
pub use waypoint::waypoint;
