//! Network namespaces of pods, and the sockets that the proxy makes in them: listeners, prepared sockets, sockets for DNS, original
//! destinations.
//!
//! This crate alone may change a thread's network namespace. Only its own threads do so; every other crate receives
//! finished sockets.

mod dns;
mod listeners;
pub mod netns;
mod netns_tasks;
mod options;
pub mod socket;
pub mod socket_pool;
mod thread;

pub use dns::DnsSockets;
pub use listeners::{Listeners, Named};
pub use netns::Netns;
pub use options::{DEFAULT_MARK, DnsAt, Keepalive, Options};
pub use socket::{Kind, original_destination};
pub use socket_pool::SocketPool;
pub use thread::NamespaceThread;
