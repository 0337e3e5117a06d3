//! Decides whether a connection may be served: Istio's L4 authorization semantics as a pure function.
#![forbid(unsafe_code)]
