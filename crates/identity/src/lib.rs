//! Fetches, keeps and renews the certificates of the workloads on this node.
#![forbid(unsafe_code)]
