//! ZDS: the node agent hands pods' network namespaces to the node proxy over a SOCK_SEQPACKET unix socket. Wire-compatible with
//! Istio's CNI agent and ztunnel (`istio.workload.zds`). The caller decides what is done for a pod.
#![forbid(unsafe_code)]

mod message;
mod session;

pub use message::{Malformed, PodInfo, Request};
pub use session::{Pods, Session, SessionError, run};
