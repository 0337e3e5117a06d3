//! The rules of requests at one attachment point.

use std::sync::Arc;

use lateen_policy::request::{RequestPolicies, TokenPlaces};
use rpds::HashTrieMapSync;

use crate::ServiceKey;

/// The policies and token rules of requests for one service, or of those for services without rules of their own.
#[derive(Debug, Default)]
pub struct RequestRules {
    /// The compiled policies.
    pub policies: RequestPolicies,
    /// The same policies for connections whose requests nobody reads.
    pub streams: RequestPolicies,
    /// Where tokens are looked for; the default places if no Authentication names any.
    pub tokens: TokenPlaces,
    /// An Authentication names places: a request with a token is refused with 401, since no token is verified yet.
    pub refuses_tokens: bool,
}

/// The rules of all attachment points. A clone shares them.
#[derive(Debug, Clone)]
pub(crate) struct RulesByService {
    /// For services without rules of their own.
    pub(crate) gateway: Arc<RequestRules>,
    /// With those of the Gateway.
    pub(crate) services: HashTrieMapSync<ServiceKey, Arc<RequestRules>>,
}

impl Default for RulesByService {
    fn default() -> Self {
        Self {
            gateway: Arc::default(),
            services: HashTrieMapSync::new_sync(),
        }
    }
}
