//! Bounded table of peers' statements about themselves. They prove nothing, and a peer may send another one each time, while
//! labels never expire. So there is a bound for each identity, which keeps one from using up the share of the others, and one
//! over all.

use std::collections::{HashMap, HashSet};

use lateen_types::{Identity, Strng};
use parking_lot::Mutex;

use crate::labels::Party;

/// Different descriptions that are kept of one identity, all of whose workloads share them; further ones stay unknown.
const EACH: usize = 50;
/// Different descriptions that are kept of all.
const MOST: usize = 5000;
/// Bytes of one value: the longest name that Kubernetes has.
const LONGEST: usize = 253;

/// The descriptions seen so far.
#[derive(Debug, Default)]
pub struct Claims(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    by_identity: HashMap<Option<Identity>, HashSet<Party>>,
    total: usize,
}

impl Seen {
    /// Whether a description is known by now.
    fn admit(&mut self, principal: &Option<Identity>, claim: &Party) -> bool {
        let room = self.total < MOST;
        match self.by_identity.get_mut(principal) {
            Some(own) if own.contains(claim) => return true,
            Some(own) if room && own.len() < EACH => own.insert(claim.clone()),
            None if room => self
                .by_identity
                .insert(principal.clone(), HashSet::from([claim.clone()]))
                .is_none(),
            _ => return false,
        };
        self.total += 1;
        true
    }
}

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
            namespace: None,
            principal: None,
            app: text(claim.app),
            version: text(claim.version),
            cluster: text(claim.cluster),
            locality: claim
                .locality
                .map(|(region, zone)| (text(region), text(zone))),
        };
        // Saying nothing takes no room.
        let silent = claim == Party::default();
        let described = if silent || self.0.lock().admit(&principal, &claim) {
            claim
        } else {
            Party::default()
        };
        Party {
            namespace: principal
                .as_ref()
                .map(|principal| principal.namespace().clone()),
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
        claim_of("client", workload)
    }

    fn claim_of(account: &str, workload: &str) -> Party {
        Party {
            workload: Some(workload.into()),
            namespace: Some("pretended".into()),
            principal: Some(Identity::new("cluster.local", "proven", account).unwrap()),
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
        for i in 0..3 * EACH {
            claims.admit(claim(&i.to_string()));
        }
        assert_eq!(claims.0.lock().total, EACH);
        assert_eq!(claims.admit(claim("0")).workload.as_deref(), Some("0"));
        let late = claims.admit(claim("late"));
        assert_eq!(late.workload, None);
        assert_eq!(late.namespace.as_deref(), Some("proven"));
        assert!(late.principal.is_some(), "the proven identity stays");
    }

    #[test]
    fn a_talkative_peer_takes_nothing_from_the_others() {
        let claims = Claims::default();
        for i in 0..3 * MOST {
            claims.admit(claim_of("talkative", &i.to_string()));
        }
        let other = claims.admit(claim_of("other", "shop"));
        assert_eq!(other.workload.as_deref(), Some("shop"));
    }

    #[test]
    fn all_identities_together_stay_bounded() {
        let claims = Claims::default();
        for i in 0..2 * MOST {
            claims.admit(claim_of(&i.to_string(), "shop"));
        }
        let seen = claims.0.lock();
        assert_eq!((seen.total, seen.by_identity.len()), (MOST, MOST));
    }

    #[test]
    fn peers_that_say_nothing_take_no_room() {
        let claims = Claims::default();
        let silent = Party {
            workload: None,
            ..claim("")
        };
        assert!(claims.admit(silent).principal.is_some());
        assert_eq!(claims.0.lock().total, 0);
    }
}
