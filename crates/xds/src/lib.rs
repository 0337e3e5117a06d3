//! Delta ADS client of proxies: subscribes, hands responses to a [`Sink`], acknowledges once the sink has applied them,
//! reconnects. `lateen-config` knows what a resource means. The connector secures the connection.
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
