//! What HTTP/2 (RFC 9113) puts on the wire: frames and compressed fields. No streams, no flow control,
//! no socket: who keeps those is a client or a server.

pub mod frame;
pub mod hpack;
