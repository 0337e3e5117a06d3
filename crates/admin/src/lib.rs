//! HTTP pages of a proxy: metrics, readiness, connections, configuration dump, log levels, shutdown.
//!
//! Each page asks the owner of its content at the time of the request. The crate itself keeps only which parts are not ready
//! yet.
#![forbid(unsafe_code)]

mod pages;
mod private;
mod readiness;
mod server;

pub use pages::{Admin, MetricsPages, ReadinessPages};
pub use private::{Private, bind_private};
pub use readiness::Readiness;
pub use server::{Answer, Asked, Both, Listening, Pages, Reply, bind, parameters, serve};
