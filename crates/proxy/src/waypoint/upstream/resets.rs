//! Resets of requests on an endpoint's HTTP/2 connections, counted for each namespace of sources.
//!
//! A server may take many resets for abuse and end the connection (GOAWAY with ENHANCE_YOUR_CALM), whoever's requests are on it. So the
//! sources of a namespace that resets more than its allowance own their connections for a while, see [`super::owner`]. Their requests are
//! served as before. The same holds for a namespace whose content stalls a shared connection.
//!
//! The sources of a namespace have one allowance together: anybody who may make pods in a namespace may have many service accounts
//! there.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use lateen_types::{Identity, Strng};

/// Resets that a namespace may have on connections that others use. Netty ends a connection with more than 200 in 30 s, others with more.
const ALLOWED: u32 = 50;

/// The time in which one more is allowed.
const RECOVERY: Duration = Duration::from_millis(500);

/// Resets that are remembered: the last one is forgotten within 50 s.
const MOST: u32 = 2 * ALLOWED;

/// The resets of all namespaces that have any.
#[derive(Debug, Default)]
pub(super) struct Resets(RefCell<HashMap<Tenant, Count>>);

/// A trust domain, and a namespace in it.
type Tenant = (Strng, Strng);

fn tenant(source: &Identity) -> Tenant {
    (source.trust_domain().clone(), source.namespace().clone())
}

#[derive(Debug)]
struct Count {
    resets: u32,
    /// The time until which `resets` has been counted down.
    since: Instant,
    is_apart: bool,
}

impl Count {
    fn count_down(&mut self, now: Instant) {
        let past = now.saturating_duration_since(self.since);
        let allowed = (past.as_millis() / RECOVERY.as_millis()) as u32;
        self.since += RECOVERY * allowed;
        self.resets = self.resets.saturating_sub(allowed);
        self.is_apart &= self.resets > 0;
    }
}

impl Resets {
    /// Counts a reset of a request of this source.
    pub(super) fn note(&self, source: &Identity, now: Instant) {
        self.set(source, now, |count| {
            count.resets = (count.resets + 1).min(MOST);
            count.is_apart |= count.resets > ALLOWED;
        });
    }

    /// Treats the namespace of this source like one with as many resets as are remembered. Its content stalls a shared connection.
    pub(super) fn set_apart(&self, source: &Identity, now: Instant) {
        self.set(source, now, |count| {
            (count.resets, count.is_apart) = (MOST, true);
        });
    }

    fn set(&self, source: &Identity, now: Instant, change: impl FnOnce(&mut Count)) {
        let mut counts = self.0.borrow_mut();
        let count = counts.entry(tenant(source)).or_insert_with(|| Count {
            resets: 0,
            since: now,
            is_apart: false,
        });
        count.count_down(now);
        change(count);
    }

    /// True while sources of this one's namespace own their connections: until all of its resets are allowed again.
    pub(super) fn is_apart(&self, source: &Identity, now: Instant) -> bool {
        self.is_tenant_apart((source.trust_domain(), source.namespace()), now)
    }

    /// The same for the sources of a namespace in a trust domain.
    pub(super) fn is_tenant_apart(&self, (domain, name): (&Strng, &Strng), now: Instant) -> bool {
        let mut counts = self.0.borrow_mut();
        // Nearly always there is none.
        if counts.is_empty() {
            return false;
        }
        let tenant = (domain.clone(), name.clone());
        counts.get_mut(&tenant).is_some_and(|count| {
            count.count_down(now);
            count.is_apart
        })
    }

    /// Forgets namespaces without resets.
    pub(super) fn tidy(&self, now: Instant) {
        self.0.borrow_mut().retain(|_, count| {
            count.count_down(now);
            count.resets > 0
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(namespace: &str, account: &str) -> Identity {
        Identity::new("cluster.local", namespace, account).unwrap()
    }

    #[test]
    fn a_source_beyond_its_allowance_is_apart_until_it_has_stopped_for_a_while() {
        let resets = Resets::default();
        let start = Instant::now();
        let (noisy, other) = (identity("noisy", "web"), identity("other", "web"));
        for _ in 0..ALLOWED {
            resets.note(&noisy, start);
        }
        assert!(!resets.is_apart(&noisy, start));
        resets.note(&noisy, start);
        assert!(resets.is_apart(&noisy, start) && !resets.is_apart(&other, start));
        for _ in 0..10 * MOST {
            resets.note(&noisy, start);
        }
        assert!(resets.is_apart(&noisy, start + RECOVERY * (MOST - 1)));
        assert!(!resets.is_apart(&noisy, start + RECOVERY * MOST));
        resets.tidy(start + RECOVERY * MOST);
        assert!(resets.0.borrow().is_empty());
    }

    #[test]
    fn the_sources_of_a_namespace_have_one_allowance_together() {
        let resets = Resets::default();
        let start = Instant::now();
        let sources: Vec<_> = (0..8).map(|n| identity("shop", &format!("a{n}"))).collect();
        for source in sources.iter().cycle().take(ALLOWED as usize + 1) {
            resets.note(source, start);
        }
        assert!(sources.iter().all(|source| resets.is_apart(source, start)));
        assert!(!resets.is_apart(&identity("other", "a0"), start));
        let elsewhere = Identity::new("example.org", "shop", "a0").unwrap();
        assert!(!resets.is_apart(&elsewhere, start));
    }

    #[test]
    fn a_source_that_cancels_now_and_then_is_never_apart() {
        let resets = Resets::default();
        let (start, source) = (Instant::now(), identity("shop", "web"));
        for n in 0..1000 {
            let now = start + RECOVERY * n;
            resets.note(&source, now);
            assert!(!resets.is_apart(&source, now), "{n}");
        }
    }
}
