//! The crate from outside: bytes in, answers out.

mod candidates;
mod cluster_ip;
mod dump;
mod endpoint_address;
mod invariants;
mod kinds;
mod l7;
mod next_hop;
mod outside;
mod policy;
mod rejection;
mod store;
mod support;
mod way;
