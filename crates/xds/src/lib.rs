//! The delta ADS client of proxies: subscribes, hands what arrives to a [`Sink`], acknowledges once the sink has
//! put it to use, reconnects. What a resource means is the configuration crate's; how the connection is secured is the
//! connector's.
#![forbid(unsafe_code)]

mod backoff;
mod client;
mod complaint;
mod demand;
mod held;
mod local;
mod lookups;
mod node;
mod stream;
mod transport;

pub use backoff::Backoff;
pub use client::{Client, Observer, Settings, Sink, Termination};
pub use local::{Local, Source};
pub use lookups::{Asks, LookupError, Lookups, lookups};
pub use node::Node;
pub use transport::{Channels, channel};

pub use lateen_config::{Batch, Kind, Kinds, Refused};
