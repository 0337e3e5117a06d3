//! The wire messages of Istio's L4 contracts, generated and checked in, and their gRPC clients behind the feature rpc.
#![forbid(unsafe_code)]
