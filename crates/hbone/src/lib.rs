//! HTTP/2 CONNECT tunnels (Istio's HBONE): the client with its pool, the server, and the headers that they exchange. The crate
//! works over any byte stream. Sockets, TLS and policy are the caller's.
//!
//! Everything here belongs to one worker thread: streams and tunnels are not `Send`. Background work is spawned with
//! `lateen_executor::spawn_local`, so its time is charged to the group that it is done for. Tunnels of a pool that several groups
//! share are charged to a group of their own.
#![forbid(unsafe_code)]

mod budget;
pub mod client;
mod driver;
mod ended;
mod error;
pub mod headers;
mod keepalive;
mod load;
pub mod pool;
mod recv_window;
mod retry_budget;
mod send_buffer;
pub mod server;
mod settings;
mod stream;

pub use budget::Budget;
pub use client::{ConnectRequest, ResponseInfo, Tunnel};
pub use driver::Below;
pub use error::{CloseReason, ConnectError, StreamError, TunnelError};
pub use headers::{Authority, Baggage, Forwarded, TraceParent};
pub use lateen_h2::Abuse;
pub use pool::{Budgeted, Dialled, Pool, PoolError, PoolKey, Users};
pub use retry_budget::RetryBudget;
pub use send_buffer::SendBudget;
pub use server::{Connection, Incoming, Status};
pub use settings::Settings;
pub use stream::{Carrier, Stream};
