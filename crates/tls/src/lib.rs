//! Mutual TLS between mesh peers: credentials, SPIFFE verification, streams; the only crate that knows rustls.
#![forbid(unsafe_code)]
