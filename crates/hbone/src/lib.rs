//! HTTP/2 CONNECT tunnels: client pool and server, over any byte stream.
#![forbid(unsafe_code)]
