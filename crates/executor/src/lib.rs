//! Local executor that shares one thread's time fairly between groups of tasks. Many ready tasks of one group do not delay
//! another group: it waits at most one quantum for each other group that is ready.
//!
//! The executor gives groups no meaning. It runs inside a tokio runtime, whose sockets and timers its tasks use.
//!
//! [`DeficitRoundRobin`] is the decision, which is pure; [`Executor`] runs tasks by it.
#![forbid(unsafe_code)]

mod clocks;
mod deficit_round_robin;
mod executor;

pub use deficit_round_robin::{DeficitRoundRobin, Key};
pub use executor::{Executor, Group, Groups, SharedGroup, spawn_local};
