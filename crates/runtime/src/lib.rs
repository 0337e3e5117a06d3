//! Worker threads of the data plane, generic over the role that they serve connections in.
//!
//! A [`WorkerHandle`] sends connections, configuration and requests to a worker from any thread. An [`UnstartedWorker`]
//! becomes a thread with a single-threaded executor. On that thread a [`Worker`] holds the configuration in force, the end
//! of the process and the groups of tasks; the [`Role`] holds everything else. A connection and its streams stay on one
//! thread, so nothing on their path is locked or handed to another thread.
#![forbid(unsafe_code)]

mod handle;
mod role;
mod slice;
mod start;
mod worker;

pub use handle::WorkerHandle;
pub use role::Role;
pub use slice::{Turn, count_turn};
pub use start::{UnstartedWorker, WorkerConfig};
pub use worker::Worker;
