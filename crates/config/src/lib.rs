//! Parses WDS and Authorization resources into immutable snapshots and answers where a connection goes.
#![forbid(unsafe_code)]
