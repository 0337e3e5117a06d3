//! Interface of a certificate authority.

use std::future::Future;
use std::pin::Pin;

use lateen_tls::{Credentials, CredentialsError, KeyError};
use lateen_types::Identity;

/// A certificate in the making.
pub type Issued<'a> = Pin<Box<dyn Future<Output = Result<Credentials, IssueError>> + Send + 'a>>;

/// A certificate authority as the manager sees it.
pub trait Issuer: Send + Sync + 'static {
    /// Makes a key and has it certified for `identity`.
    fn issue<'a>(&'a self, identity: &'a Identity) -> Issued<'a>;
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// The node proxy cannot say who it is.
    #[error("read token {path}: {source}; the node's service account token must be mounted there")]
    Token {
        /// Where the token should be.
        path: String,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// The token holds what no header can carry.
    #[error("token or header of the request holds characters that gRPC does not allow")]
    Metadata,
    /// The authority cannot be reached.
    #[error("certificate authority unreachable: {0}")]
    Unreachable(String),
    /// The authority took too long.
    #[error(
        "certificate authority did not answer within {0} s; see whether the control plane is stuck, or the network loses \
         what it sends"
    )]
    Timeout(u64),
    /// The authority refused.
    #[error("certificate authority refused: {code}: {message}")]
    Refused {
        /// The gRPC code.
        code: String,
        /// Its words.
        message: String,
    },
    /// No key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// What it sent cannot be used.
    #[error(transparent)]
    Unusable(#[from] CredentialsError),
    /// It certified somebody else.
    #[error("certificate authority sent a certificate of {presented}")]
    WrongIdentity {
        /// Whom.
        presented: Identity,
    },
    /// It sent a certificate that is not valid now.
    #[error("certificate authority sent a certificate that is not valid now; a clock is wrong")]
    NotValidNow,
}
