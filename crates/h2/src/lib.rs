//! An HTTP/2 core (RFC 9113 with RFC 7541): a state machine that takes bytes and time in and gives events and bytes out, as a
//! client or a server. It owns no socket, runtime or clock, and gives streams no meaning.
//!
//! [`Connection::receive`] takes input and returns [`Event`]s whose data are slices of that input. [`Connection::output`]
//! gathers the bytes to write: frames of many streams at once, payloads by reference. The caller asks for everything else: the
//! fields of a header block ([`Connection::fields`]), room to send ([`Connection::room`]), and the next time at which
//! [`Connection::tick`] has work.
//!
//! A message is a header block, data and trailers ([`Connection::trailers`]); informational responses come before the final one
//! ([`Connection::inform`]). The core holds content to the length that a message gives (RFC 9113 §8.1.1).
//!
//! The caller judges the meaning of fields: `:authority` against `host`, forms of `:path`, and cookies that are split into
//! several fields.
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
mod notes;
mod output;
pub mod pieces;
mod reader;
mod recv_flow;
mod stream;
mod streams;
mod timestamp;
mod trailers;
mod turns;
mod waiting;

pub use abuse::{Abuse, Allowance, Allowances};
pub use code::Code;
pub use config::{Config, FLOOR, SharedConfig};
pub use connection::Connection;
pub use error::{Cause, ConnectionError, Gone, InformError, RequestError, StreamError, StreamId};
pub use event::Event;
pub use hpack::{BlockWriter, Field, FieldLine, FieldPlace, Fields, Keep, Known, Prebuilt};
pub use notes::FrameNote;
pub use recv_flow::Credit;
pub use timestamp::Timestamp;
