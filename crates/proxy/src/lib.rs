//! Assembles the data plane; one file a role, and this one is lateen-proxy.
#![forbid(unsafe_code)]
