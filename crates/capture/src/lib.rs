//! Sockets in pods' network namespaces: listeners, prepared sockets, original destinations, the acceptor, ZDS; and
//! how much of the program stays mapped. What is done with a connection, and which pod may talk to which, is decided elsewhere.
//!
//! With `lateen-accelerate` this is the one crate of the data plane that may say `unsafe`, and it alone may change a
//! thread's network namespace. Only [`NamespaceThread`] does so; everybody else receives finished sockets.

pub mod acceptor;
mod dns;
mod fd_quota;
pub mod keeper;
mod limits;
mod listeners;
pub mod netns;
mod netns_tasks;
mod options;
mod packet;
mod page_release;
mod slice;
pub mod socket;
pub mod socket_pool;
mod thread;
pub mod zds;

pub use acceptor::{Accepted, Acceptor, LoadGuard, Loads, Registration};
pub use dns::DnsSockets;
pub use fd_quota::{FdQuota, Held};
pub use keeper::{Keeper, Ledger, Named};
pub use limits::raise_file_limit;
pub use listeners::Listeners;
pub use netns::Netns;
pub use options::{DEFAULT_MARK, DnsAt, Keepalive, Options};
pub use page_release::release_program;
pub use slice::{SLICES, set_slice};
pub use socket::{Kind, original_destination, wake_at};
pub use socket_pool::SocketPool;
pub use thread::NamespaceThread;
