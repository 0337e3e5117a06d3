//! The crate from outside: bytes in, answers out.

mod cluster_ip;
mod dump;
mod endpoint_address;
mod invariants;
mod policy;
mod rejection;
mod route;
mod store;
mod support;
mod way;
