//! Cache of resolvers' answers about hostnames, for their time to live.
//!
//! Each pod has answers of its own: they come through its network, and a tenant that can forge them must not forge another
//! pod's.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use lateen_types::WorkloadUid;

/// Answers of all pods.
const MOST: usize = 4096;
/// Bounds of how long addresses hold.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60 * 60);
/// How long it holds that there are none, and how long resolvers that failed are left alone.
const NEGATIVE: Duration = Duration::from_secs(5);
/// How long addresses are good enough after they have run out, while no resolver answers.
const STALE: Duration = Duration::from_secs(24 * 60 * 60);

/// Answers by pod and hostname.
#[derive(Debug, Default)]
pub struct Cache(HashMap<(WorkloadUid, String), Entry>);

#[derive(Debug)]
struct Entry {
    addresses: Vec<IpAddr>,
    /// Until then nobody needs to be asked.
    fresh: Instant,
    /// Until then it may be given out if nobody answers.
    usable: Instant,
}

impl Cache {
    /// The addresses that hold now; an empty list says that there are none.
    pub fn fresh(&self, pod: &WorkloadUid, hostname: &str, now: Instant) -> Option<Vec<IpAddr>> {
        let entry = self.0.get(&(pod.clone(), hostname.to_owned()))?;
        (now < entry.fresh).then(|| entry.addresses.clone())
    }

    /// Keeps what resolvers said.
    pub fn keep(
        &mut self,
        pod: &WorkloadUid,
        hostname: &str,
        addresses: &[IpAddr],
        ttl: u32,
        now: Instant,
    ) {
        let holds = if addresses.is_empty() {
            NEGATIVE
        } else {
            Duration::from_secs(ttl.into()).clamp(SHORTEST, LONGEST)
        };
        let key = (pod.clone(), hostname.to_owned());
        if self.0.len() >= MOST && !self.0.contains_key(&key) {
            self.make_room(now);
        }
        let fresh = now + holds;
        self.0.insert(
            key,
            Entry {
                addresses: addresses.to_vec(),
                fresh,
                usable: fresh + STALE,
            },
        );
    }

    /// What is left when no resolver answers: the last addresses, which are then given out for a while without asking.
    pub fn stale(
        &mut self,
        pod: &WorkloadUid,
        hostname: &str,
        now: Instant,
    ) -> Option<Vec<IpAddr>> {
        let entry = self.0.get_mut(&(pod.clone(), hostname.to_owned()))?;
        if entry.addresses.is_empty() || now >= entry.usable {
            return None;
        }
        entry.fresh = entry.fresh.max(now + NEGATIVE);
        Some(entry.addresses.clone())
    }

    /// Forgets a pod.
    pub fn forget(&mut self, pod: &WorkloadUid) {
        self.0.retain(|(owner, _), _| owner != pod);
    }

    /// Drops what is of no use any more, or else what runs out first.
    fn make_room(&mut self, now: Instant) {
        self.0.retain(|_, entry| now < entry.usable);
        if self.0.len() >= MOST
            && let Some(key) = self
                .0
                .iter()
                .min_by_key(|(_, entry)| entry.fresh)
                .map(|(key, _)| key.clone())
        {
            self.0.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "db.example.org";

    fn addresses() -> Vec<IpAddr> {
        vec![[10, 0, 0, 1].into()]
    }

    #[test]
    fn an_answer_holds_for_its_time_within_bounds() {
        let (pod, now) = (WorkloadUid::from("a"), Instant::now());
        for (ttl, holds) in [(0, 1), (1, 1), (30, 30), (u32::MAX, 3600)] {
            let mut cache = Cache::default();
            cache.keep(&pod, HOST, &addresses(), ttl, now);
            let until = now + Duration::from_secs(holds);
            let just = Duration::from_millis(1);
            assert_eq!(
                cache.fresh(&pod, HOST, until - just),
                Some(addresses()),
                "{ttl}"
            );
            assert_eq!(cache.fresh(&pod, HOST, until), None, "{ttl}");
        }
        let mut cache = Cache::default();
        cache.keep(&pod, HOST, &[], 3000, now);
        assert_eq!(cache.fresh(&pod, HOST, now), Some(vec![]));
        assert_eq!(cache.fresh(&pod, HOST, now + NEGATIVE), None);
        assert_eq!(
            cache.stale(&pod, HOST, now + NEGATIVE),
            None,
            "none is no address to go on with"
        );
    }

    #[test]
    fn old_addresses_are_better_than_none_while_resolvers_are_away() {
        let (pod, now) = (WorkloadUid::from("a"), Instant::now());
        let mut cache = Cache::default();
        cache.keep(&pod, HOST, &addresses(), 10, now);
        let later = now + Duration::from_secs(600);
        assert_eq!(cache.fresh(&pod, HOST, later), None);
        assert_eq!(cache.stale(&pod, HOST, later), Some(addresses()));
        assert_eq!(
            cache.fresh(&pod, HOST, later),
            Some(addresses()),
            "resolvers are left alone for a while"
        );
        assert_eq!(cache.fresh(&pod, HOST, later + NEGATIVE), None);
        assert_eq!(cache.stale(&pod, HOST, now + STALE * 2), None);
    }

    #[test]
    fn one_pods_answers_are_not_anothers() {
        let (a, b, now) = (
            WorkloadUid::from("a"),
            WorkloadUid::from("b"),
            Instant::now(),
        );
        let mut cache = Cache::default();
        cache.keep(&a, HOST, &addresses(), 10, now);
        assert_eq!(cache.fresh(&b, HOST, now), None);
        cache.forget(&a);
        assert_eq!(cache.fresh(&a, HOST, now), None);
    }

    #[test]
    fn the_number_of_answers_is_bounded() {
        let (pod, now) = (WorkloadUid::from("a"), Instant::now());
        let mut cache = Cache::default();
        for i in 0..MOST + 10 {
            cache.keep(
                &pod,
                &format!("{i}.example"),
                &addresses(),
                10 + i as u32,
                now,
            );
        }
        assert_eq!(cache.0.len(), MOST);
        assert!(cache.fresh(&pod, "0.example", now).is_none());
        assert!(
            cache
                .fresh(&pod, &format!("{}.example", MOST + 9), now)
                .is_some()
        );
    }
}
