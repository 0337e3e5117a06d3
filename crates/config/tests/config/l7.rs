//! The resources of proxies that read requests: bytes in, rules of requests out.

mod attached;
mod properties;
mod rejection;
mod settings;
mod support;
