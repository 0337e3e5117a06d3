//! Lookups of hostnames' addresses: of both families, by way of the cache.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use lateen_dns::Family;
use lateen_telemetry::{DnsMetrics, DnsShed};
use lateen_types::WorkloadUid;
use tokio::sync::oneshot;

use super::cache::Cache;
use super::resolver::ResolveError;
use super::upstream::{From, Unanswered, Upstream};

/// A hostname to be looked up.
pub struct Lookup {
    pub from: From,
    pub pod: WorkloadUid,
    pub hostname: String,
    pub answer: oneshot::Sender<Result<Vec<IpAddr>, ResolveError>>,
}

/// The cache; a panic elsewhere leaves it whole.
pub fn lock(cache: &Mutex<Cache>) -> MutexGuard<'_, Cache> {
    cache.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The addresses of a hostname, if there are any.
///
/// # Errors
/// There are none.
pub fn some(addresses: Vec<IpAddr>, hostname: &str) -> Result<Vec<IpAddr>, ResolveError> {
    if addresses.is_empty() {
        return Err(ResolveError::NoAddress {
            hostname: hostname.to_owned(),
        });
    }
    Ok(addresses)
}

/// Who waits for one hostname.
pub type Waiters = Vec<oneshot::Sender<Result<Vec<IpAddr>, ResolveError>>>;

/// Hostnames that are being looked up.
pub struct Lookups {
    pub upstream: Rc<Upstream>,
    pub cache: Arc<Mutex<Cache>>,
    pub metrics: DnsMetrics,
    /// Whether addresses of IPv6 are of use.
    pub ipv6: bool,
    pub waiting: RefCell<HashMap<(WorkloadUid, String), Waiters>>,
}

impl Lookups {
    /// Looks a hostname up for the first who wants to know; the others wait with it.
    pub fn begin(self: &Rc<Self>, lookup: Lookup) {
        let Lookup {
            from,
            pod,
            hostname,
            answer,
        } = lookup;
        let key = (pod, hostname);
        if let Some(waiters) = self.waiting.borrow_mut().get_mut(&key) {
            waiters.push(answer);
            return;
        }
        self.waiting.borrow_mut().insert(key.clone(), vec![answer]);
        let lookups = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let outcome = lookups.look_up(&from, &key.0, &key.1).await;
            let waiters = lookups.waiting.borrow_mut().remove(&key);
            for waiter in waiters.into_iter().flatten() {
                // Whoever asked may have stopped waiting.
                let _ = waiter.send(outcome.clone());
            }
        });
    }

    /// The addresses of a hostname: those that were kept, or what a resolver says.
    ///
    /// # Errors
    /// See [`ResolveError`].
    pub async fn look_up(
        &self,
        from: &From,
        pod: &WorkloadUid,
        hostname: &str,
    ) -> Result<Vec<IpAddr>, ResolveError> {
        let known = lock(&self.cache).fresh(pod, hostname, Instant::now());
        if let Some(addresses) = known {
            return some(addresses, hostname);
        }
        let four = self.ask(from, pod, hostname, Family::V4);
        let six = async {
            match self.ipv6 {
                true => self.ask(from, pod, hostname, Family::V6).await.map(Some),
                false => Ok(None),
            }
        };
        let (four, six) = tokio::join!(four, six);
        let (failed, mut found) = match (four, six) {
            (Ok(four), Ok(six)) => (None, [Some(four), six]),
            (Ok(four), Err(error)) => (Some(error), [Some(four), None]),
            (Err(error), six) => (Some(error), [None, six.ok().flatten()]),
        };
        let mut addresses = Vec::new();
        let mut ttl = u32::MAX;
        for family in found.iter_mut().flatten() {
            if !family.addresses.is_empty() {
                ttl = ttl.min(family.ttl);
                addresses.append(&mut family.addresses);
            }
        }
        let now = Instant::now();
        match failed {
            // That one family has none says nothing about the one that nobody answered for.
            Some(error) if addresses.is_empty() => {
                match lock(&self.cache).stale(pod, hostname, now) {
                    Some(addresses) => {
                        tracing::warn!(hostname, %error, "no resolver answers: the last addresses are used");
                        Ok(addresses)
                    }
                    None => Err(error),
                }
            }
            _ => {
                lock(&self.cache).keep(pod, hostname, &addresses, ttl, now);
                some(addresses, hostname)
            }
        }
    }

    async fn ask(
        &self,
        from: &From,
        pod: &WorkloadUid,
        hostname: &str,
        family: Family,
    ) -> Result<lateen_dns::Found, ResolveError> {
        let question = lateen_dns::question(hostname, family)
            .ok_or_else(|| ResolveError::NotAName(hostname.to_owned()))?;
        let unanswered = |reason: String| ResolveError::Unanswered {
            hostname: hostname.to_owned(),
            reason,
        };
        let reply =
            self.upstream
                .ask(from, &question, true)
                .await
                .map_err(|error| match error {
                    Unanswered::Failed { .. } => unanswered(error.to_string()),
                    Unanswered::NoResolver => ResolveError::NotAsked {
                        hostname: hostname.to_owned(),
                        reason: error.to_string(),
                    },
                    Unanswered::Share => {
                        self.metrics.shed(DnsShed::Descriptors);
                        ResolveError::NoRoom {
                            hostname: hostname.to_owned(),
                            pod: pod.clone(),
                        }
                    }
                })?;
        lateen_dns::find(&reply, family)
            .ok_or_else(|| unanswered("the resolver could not find out".to_owned()))
    }
}
