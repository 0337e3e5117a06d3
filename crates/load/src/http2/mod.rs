//! Frames (RFC 9113 §4 and §6) and an encoder of header blocks, without streams, flow control or sockets.

pub mod frame;
pub mod hpack;
