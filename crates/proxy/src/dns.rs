//! Names: what the data path is told about workloads that have a hostname instead of addresses.

mod resolver;

pub use resolver::{ResolveError, Resolver, Unresolved};
