//! An HTTP/2 core (RFC 9113 with RFC 7541): a state machine into which bytes and time go and out of which come events and
//! bytes, as a client or a server. It owns no socket, runtime or clock, and knows nothing of what streams are for.
//!
//! [`Connection::receive`] takes input and gives out [`Event`]s whose data are slices of that input. [`Connection::output`]
//! gathers what there is to write, frames of many streams in one go, payloads by reference. What is not in an event is
//! asked for: the fields of a header block ([`Connection::fields`]), room to send ([`Connection::room`]), the next moment
//! at which [`Connection::tick`] has something to do.
//!
//! A message is a header block, data and trailers ([`Connection::trailers`]); informational answers come before the final
//! one ([`Connection::inform`]). The core holds content to the length that a message gives (RFC 9113 §8.1.1). It leaves to
//! its caller the meaning of fields: `:authority` against `host`, forms of `:path`, crumbs of cookies.
#![forbid(unsafe_code)]

mod abuse;
mod code;
mod config;
mod connection;
mod error;
mod event;
mod flags;
mod frame;
pub mod hpack;
mod message;
mod moment;
mod output;
mod reader;
mod recv_flow;
mod stream;
mod streams;
mod trailers;
mod turns;
mod waiting;

pub use abuse::{Abuse, Allowance, Allowances};
pub use code::Code;
pub use config::{Config, FLOOR, SharedConfig};
pub use connection::Connection;
pub use error::{Cause, ConnectionError, Gone, InformError, RequestError, StreamError, StreamId};
pub use event::Event;
pub use hpack::{Field, FieldLine, Fields, Keep, Known, Prebuilt};
pub use moment::Moment;
pub use recv_flow::Credit;
