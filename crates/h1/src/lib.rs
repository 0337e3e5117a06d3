//! An HTTP/1.1 core (RFC 9112): a state machine that takes bytes in and gives events and bytes out, as a client or a server. It
//! owns no socket, runtime or clock, and does not judge what a request means.
//!
//! [`ServerConnection::receive`] and [`ClientConnection::receive`] take input and return one event at a time. Heads and content are slices of
//! that input. The caller keeps the input that was not taken: a pipelined request, or bytes before an accepted upgrade.
//! `output` gives the bytes to write, with payloads by reference, and `advance` drops what was written.
//!
//! # Deviations
//!
//! The RFC lets a recipient choose in these places, or parsers differ. This crate refuses, so that no two parsers disagree.
//!
//! | input | here | `httparse` and hyper |
//! |---|---|---|
//! | a line that ends with LF alone | refused | accepted |
//! | more than four empty lines before a request, or any before a response | refused | accepted |
//! | two Content-Length fields with one value | refused | accepted |
//! | Content-Length and Transfer-Encoding | refused | Content-Length is dropped |
//! | Transfer-Encoding with any coding beside `chunked` | refused, 501 | accepted if `chunked` is last |
//! | no Host field in HTTP/1.1, two Host fields, a value that is no host, a comma in it | refused | accepted |
//! | a target with `#` or bytes beyond ASCII, or in a form that its method does not have | refused | partly accepted |
//! | HTTP/1.2 to HTTP/1.9, which the RFC lets a recipient read as 1.1 | refused, 505 | refused |
//! | CONNECT with content | refused | accepted |
//! | white space between a chunk size and `;` or CRLF | refused | accepted |
//! | trailer fields for framing, routing, authentication or content | dropped and counted | accepted |
//! | a reason phrase with bytes beyond ASCII | kept | dropped |
//! | a refused CONNECT, or a refused upgrade with bytes behind it | the connection closes | not compared |
//! | a final answer to an unmet `Expect: 100-continue` | the connection closes | not compared |
#![forbid(unsafe_code)]

mod body;
mod chunked;
mod client;
mod config;
mod encode;
mod error;
mod event;
mod fields;
mod framing;
mod name;
mod output;
mod piece;
mod reason;
mod request;
mod response;
mod scan;
mod section;
mod server;
mod target;
mod trailers;
mod tunnel;

pub use client::ClientConnection;
pub use config::Config;
pub use encode::FieldWriter;
pub use error::{Error, WriteError};
pub use event::{ClientEvent, ServerEvent};
pub use fields::{Field, Fields};
pub use framing::{Length, Version};
pub use request::Request;
pub use response::Response;
pub use server::ServerConnection;
pub use target::TargetForm;
pub use trailers::Trailers;
pub use tunnel::Tunnel;
