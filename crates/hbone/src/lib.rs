//! HTTP/2 CONNECT tunnels (Istio's HBONE): the client with its pool, the server, and the headers that they exchange.
//! It works over any byte stream and knows neither sockets, TLS nor policy: those are the caller's.
//!
//! Everything here belongs to one worker thread: streams and tunnels are not `Send`, and background
//! work is spawned with `lateen_fair::spawn_local`: it is charged to whom it is done for.
#![forbid(unsafe_code)]

mod budget;
pub mod client;
mod credit;
mod driver;
mod ended;
mod error;
pub mod headers;
mod keepalive;
mod load;
mod outbox;
pub mod pool;
pub mod server;
mod settings;
mod stream;
mod unanswered;
mod windows;

pub use budget::Budget;
pub use client::{ConnectRequest, ResponseInfo, Tunnel};
pub use driver::Below;
pub use error::{CloseReason, ConnectError, StreamError, TunnelError};
pub use headers::{Authority, Baggage, Forwarded, TraceParent};
pub use lateen_h2::Abuse;
pub use outbox::SendBudget;
pub use pool::{Dialled, Lent, Pool, PoolError, PoolKey};
pub use server::{Connection, Incoming, Status};
pub use settings::Settings;
pub use stream::Stream;
pub use unanswered::Unanswered;
