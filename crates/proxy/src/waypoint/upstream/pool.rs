//! A worker's connections to endpoints, by endpoint and protocol.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lateen_exchange::client;
use lateen_exchange::{Account, Config, Protocol};
use lateen_executor::SharedGroup;
use lateen_hbone::Budget;
use lateen_types::{Identity, Strng};

use super::error::UpstreamError;
use super::idle::IdleConnections;
use super::lease::Lease;
use super::owner::{Assigned, Owner, Places, SOURCES, TunnelPorts};
use super::resets::Resets;
use super::shared::SharedConnections;
use super::wire::Wire;
use crate::waypoint::hop::{AddressSource, Hop, TunnelHop};

/// How long an endpoint without connections is remembered.
const REMEMBERED: Duration = Duration::from_secs(300);

/// Hosts whose connections are kept at a time, addresses that resolvers gave, and addresses that clients dialled. Clients and owners of
/// names may name any number of each.
const MOST_HOSTS: usize = 1024;

/// What connections must share to be used for the same requests.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Key {
    place: Place,
    /// With the identities against which connections were verified: services may name other ones of the same endpoint.
    tunnel: Option<TunnelHop>,
    is_http2: bool,
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let authority = self.tunnel.as_ref().map(|tunnel| &tunnel.authority);
        // Places seldom differ in identities alone.
        (&self.place, authority, self.is_http2).hash(state);
    }
}

/// Where connections lead.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Place {
    Address(SocketAddr),
    /// An address that a resolver gave.
    Found(SocketAddr),
    /// An address that a client dialled.
    Dialled(SocketAddr),
    /// A port of a host, whichever address it has.
    Host(Strng, u16),
}

impl Key {
    fn of(hop: &Hop, protocol: Protocol) -> Self {
        Self {
            place: match &hop.host {
                Some(host) => Place::Host(Arc::clone(host), hop.address.port()),
                None => match hop.source {
                    AddressSource::Configured => Place::Address(hop.address),
                    AddressSource::Found => Place::Found(hop.address),
                    AddressSource::Dialled => Place::Dialled(hop.address),
                },
            },
            tunnel: hop.tunnel.clone(),
            is_http2: protocol == Protocol::Http2,
        }
    }
}

/// Numbers by the trust domain and the name of a namespace.
type Counts = HashMap<(Strng, Strng), Rc<Cell<usize>>>;

/// The endpoints that this worker knows.
#[derive(Debug)]
pub(crate) struct Upstreams {
    known: RefCell<HashMap<Key, Rc<Upstream>>>,
    ports: TunnelPorts,
}

/// One endpoint in one protocol, with its connections.
pub(crate) struct Upstream {
    /// A number that no other endpoint of this worker has.
    number: u32,
    hop: Hop,
    protocol: Protocol,
    /// Places of connections in tunnels to the endpoint; `None`: no tunnel leads there.
    port: Option<Rc<Places>>,
    /// Requests under way.
    outstanding: Cell<usize>,
    /// Idle connections of HTTP/1 that all sources share.
    idle: RefCell<Rc<IdleConnections>>,
    /// Idle connections of HTTP/1 in tunnels with an owner, by that owner.
    owned: RefCell<HashMap<Owner, Rc<IdleConnections>>>,
    /// The numbers of these, by the owner's namespace.
    owned_counts: RefCell<Counts>,
    /// Connections of HTTP/2 that all sources share.
    shared: SharedConnections,
    /// Connections of HTTP/2 with an owner, by that owner. Its namespace has, or resets, more requests than it may on shared connections,
    /// or has stalled one.
    apart: RefCell<HashMap<Owner, Rc<SharedConnections>>>,
    /// Places of requests on connections of HTTP/2.
    requests: Places,
    resets: Resets,
    used: Cell<Instant>,
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upstream")
            .field("hop", &self.hop)
            .field("protocol", &self.protocol)
            .finish_non_exhaustive()
    }
}

impl Default for Upstreams {
    fn default() -> Self {
        Self::new(&Budget::default())
    }
}

impl Upstreams {
    /// No endpoints. Tunnels have windows from this budget.
    pub(crate) fn new(budget: &Budget) -> Self {
        Self {
            known: RefCell::default(),
            ports: TunnelPorts::new(budget),
        }
    }

    /// Assigns a relayed connection of a source to tunnels, if a tunnel leads to the endpoint.
    pub(crate) fn assign(&self, hop: &Hop, source: &Identity) -> Option<Assigned> {
        let port = hop.tunnel.as_ref().map(|_| self.ports.get(hop.address));
        port.map(|port| port.assign(source))
    }

    /// The endpoint at this hop. `number` gives a new one its number.
    pub(crate) fn get(
        &self,
        hop: &Hop,
        protocol: Protocol,
        number: impl FnOnce() -> u32,
    ) -> Rc<Upstream> {
        let mut known = self.known.borrow_mut();
        let key = Key::of(hop, protocol);
        if let Some(upstream) = known.get(&key) {
            return Rc::clone(upstream);
        }
        match key.place {
            Place::Address(_) => {}
            Place::Found(_) => make_room(&mut known, |place| matches!(place, Place::Found(_))),
            Place::Dialled(_) => {
                make_room(&mut known, |place| matches!(place, Place::Dialled(_)));
            }
            Place::Host(..) => make_room(&mut known, |place| matches!(place, Place::Host(..))),
        }
        let upstream = Rc::new(Upstream {
            number: number(),
            hop: hop.clone(),
            protocol,
            port: hop.tunnel.as_ref().map(|_| self.ports.get(hop.address)),
            outstanding: Cell::new(0),
            idle: RefCell::default(),
            owned: RefCell::default(),
            owned_counts: RefCell::default(),
            shared: SharedConnections::default(),
            apart: RefCell::default(),
            requests: Places::of_requests(),
            resets: Resets::default(),
            used: Cell::new(Instant::now()),
        });
        known.insert(key, Rc::clone(&upstream));
        upstream
    }

    /// Ends connections that were idle for long or have ended, and forgets endpoints that have none.
    pub(crate) fn tidy(&self, now: Instant) {
        self.known.borrow_mut().retain(|_, upstream| {
            upstream.tidy(now);
            upstream.is_used() || now.saturating_duration_since(upstream.used.get()) < REMEMBERED
        });
        self.ports.tidy();
    }

    /// Ends all idle connections. Those that requests use end behind them.
    pub(crate) fn clear(&self) {
        self.known
            .borrow_mut()
            .retain(|_, upstream| Rc::strong_count(upstream) > 1);
        for upstream in self.known.borrow().values() {
            // Connections return to the set that they came from, and end with it.
            drop(upstream.idle.take());
            drop(upstream.owned.take());
            upstream.shared.clear();
            for apart in upstream.apart.borrow().values() {
                apart.clear();
            }
        }
    }
}

/// Forgets the place that was used least recently, of those of this kind without requests, if there are as many as there may be.
fn make_room(known: &mut HashMap<Key, Rc<Upstream>>, is_kind: fn(&Place) -> bool) {
    let places = || known.iter().filter(move |(key, _)| is_kind(&key.place));
    if places().count() < MOST_HOSTS {
        return;
    }
    let oldest = places()
        .filter(|(_, upstream)| upstream.outstanding.get() == 0)
        .min_by_key(|(_, upstream)| upstream.used.get())
        .map(|(key, _)| key.clone());
    if let Some(key) = oldest {
        known.remove(&key);
    }
}

impl Upstream {
    /// A number that no other endpoint of this worker has.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Requests under way.
    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding.get()
    }

    /// The protocol that is spoken to the endpoint.
    pub(crate) fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// A connection that takes a request of this source, which has this account, now. `has_content` is true if the source may send more than
    /// its head. `open` opens a byte stream where there is none, in tunnels of an owner or in those that all sources share.
    ///
    /// # Errors
    /// There is none, and none could be opened.
    pub(crate) async fn lease<F>(
        self: &Rc<Self>,
        source: &Identity,
        account: &Account,
        has_content: bool,
        config: impl Fn() -> Config,
        open: impl Fn(Option<Rc<Owner>>, Option<SharedGroup>) -> F,
    ) -> Result<Lease, UpstreamError>
    where
        F: Future<Output = Result<Wire, UpstreamError>> + 'static,
    {
        let now = Instant::now();
        self.used.set(now);
        match self.protocol {
            Protocol::Http1 => self.lease_http1(source, config, open).await,
            Protocol::Http2 => {
                let assigned = self.requests.assign(source);
                let address = self.hop.address;
                let mut owner = self.owner(source, &assigned, now);
                if owner.is_none() && self.shared.is_held_by(account, now) {
                    self.resets.set_apart(source, now);
                    owner = Some(Owner::Source(source.clone()));
                }
                let lease = match owner {
                    None => {
                        let in_shared = || open(None, self.shared.group());
                        self.shared
                            .lease(address, account, has_content, config, in_shared)
                            .await
                    }
                    Some(owner) => {
                        let apart = self.apart(owner);
                        let in_shared = || open(None, apart.group());
                        apart
                            .lease(address, account, has_content, config, in_shared)
                            .await
                    }
                };
                lease.map(|lease| lease.with_place(assigned))
            }
        }
    }

    /// The owner of the connections of HTTP/2 for a request of this source; `None`: all sources share them.
    fn owner(&self, source: &Identity, assigned: &Assigned, now: Instant) -> Option<Owner> {
        let owner = assigned.owner().map(|owner| Owner::clone(owner));
        let resets_many = || self.resets.is_apart(source, now);
        owner.or_else(|| resets_many().then(|| Owner::Source(source.clone())))
    }

    async fn lease_http1<F>(
        self: &Rc<Self>,
        source: &Identity,
        config: impl FnOnce() -> Config,
        open: impl FnOnce(Option<Rc<Owner>>, Option<SharedGroup>) -> F,
    ) -> Result<Lease, UpstreamError>
    where
        F: Future<Output = Result<Wire, UpstreamError>>,
    {
        let assigned = self.port.as_ref().map(|port| port.assign(source));
        let owner = assigned.as_ref().and_then(Assigned::owner);
        let idle = match owner {
            None => Rc::clone(&self.idle.borrow()),
            Some(owner) => self.owned(owner),
        };
        if let Some(kept) = idle.take() {
            return Ok(Lease::own(kept, idle, assigned, true));
        }
        let group = match owner.map(|owner| &**owner) {
            Some(Owner::Source(_)) => None,
            _ => self.shared.group(),
        };
        let stream = open(owner.cloned(), group).await?;
        let ends = stream.ends();
        let (handle, driver) = client::open(stream, config());
        let opened = ((handle, Box::new(driver)), ends);
        Ok(Lease::own(opened, idle, assigned, false))
    }

    /// The idle connections of HTTP/1 in tunnels of this owner.
    fn owned(&self, owner: &Owner) -> Rc<IdleConnections> {
        let mut owned = self.owned.borrow_mut();
        if let Some(idle) = owned.get(owner) {
            return Rc::clone(idle);
        }
        let (domain, name) = owner.namespace();
        let mut counts = self.owned_counts.borrow_mut();
        let count = counts.entry((domain.clone(), name.clone())).or_default();
        let idle = Rc::new(IdleConnections::of_namespace(count));
        owned.insert(owner.clone(), Rc::clone(&idle));
        idle
    }

    /// The connections of HTTP/2 of this owner, or those of its namespace if [`SOURCES`] other sources there have connections.
    fn apart(&self, owner: Owner) -> Rc<SharedConnections> {
        let mut apart = self.apart.borrow_mut();
        if let Some(connections) = apart.get(&owner) {
            return Rc::clone(connections);
        }
        let (domain, name) = owner.namespace();
        let is_source = |other: &&Owner| {
            matches!(other, Owner::Source(_)) && other.namespace() == (domain, name)
        };
        let owner = match apart.keys().filter(is_source).count() < SOURCES {
            true => owner,
            false => Owner::Namespace(domain.clone(), name.clone()),
        };
        let connections = apart
            .entry(owner)
            .or_insert_with_key(|owner| Rc::new(SharedConnections::of(owner.clone())));
        Rc::clone(connections)
    }

    /// True if an owner keeps its connections of HTTP/2 for further requests.
    fn keeps(&self, owner: &Owner, now: Instant) -> bool {
        self.resets.is_tenant_apart(owner.namespace(), now) || self.requests.has(owner)
    }

    /// Counts a request or tunnel of this source that was reset on a connection of HTTP/2.
    pub(crate) fn note_reset(&self, source: &Identity) {
        self.resets.note(source, Instant::now());
    }

    /// Keeps a connection of HTTP/1 over a stream that is open already.
    #[cfg(feature = "measured")]
    pub(crate) fn keep(&self, wire: Wire, config: Config) {
        let ends = wire.ends();
        let (handle, driver) = client::open(wire, config);
        self.idle.borrow().keep((handle, Box::new(driver)), ends);
    }

    /// Counts a request from the moment that its endpoint is chosen.
    pub(crate) fn occupy(self: &Rc<Self>) -> Occupied {
        self.outstanding.set(self.outstanding.get() + 1);
        Occupied(Rc::clone(self))
    }

    fn is_used(&self) -> bool {
        self.outstanding.get() > 0
            || !self.idle.borrow().is_empty()
            || !self.owned.borrow().is_empty()
            || !self.shared.is_empty()
            || !self.apart.borrow().is_empty()
    }

    fn tidy(&self, now: Instant) {
        self.idle.borrow().tidy(now);
        self.owned.borrow_mut().retain(|_, idle| {
            idle.tidy(now);
            !idle.is_empty() || Rc::strong_count(idle) > 1
        });
        let mut counts = self.owned_counts.borrow_mut();
        counts.retain(|_, count| Rc::strong_count(count) > 1);
        drop(counts);
        self.shared.tidy();
        self.requests.tidy();
        self.resets.tidy(now);
        let over: Vec<_> = {
            let mut apart = self.apart.borrow_mut();
            apart
                .extract_if(|owner, connections| {
                    connections.tidy();
                    !self.keeps(owner, now) && Rc::strong_count(connections) == 1
                })
                .collect()
        };
        // Requests that are on them are served to their end.
        drop(over);
    }
}

/// One request of an endpoint.
pub(crate) struct Occupied(Rc<Upstream>);

impl Drop for Occupied {
    fn drop(&mut self) {
        self.0.outstanding.set(self.0.outstanding.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use lateen_config::next_hop::NextHop;
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::LocalSet;

    use super::*;
    use crate::testing::soon;
    use crate::waypoint::endpoint::Endpoint;
    use crate::waypoint::tests::head;

    fn hop(address: [u8; 4], host: Option<&str>) -> Hop {
        Hop {
            address: (address, 80).into(),
            tunnel: None,
            host: host.map(Into::into),
            source: AddressSource::Configured,
        }
    }

    #[test]
    fn a_host_has_the_same_connections_whichever_address_it_has() {
        let upstreams = Upstreams::default();
        let get = |hop| upstreams.get(&hop, Protocol::Http1, || 1);
        let first = get(hop([192, 0, 2, 1], Some("a.example")));
        let second = get(hop([192, 0, 2, 2], Some("a.example")));
        assert!(Rc::ptr_eq(&first, &second));
        let other = get(hop([192, 0, 2, 1], Some("b.example")));
        assert!(!Rc::ptr_eq(&first, &other));
        let addressed = get(hop([192, 0, 2, 1], None));
        assert!(!Rc::ptr_eq(&first, &addressed));
    }

    /// Each service may name identities for the same pod, by its subjectAltNames.
    #[test]
    fn services_that_demand_other_identities_of_an_endpoint_have_connections_of_their_own() {
        let upstreams = Upstreams::default();
        let get = |account: &str| {
            let identity = Identity::new("cluster.local", "default", account).unwrap();
            let hop = Hop {
                tunnel: Some(TunnelHop {
                    authority: SocketAddr::from(([192, 0, 2, 1], 8080)).into(),
                    identities: vec![identity].into(),
                    inner: None,
                }),
                ..hop([192, 0, 2, 1], None)
            };
            upstreams.get(&hop, Protocol::Http1, || 1)
        };
        let (first, second) = (get("app"), get("other"));
        assert!(!Rc::ptr_eq(&first, &second));
        for _ in 0..2 {
            assert!(Rc::ptr_eq(&first, &get("app")));
            assert!(Rc::ptr_eq(&second, &get("other")));
        }
    }

    #[test]
    fn the_number_of_hosts_is_bounded_and_those_in_use_stay() {
        let upstreams = Upstreams::default();
        let get = |n: usize| {
            let host = format!("{n}.example");
            upstreams.get(&hop([192, 0, 2, 1], Some(&host)), Protocol::Http1, || 1)
        };
        let used = get(0);
        let _occupied = used.occupy();
        for n in 1..=2 * MOST_HOSTS {
            get(n);
        }
        assert_eq!(upstreams.known.borrow().len(), MOST_HOSTS);
        assert!(Rc::ptr_eq(&used, &get(0)));
    }

    #[test]
    fn the_number_of_addresses_that_resolvers_gave_is_bounded_too() {
        let upstreams = Upstreams::default();
        let get = |net: u8, n: usize, source| {
            let address = [198, net, (n >> 8) as u8, n as u8];
            let hop = Hop {
                source,
                ..hop(address, None)
            };
            upstreams.get(&hop, Protocol::Http1, || 1);
        };
        for n in 0..2 * MOST_HOSTS {
            get(18, n, AddressSource::Found);
        }
        assert_eq!(upstreams.known.borrow().len(), MOST_HOSTS);
        // Those that the configuration names do not count.
        for n in 0..2 * MOST_HOSTS {
            get(19, n, AddressSource::Configured);
        }
        assert_eq!(upstreams.known.borrow().len(), 3 * MOST_HOSTS);
    }

    #[test]
    fn the_number_of_addresses_that_clients_dialled_is_bounded_too() {
        let upstreams = Upstreams::default();
        let get = |n: usize| {
            let to = Endpoint::of(NextHop::Passthrough {
                target: ([198, 18, (n >> 8) as u8, n as u8], 80).into(),
                service: None,
            });
            upstreams.get(&to.hop, Protocol::Http1, || 1)
        };
        let used = get(0);
        let _occupied = used.occupy();
        for n in 1..=2 * MOST_HOSTS {
            get(n);
        }
        assert_eq!(upstreams.known.borrow().len(), MOST_HOSTS);
        assert!(Rc::ptr_eq(&used, &get(0)));
    }

    #[tokio::test]
    async fn a_connection_that_a_request_uses_ends_behind_it_once_all_are_cleared() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let upstreams = Upstreams::default();
        let to = Hop {
            address,
            ..hop([127, 0, 0, 1], None)
        };
        let upstream = upstreams.get(&to, Protocol::Http1, || 1);
        let source = Identity::new("cluster.local", "default", "web").unwrap();
        let open = |_, _| async move {
            let stream = TcpStream::connect(address).await.unwrap();
            Ok::<_, UpstreamError>(Wire::Plain(stream))
        };
        let lease = async || {
            let config = || Config::new(Protocol::Http1);
            let lease = upstream
                .lease(&source, &Account::new(0), true, config, open)
                .await;
            lease.unwrap_or_else(|error| panic!("{error}"))
        };
        lease().await.give_back();
        let used = lease().await;
        assert!(used.is_reused());
        upstreams.clear();
        used.give_back();
        assert!(!lease().await.is_reused());
    }

    /// Each connection to an endpoint carries as many requests as the endpoint allows, and there may be 256.
    #[tokio::test]
    async fn a_namespace_fills_no_connections_that_others_need() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let upstreams = Upstreams::default();
        let to = Hop {
            address,
            ..hop([127, 0, 0, 1], None)
        };
        let upstream = upstreams.get(&to, Protocol::Http2, || 1);
        let one = || Config {
            timeouts: None,
            http2: lateen_h2::Config {
                max_streams: 1,
                ..lateen_h2::Config::requests()
            }
            .share(),
            ..Config::new(Protocol::Http2)
        };
        let open = |_, _| async move {
            let stream = TcpStream::connect(address).await.unwrap();
            Ok::<_, UpstreamError>(Wire::Plain(stream))
        };
        let ask = async |source: &Identity| {
            let lease = upstream
                .lease(source, &Account::new(0), true, one, open)
                .await?;
            let request = lease.handle().request(&head("GET", "/", &[]), None);
            Ok::<_, UpstreamError>((request.unwrap(), lease))
        };
        let source = |namespace: &str, account: &str| {
            Identity::new("cluster.local", namespace, account).unwrap()
        };
        let test = async {
            let (noisy, its_friend) = (source("noisy", "web"), source("noisy", "job"));
            let mut peers = Vec::new();
            let mut hang = Vec::new();
            let full = loop {
                match ask(&noisy).await {
                    Ok(asked) => hang.push(asked),
                    Err(error) => break error,
                }
                peers.push(listener.accept().await.unwrap());
            };
            let is_its_own = matches!(&full, UpstreamError::FullOfOwner { owner, .. } if **owner == *noisy.to_string());
            assert!(is_its_own, "{full}");
            assert_eq!(hang.len(), 64 + 256);
            for other in [&source("other", "web"), &its_friend] {
                let asked = ask(other).await.unwrap_or_else(|error| panic!("{error}"));
                hang.push(asked);
            }
            upstreams.tidy(Instant::now());
            assert_eq!(upstream.apart.borrow().len(), 2);
            hang.clear();
            upstreams.tidy(Instant::now());
            assert!(upstream.apart.borrow().is_empty());
            let again = ask(&noisy).await;
            assert!(again.is_ok_and(|(_, lease)| lease.is_reused()));
        };
        LocalSet::new().run_until(soon("all requests", test)).await;
    }

    #[tokio::test]
    async fn few_sources_of_a_namespace_that_resets_much_have_connections_of_their_own() {
        let upstreams = Upstreams::default();
        let to = hop([192, 0, 2, 1], None);
        let upstream = upstreams.get(&to, Protocol::Http2, || 1);
        let source = |n: usize| Identity::new("cluster.local", "noisy", &format!("a{n}")).unwrap();
        for _ in 0..51 {
            upstream.note_reset(&source(0));
        }
        let open = |_, _| async move { Err(UpstreamError::Full(to.address)) };
        let config = || Config::new(Protocol::Http2);
        for n in 0..1000 {
            let (source, account) = (source(n), Account::new(0));
            let lease = upstream.lease(&source, &account, true, config, open).await;
            assert!(lease.is_err());
            if n == 500 {
                upstreams.tidy(Instant::now());
            }
        }
        let apart = upstream.apart.borrow();
        assert_eq!(apart.len(), SOURCES + 1);
        let namespace = Owner::Namespace("cluster.local".into(), "noisy".into());
        assert!(apart.contains_key(&namespace));
    }
}
