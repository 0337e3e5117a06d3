//! One HTTP/1.1 or HTTP/2 connection over any byte stream, as a client or a server. The codecs are `lateen_h1` and
//! `lateen_h2`; heads are those of `lateen_http`.
//!
//! A [`server::Connection`] yields requests, each with an exchange that reads its content and answers it. [`client::open`]
//! gives a handle that makes requests and the connection that moves them. Both protocols have one API:
//!
//! | | HTTP/1 | HTTP/2 |
//! |---|---|---|
//! | exchanges at once | one; pipelined requests wait unread | as many as SETTINGS allow |
//! | a reader that stops | stops the socket at [`Config::receive_buffer`] | stops its stream at its window |
//! | an exchange dropped early | ends the connection | resets the stream |
//! | a tunnel | takes the connection over | is a stream |
//! | drain | `Connection: close` | GOAWAY |
//!
//! A connection and its exchanges live on one thread and share their state without a lock. An exchange wakes the driver when
//! there is output, and the driver wakes an exchange when there is input or room.
//!
//! An [`Account`] bounds the memory of a peer's connections, see [`Config::account`], [`client::Exchange::charge`] and [`Hold`].
//!
//! The parts of the driver that know nothing of messages are public: [`Transport`], [`Shared`], [`Inbox`], [`Spread`] and
//! [`StalledWindow`].
//! `lateen_hbone` makes its own driver of them.
#![forbid(unsafe_code)]

mod account;
pub mod client;
mod config;
mod core;
mod driver;
mod entries;
mod entry;
mod error;
mod hold;
mod holders;
mod inbound;
mod inbox;
mod keep;
mod lines;
mod names;
mod outgoing;
mod receive;
mod room;
mod send;
pub mod server;
mod shared;
mod spread;
mod stalled_window;
mod stream;
mod timer;
mod transport;
mod tunnel;
mod unwritten;
mod wire;

pub use account::{Account, OpenConnection};
pub use config::{Config, Protocol, Timeouts};
pub use error::{ConnectionError, Error};
pub use hold::Hold;
pub use inbox::{BUFFER, Inbox};
pub use shared::{Driven, DriverWaker, Shared};
pub use spread::Spread;
pub use stalled_window::StalledWindow;
pub use stream::Stream;
pub use transport::{Transport, Written};
pub use tunnel::Tunnel;
