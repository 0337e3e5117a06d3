//! The outcome of judging a peer.

use std::sync::Arc;

use super::rules::Judged;

/// The part of decisions that a connection's peer settles, as bits. It belongs to the policies that judged the peer.
#[derive(Debug, Clone)]
pub struct PeerBits {
    /// The mark of the policies.
    pub(super) of: Arc<()>,
    pub(super) enforced: Judged,
    pub(super) reported: Judged,
}
