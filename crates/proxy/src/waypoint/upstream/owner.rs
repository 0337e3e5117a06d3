//! Owners of tunnels and connections to an endpoint. All sources share these, until a namespace has several places in them.
//!
//! - A *source* is the identity that a client's proxy has proven.
//! - A *place* is one connection in a tunnel, or one request on a connection of HTTP/2. It counts for the namespace of its source.
//! - An *owner* is one source, or the rest of one namespace. It alone uses certain tunnels and connections.
//!
//! A connection of HTTP/1, or a relayed one, is a stream of a tunnel. While its client reads nothing, what the endpoint sent stays in the
//! stream, and takes the stream's window from the window of the tunnel. So a namespace may have few connections in the tunnels that
//! all sources share: their first windows fit into the first window of a tunnel. Each tunnel gets at least that beside its 64 KiB.
//! Further connections go into tunnels with an owner. The receive budget has one account for all owners of a namespace, see
//! [`Owner::reader`]. Answers that these connections leave unread delay no other client.
//!
//! Connections of HTTP/2 are always read, and what waits in them is charged to the client's account. But the endpoint limits the requests
//! that a connection carries, and the waypoint limits the number of connections. So a namespace may have few requests at a time on the
//! connections that all sources share. Further requests use connections with an owner.
//!
//! The sources of a namespace have one allowance together: anybody who may make pods in a namespace may have many service accounts
//! there. For the same reason few sources are owners. The others of the namespace share one owner, [`Owner::Namespace`].

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;

use lateen_hbone::Budget;
use lateen_types::{Identity, Strng, WorkloadUid};

/// The number of sources of one namespace that are owners at one endpoint at a time.
pub(super) const SOURCES: usize = 4;

/// Requests of one namespace that are open at a time on the connections of HTTP/2 that all sources share. With them four namespaces fill
/// the 256 connections to an endpoint that allows a single request on each, and 400 namespaces those to one that allows a hundred.
const REQUESTS: usize = 64;

/// Namespaces that are known before those without a place are forgotten.
const FEW: usize = 16;

/// The owner of tunnels and connections that all other sources stay out of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    /// One source.
    Source(Identity),
    /// The other sources of a namespace: its trust domain, and its name there.
    Namespace(Strng, Strng),
}

impl Owner {
    pub(super) fn namespace(&self) -> (&Strng, &Strng) {
        match self {
            Self::Source(source) => (source.trust_domain(), source.namespace()),
            Self::Namespace(domain, name) => (domain, name),
        }
    }

    /// The name of the waypoint's pod `uid` in the keys of the owner's tunnels.
    pub(crate) fn pod(&self, uid: &WorkloadUid) -> WorkloadUid {
        WorkloadUid(format!("{} for {self}", uid.as_str()).into())
    }

    /// The name of the pod for the receive budget. It is the same for all owners of the namespace, so their tunnels share one account.
    pub(crate) fn reader(&self, uid: &WorkloadUid) -> WorkloadUid {
        let (domain, name) = self.namespace();
        Self::Namespace(domain.clone(), name.clone()).pod(uid)
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source(source) => source.fmt(f),
            Self::Namespace(domain, name) => write!(f, "{domain}/ns/{name}"),
        }
    }
}

/// The places at the tunnel ports of all endpoints that a worker has connections to.
#[derive(Debug)]
pub(super) struct TunnelPorts {
    known: RefCell<HashMap<SocketAddr, Rc<Places>>>,
    /// The value of [`Places::most`] at each port.
    most: usize,
}

/// The places of all sources at an endpoint: of connections in the tunnels to its port, or of requests on its connections of HTTP/2.
#[derive(Debug)]
pub(super) struct Places {
    namespaces: RefCell<Vec<Rc<Namespace>>>,
    /// The number of places that one namespace may have in what all sources share.
    most: usize,
}

/// The places of a namespace's sources.
#[derive(Debug)]
struct Namespace {
    domain: Strng,
    name: Strng,
    /// The number of places in what all sources share.
    shared: Cell<usize>,
    /// The owners, each with the number of its places.
    own: RefCell<Vec<(Rc<Owner>, usize)>>,
}

/// The place of a connection or a request. A drop gives it up.
#[derive(Debug)]
pub(crate) struct Assigned {
    namespace: Rc<Namespace>,
    /// `None`: the place is in what all sources share.
    owner: Option<Rc<Owner>>,
}

impl TunnelPorts {
    /// Ports whose tunnels have windows from this budget.
    pub(super) fn new(budget: &Budget) -> Self {
        Self {
            known: RefCell::default(),
            most: ((budget.first_window() / lateen_h2::FLOOR) as usize).max(1),
        }
    }

    /// The places at the tunnel port of this address.
    pub(super) fn get(&self, address: SocketAddr) -> Rc<Places> {
        let mut known = self.known.borrow_mut();
        let port = known
            .entry(address)
            .or_insert_with(|| Rc::new(Places::new(self.most)));
        Rc::clone(port)
    }

    /// Forgets namespaces without a place, and ports that have neither a namespace nor an endpoint.
    pub(super) fn tidy(&self) {
        self.known.borrow_mut().retain(|_, port| {
            port.tidy();
            !port.namespaces.borrow().is_empty() || Rc::strong_count(port) > 1
        });
    }
}

impl Places {
    fn new(most: usize) -> Self {
        Self {
            namespaces: RefCell::default(),
            most,
        }
    }

    /// Places of requests on connections of HTTP/2.
    pub(super) fn of_requests() -> Self {
        Self::new(REQUESTS)
    }

    /// Gives the next connection or request of a source its place.
    pub(super) fn assign(&self, source: &Identity) -> Assigned {
        let namespace = self.namespace(source);
        Assigned {
            owner: namespace.enter(source, self.most),
            namespace,
        }
    }

    fn namespace(&self, source: &Identity) -> Rc<Namespace> {
        let mut namespaces = self.namespaces.borrow_mut();
        let is_its = |namespace: &&Rc<Namespace>| {
            namespace.name == *source.namespace() && namespace.domain == *source.trust_domain()
        };
        if let Some(namespace) = namespaces.iter().find(is_its) {
            return Rc::clone(namespace);
        }
        if namespaces.len() >= FEW {
            namespaces.retain(|namespace| !namespace.is_empty());
        }
        let namespace = Rc::new(Namespace {
            domain: source.trust_domain().clone(),
            name: source.namespace().clone(),
            shared: Cell::new(0),
            own: RefCell::default(),
        });
        namespaces.push(Rc::clone(&namespace));
        namespace
    }

    /// True if this owner has a place. A namespace has one if any owner in it has.
    pub(super) fn has(&self, owner: &Owner) -> bool {
        let namespaces = self.namespaces.borrow();
        let mut owners = namespaces.iter().map(|namespace| namespace.own.borrow());
        let is_its = |other: &Owner| match owner {
            Owner::Source(_) => *other == *owner,
            Owner::Namespace(..) => other.namespace() == owner.namespace(),
        };
        owners.any(|own| own.iter().any(|(other, _)| is_its(other)))
    }

    /// Forgets namespaces without a place.
    pub(super) fn tidy(&self) {
        let mut namespaces = self.namespaces.borrow_mut();
        namespaces.retain(|namespace| !namespace.is_empty());
    }
}

impl Namespace {
    fn is_empty(&self) -> bool {
        self.shared.get() == 0 && self.own.borrow().is_empty()
    }

    /// Counts a further place of a source. Returns its owner; `None`: it is in what all sources share.
    ///
    /// While the namespace has an owner, each further place has one. Few tunnels that carry much take fewer reads and writes than many.
    fn enter(&self, source: &Identity, most: usize) -> Option<Rc<Owner>> {
        let mut own = self.own.borrow_mut();
        if own.is_empty() && self.shared.get() < most {
            self.shared.set(self.shared.get() + 1);
            return None;
        }
        let of_source = |(owner, _): &(Rc<Owner>, usize)| matches!(&**owner, Owner::Source(other) if other == source);
        let of_namespace =
            |(owner, _): &(Rc<Owner>, usize)| matches!(**owner, Owner::Namespace(..));
        let is_full = own.iter().filter(|one| !of_namespace(one)).count() >= SOURCES;
        let place = match own.iter().position(of_source) {
            None if is_full => own.iter().position(of_namespace),
            place => place,
        };
        if let Some(place) = place {
            let (owner, places) = &mut own[place];
            *places += 1;
            return Some(Rc::clone(owner));
        }
        let owner = Rc::new(match is_full {
            true => Owner::Namespace(self.domain.clone(), self.name.clone()),
            false => Owner::Source(source.clone()),
        });
        own.push((Rc::clone(&owner), 1));
        Some(owner)
    }

    fn leave(&self, owner: Option<&Rc<Owner>>) {
        let Some(owner) = owner else {
            return self.shared.set(self.shared.get() - 1);
        };
        let mut own = self.own.borrow_mut();
        let place = own.iter().position(|(other, _)| Rc::ptr_eq(other, owner));
        if let Some(place) = place {
            own[place].1 -= 1;
            if own[place].1 == 0 {
                own.swap_remove(place);
            }
        }
    }
}

impl Assigned {
    /// The owner of the tunnels or connections for this place; `None`: all sources share them.
    pub(crate) fn owner(&self) -> Option<&Rc<Owner>> {
        self.owner.as_ref()
    }
}

impl Drop for Assigned {
    fn drop(&mut self) {
        self.namespace.leave(self.owner.as_ref());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port() -> Rc<Places> {
        TunnelPorts::new(&Budget::default()).get(([192, 0, 2, 1], 15008).into())
    }

    fn source(namespace: &str, account: &str) -> Identity {
        Identity::new("cluster.local", namespace, account).unwrap()
    }

    fn owner_of(assigned: &Assigned) -> Option<String> {
        assigned.owner().map(|owner| owner.to_string())
    }

    #[test]
    fn the_connections_of_a_namespace_in_shared_tunnels_fit_into_a_first_window() {
        let (port, noisy) = (port(), source("noisy", "web"));
        let mut open: Vec<_> = (0..20).map(|_| port.assign(&noisy)).collect();
        let shared = open.iter().filter(|one| one.owner().is_none()).count();
        assert_eq!(shared, 4);
        assert!(shared as u32 * lateen_h2::FLOOR <= Budget::default().first_window());
        // Sources of other namespaces share these tunnels.
        let other = port.assign(&source("other", "web"));
        assert_eq!(owner_of(&other), None);
        // The next connection is in shared tunnels again once the namespace has no owner.
        open.truncate(5);
        open.remove(0);
        assert!(port.assign(&noisy).owner().is_some());
        open.pop();
        assert!(port.assign(&noisy).owner().is_none());
    }

    #[test]
    fn an_owner_is_one_for_as_long_as_it_has_a_place() {
        let (requests, web) = (Places::of_requests(), source("noisy", "web"));
        let mut open: Vec<_> = (0..REQUESTS).map(|_| requests.assign(&web)).collect();
        assert!(open.iter().all(|one| one.owner().is_none()));
        let owner = Owner::Source(web.clone());
        assert!(!requests.has(&owner));
        open.push(requests.assign(&web));
        assert!(requests.has(&owner) && !requests.has(&Owner::Source(source("noisy", "job"))));
        open.pop();
        assert!(!requests.has(&owner));
    }

    #[test]
    fn few_sources_of_a_namespace_have_tunnels_of_their_own() {
        let port = port();
        let sources: Vec<_> = (0..20).map(|n| source("noisy", &format!("a{n}"))).collect();
        let _shared: Vec<_> = (0..4).map(|_| port.assign(&sources[0])).collect();
        let mut open = Vec::new();
        for _ in 0..3 {
            open.extend(sources.iter().map(|source| port.assign(source)));
        }
        let owners: std::collections::HashSet<_> = open.iter().map(owner_of).collect();
        assert_eq!(owners.len(), SOURCES + 1);
        for (source, assigned) in sources.iter().cycle().zip(&open) {
            match assigned.owner().map(|owner| &**owner) {
                Some(Owner::Source(owner)) => assert_eq!(owner, source),
                Some(Owner::Namespace(_, name)) => assert_eq!(**name, *"noisy"),
                None => panic!("a shared tunnel is full"),
            }
        }
        // All owners have one name for the budget, which is not the one for shared tunnels.
        let uid = WorkloadUid::from("gate");
        let readers: std::collections::HashSet<_> = open
            .iter()
            .filter_map(|one| one.owner().map(|owner| owner.reader(&uid)))
            .collect();
        assert_eq!(
            readers,
            [WorkloadUid::from("gate for cluster.local/ns/noisy")].into()
        );
    }

    #[test]
    fn a_source_keeps_what_it_owns_when_another_one_leaves() {
        let port = port();
        let source = |n| source("noisy", &format!("a{n}"));
        let _shared: Vec<_> = (0..4).map(|_| port.assign(&source(0))).collect();
        let first = port.assign(&source(0));
        let _others: Vec<_> = (1..6).map(|n| port.assign(&source(n))).collect();
        drop(first);
        let _sixth = port.assign(&source(6));
        for n in [1, 2, 3, 6] {
            let again = port.assign(&source(n));
            assert_eq!(owner_of(&again), Some(source(n).to_string()));
        }
        let again = port.assign(&source(4));
        assert_eq!(owner_of(&again).as_deref(), Some("cluster.local/ns/noisy"));
    }

    #[test]
    fn nothing_is_kept_for_namespaces_without_a_connection() {
        let ports = TunnelPorts::new(&Budget::default());
        let address = ([192, 0, 2, 1], 15008).into();
        let port = ports.get(address);
        let open: Vec<_> = (0..100)
            .map(|n| port.assign(&source(&format!("n{n}"), "web")))
            .collect();
        assert_eq!(port.namespaces.borrow().len(), 100);
        drop(port);
        ports.tidy();
        assert_eq!(ports.get(address).namespaces.borrow().len(), 100);
        drop(open);
        let late = ports.get(address).assign(&source("late", "web"));
        assert_eq!(ports.get(address).namespaces.borrow().len(), 1);
        drop(late);
        ports.tidy();
        assert!(ports.known.borrow().is_empty());
    }
}
