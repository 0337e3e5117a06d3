//! The program from outside: real sockets, real processes, real signals.

mod documents;
mod ends;
mod http2;
mod rig;
mod runs;
mod service;
mod serving;
mod traffic;
