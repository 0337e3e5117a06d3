//! A local executor that shares one thread's time fairly between groups of tasks: however many tasks of one group are
//! ready, another group waits no longer than one quantum for each group that is ready too. It does not know what the
//! groups stand for, and it runs inside a tokio runtime, whose sockets and timers its tasks use.
//!
//! [`DeficitRoundRobin`] is the decision, a pure deficit round robin; [`Executor`] runs tasks by it.
#![forbid(unsafe_code)]

mod clocks;
mod deficit_round_robin;
mod executor;

pub use deficit_round_robin::{DeficitRoundRobin, Key};
pub use executor::{Executor, Group, Groups, spawn_local};
