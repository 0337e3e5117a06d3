//! What peers say about themselves. It proves nothing and they may say something else each time, so what is kept of it
//! is bounded: labels never expire.

use std::collections::HashSet;

use lateen_types::Strng;
use parking_lot::Mutex;

use crate::labels::Party;

/// Different descriptions that are kept; peers that come with further ones stay unknown.
const MOST: usize = 1000;
/// Bytes of one value: the longest name that Kubernetes has.
const LONGEST: usize = 253;

/// The descriptions seen so far.
#[derive(Debug, Default)]
pub struct Claims(Mutex<HashSet<Party>>);

impl Claims {
    /// The part of a peer's description of itself that may become labels. The proven parts, its identity and with it
    /// its namespace, always may.
    pub fn admit(&self, claim: Party) -> Party {
        let principal = claim.principal;
        let text = |value: Option<Strng>| value.filter(|value| is_plausible(value));
        let claim = Party {
            workload: text(claim.workload),
            canonical_service: text(claim.canonical_service),
            canonical_revision: text(claim.canonical_revision),
            namespace: principal
                .as_ref()
                .map(|principal| principal.namespace().clone()),
            principal: None,
            app: text(claim.app),
            version: text(claim.version),
            cluster: text(claim.cluster),
            locality: claim
                .locality
                .map(|(region, zone)| (text(region), text(zone))),
        };
        let namespace = claim.namespace.clone();
        let known = {
            let mut seen = self.0.lock();
            seen.contains(&claim) || (seen.len() < MOST && seen.insert(claim.clone()))
        };
        let described = if known { claim } else { Party::default() };
        Party {
            namespace,
            principal,
            ..described
        }
    }
}

fn is_plausible(value: &str) -> bool {
    value.len() <= LONGEST && !value.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use lateen_types::Identity;

    use super::*;

    fn claim(workload: &str) -> Party {
        Party {
            workload: Some(workload.into()),
            namespace: Some("pretended".into()),
            principal: Some(Identity::new("cluster.local", "proven", "client").unwrap()),
            ..Party::default()
        }
    }

    #[test]
    fn a_plausible_description_is_kept_with_the_proven_namespace() {
        let admitted = Claims::default().admit(claim("shop"));
        assert_eq!(admitted.workload.as_deref(), Some("shop"));
        assert_eq!(admitted.namespace.as_deref(), Some("proven"));
        assert!(admitted.principal.is_some());
    }

    #[test]
    fn values_that_no_workload_has_are_left_out() {
        let claims = Claims::default();
        for value in ["x".repeat(254).as_str(), "line\nbreak", "\u{1b}[31m"] {
            assert_eq!(claims.admit(claim(value)).workload, None, "{value:?}");
        }
    }

    #[test]
    fn ever_new_descriptions_stay_bounded_and_known_ones_stay_known() {
        let claims = Claims::default();
        for i in 0..3 * MOST {
            claims.admit(claim(&i.to_string()));
        }
        assert_eq!(claims.0.lock().len(), MOST);
        assert_eq!(claims.admit(claim("0")).workload.as_deref(), Some("0"));
        let late = claims.admit(claim("late"));
        assert_eq!(late.workload, None);
        assert_eq!(late.namespace.as_deref(), Some("proven"));
        assert!(late.principal.is_some(), "the proven identity stays");
    }
}
