//! Addresses of hostnames for the proxy itself, asked for from its own network namespace by the worker that wants to know.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt as _;
use futures_util::future::{LocalBoxFuture, Shared};
use lateen_telemetry::DnsMetrics;
use lateen_types::{Identity, WorkloadUid};

use super::lookups::{Lookups, lock, some};
use super::resolver::ResolveError;
use super::upstream::{From, Upstream};

/// A lookup that is under way, for all that wait for it.
type Flight = Shared<LocalBoxFuture<'static, Result<Vec<IpAddr>, ResolveError>>>;

/// Sockets of one lookup: each family of addresses has a question.
const SOCKETS: usize = 2;

/// Addresses of hostnames, kept for their time to live and longer while no resolver answers.
pub struct OwnNames {
    lookups: Rc<Lookups>,
    from: From,
    uid: WorkloadUid,
    /// Lookups that have sockets at a time.
    most: usize,
    /// Lookups by hostname, with the client that began each.
    flights: RefCell<HashMap<String, (Flight, Option<Identity>)>>,
}

impl OwnNames {
    /// Asks these resolvers, on at most `most` sockets for names of the workload `uid`.
    pub fn new(
        upstream: &Rc<Upstream>,
        uid: WorkloadUid,
        metrics: DnsMetrics,
        most: usize,
    ) -> Self {
        let lookups = Lookups {
            upstream: Rc::clone(upstream),
            cache: Arc::default(),
            metrics,
            ipv6: true,
            waiting: RefCell::default(),
        };
        Self {
            lookups: Rc::new(lookups),
            from: From::own(most),
            uid,
            most: most / SOCKETS,
            flights: RefCell::default(),
        }
    }

    /// The addresses of a hostname, in the order of the resolver's answer; never an empty list.
    ///
    /// # Errors
    /// See [`ResolveError`].
    pub async fn resolve(&self, hostname: &str) -> Result<Vec<IpAddr>, ResolveError> {
        self.resolve_for(None, hostname).await
    }

    /// The same of a hostname that a client chose. Its lookups are no more than leave as many to others. It may wait for any
    /// lookup that is under way already.
    ///
    /// # Errors
    /// See [`ResolveError`].
    pub async fn resolve_for(
        &self,
        client: Option<&Identity>,
        hostname: &str,
    ) -> Result<Vec<IpAddr>, ResolveError> {
        let known = lock(&self.lookups.cache).fresh(&self.uid, hostname, Instant::now());
        match known {
            Some(addresses) => some(addresses, hostname),
            None => self.flight(client, hostname)?.await,
        }
    }

    /// Joins those that wait for the same name, or looks it up.
    fn flight(&self, client: Option<&Identity>, hostname: &str) -> Result<Flight, ResolveError> {
        let mut flights = self.flights.borrow_mut();
        // The others have landed, or nobody waits for them any more.
        flights.retain(|_, (flight, _)| flight.peek().is_none() && flight.strong_count() > Some(1));
        if let Some((flight, _)) = flights.get(hostname) {
            return Ok(flight.clone());
        }
        if client.is_some() {
            let begun = flights.values().filter(|(_, by)| by.as_ref() == client);
            if begun.count() >= self.most.saturating_sub(flights.len()) {
                return Err(ResolveError::NotAsked {
                    hostname: hostname.to_owned(),
                    reason: "too many names are being looked up for this client".to_owned(),
                });
            }
        }
        let lookups = Rc::clone(&self.lookups);
        let (from, uid, name) = (self.from.clone(), self.uid.clone(), hostname.to_owned());
        let flight = async move {
            match lookups.look_up(&from, &uid, &name).await {
                Err(ResolveError::NoRoom { hostname, .. }) => Err(ResolveError::NotAsked {
                    hostname,
                    reason: "too many names are being looked up".to_owned(),
                }),
                found => found,
            }
        }
        .boxed_local()
        .shared();
        flights.insert(hostname.to_owned(), (flight.clone(), client.cloned()));
        Ok(flight)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use lateen_telemetry::{BuildInfo, Metrics};
    use tokio::net::UdpSocket;

    use super::super::resolvers::{File, Resolvers};
    use super::*;

    /// A resolver that says each name has the address 192.0.2.7 for `ttl` seconds, and no address of IPv6.
    async fn resolver(ttl: u8) -> (UdpSocket, Resolvers, impl Fn(&[u8]) -> Vec<u8>) {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let resolvers = crate::testing::dns::at(socket.local_addr().unwrap());
        let says =
            move |question: &[u8]| crate::testing::dns::reply(question, &[[192, 0, 2, 7]], ttl);
        (socket, resolvers, says)
    }

    fn names(resolvers: Resolvers, most: usize) -> OwnNames {
        let build = BuildInfo {
            component: "proxy",
            tag: "test",
        };
        let metrics = Metrics::new(&build, Vec::new);
        let upstream = Rc::new(Upstream::new(File::saying(resolvers)));
        OwnNames::new(&upstream, "own".into(), metrics.dns().clone(), most)
    }

    #[tokio::test]
    async fn those_that_want_the_same_name_at_once_share_one_lookup() {
        let (socket, resolvers, says) = resolver(60).await;
        let names = names(resolvers, 8);
        let asked = Cell::new(0);
        let answering = async {
            let mut buffer = [0; 512];
            while let Ok((length, peer)) = socket.recv_from(&mut buffer).await {
                asked.set(asked.get() + 1);
                let reply = says(&buffer[..length]);
                socket.send_to(&reply, peer).await.unwrap();
            }
        };
        let resolving = async {
            let name = "db.example";
            let (one, two) = tokio::join!(names.resolve(name), names.resolve(name));
            // It is kept from then on.
            [one, two, names.resolve(name).await]
        };
        let found = tokio::select! {
            found = resolving => found,
            () = answering => panic!("the socket broke"),
        };
        for addresses in found {
            assert_eq!(addresses, Ok(vec![[192, 0, 2, 7].into()]));
        }
        assert_eq!(asked.get(), 2, "once for each family");
    }

    #[tokio::test]
    async fn more_lookups_than_there_may_be_are_refused() {
        // It never answers.
        let (_socket, resolvers, _) = resolver(60).await;
        let names = names(resolvers, 2);
        let first = names.resolve("a.example");
        let second = names.resolve("b.example");
        let refused = tokio::select! {
            biased;
            _ = first => panic!("nobody answers"),
            refused = second => refused,
        };
        assert!(
            matches!(refused, Err(ResolveError::NotAsked { .. })),
            "{refused:?}"
        );
    }

    #[tokio::test]
    async fn lookups_of_one_client_leave_as_many_to_others() {
        // It never answers.
        let (_socket, resolvers, _) = resolver(60).await;
        let names = names(resolvers, 8 * SOCKETS);
        let [noisy, other] = ["noisy", "other"].map(lateen_testkit::identity);
        let mut waiting = Vec::new();
        let mut begun = |client: &Identity| {
            let before = waiting.len();
            for n in 0..8 {
                let hostname = format!("{n}.{}", client.service_account());
                match names.flight(Some(client), &hostname) {
                    Ok(flight) => waiting.push(flight),
                    Err(ResolveError::NotAsked { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            waiting.len() - before
        };
        assert_eq!(begun(&noisy), 4);
        assert_eq!(begun(&other), 2);
        // It waits for those that are under way, and begins no others.
        assert_eq!(begun(&noisy), 4);
        drop(waiting);
        let first = names.flight(Some(&noisy), "again.example");
        assert!(first.is_ok(), "nobody waits for the others any more");
    }
}
