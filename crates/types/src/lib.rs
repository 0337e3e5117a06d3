//! Identities, names and addresses that every other crate speaks of; no I/O and no policy.
#![forbid(unsafe_code)]
