//! What tests of several crates share: certificate authorities, identities, WDS builders.
#![forbid(unsafe_code)]
