//! Addresses of workloads that have a hostname instead of addresses.

use std::fmt;
use std::net::IpAddr;

use async_trait::async_trait;
use lateen_types::WorkloadUid;

use crate::pod::Pod;

/// Why a hostname has no addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// No DNS name can be made of it.
    #[error("{0:?} is no hostname; correct the address of the endpoint")]
    NotAName(String),
    /// The resolver says that there is no such name, or none with an address.
    #[error("the resolver knows no address of {hostname}; correct the endpoint or create the name")]
    NoAddress {
        /// The name that was asked for.
        hostname: String,
    },
    /// No resolver was asked, for a reason that has nothing to do with the name.
    #[error("resolve {hostname}: {reason}")]
    NotAsked {
        /// The name that was wanted.
        hostname: String,
        /// What was in the way.
        reason: String,
    },
    /// No resolver was asked, because the pod holds its share of this process.
    #[error(
        "resolve {hostname}: pod {pod} holds its share of the proxy's descriptors; close idle connections to it, or raise the proxy's limit of open files"
    )]
    NoRoom {
        /// The name that was wanted.
        hostname: String,
        /// Whose share it is.
        pod: WorkloadUid,
    },
    /// No resolver gave a usable answer.
    #[error("resolve {hostname}: {reason}")]
    Unanswered {
        /// The name that was asked for.
        hostname: String,
        /// What went wrong.
        reason: String,
    },
}

impl ResolveError {
    /// Whether another name may do better.
    pub fn blames_name(&self) -> bool {
        match self {
            Self::NotAName(_) | Self::NoAddress { .. } | Self::Unanswered { .. } => true,
            Self::NotAsked { .. } | Self::NoRoom { .. } => false,
        }
    }
}

/// Says where a workload with a hostname is.
#[async_trait]
pub trait Resolver: fmt::Debug + Send + Sync {
    /// The addresses of a hostname, both families, in the order of the resolver's answer; never an empty list. The
    /// question is asked from the pod's namespace. Answers are kept for as long as their time to live, and longer while
    /// no resolver answers.
    ///
    /// # Errors
    /// See [`ResolveError`].
    async fn resolve(&self, pod: &Pod, hostname: &str) -> Result<Vec<IpAddr>, ResolveError>;
}
