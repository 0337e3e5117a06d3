//! The node role: a connection of a captured pod, from the accepted socket to the last byte.
//!
//! `role` hands each connection to one of three modules: `outbound` is the way out of a pod, `inbound` the way in through a
//! tunnel, `plaintext` the way in without one. `same_node` leads from the first to the second if this process serves both pods.
//! Each reads as the verbs of a connection, in order.
//!
//! `state` is the state that all of them share on one worker. A phase that ends before bytes flow is boxed, so that a
//! connection that only relays reserves no memory for it.

mod arrival;
mod attempt;
mod describe;
mod dial;
mod ejection;
mod inbound;
mod outbound;
mod pairs;
mod plaintext;
mod refusal;
mod relaying;
mod request;
mod role;
mod same_node;
mod state;
#[cfg(test)]
mod tests;
mod tunnel;

pub use request::{NodeHandle, PodUse, Request, watch};
pub use state::{Node, NodeConfig, SameNode, Timeouts};
