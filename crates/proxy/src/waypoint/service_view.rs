//! One service in one view: the rules of its requests, and the ways to its endpoints. They are looked up once for all requests.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use lateen_config::l7::RequestRules;
use lateen_config::next_hop::{Candidates, Choice, NextHop, Refusal};
use lateen_config::{Service, ServiceKey, Workload};
use lateen_exchange::Protocol;
use lateen_types::WorkloadUid;

use super::endpoint::Endpoint;
use super::numbers::Numbers;
use super::upstream::{Upstream, Upstreams};
use super::view::View;

/// Destinations that are kept; with more, all are looked up anew. A service may have any number of addresses.
const MOST: usize = 4096;

/// The destinations of a worker's requests in the view in force.
#[derive(Default)]
pub(super) struct ServiceViews(RefCell<HashMap<(ServiceKey, SocketAddr), Rc<ServiceView>>>);

/// A service that was asked for by one address, in one view.
pub(super) struct ServiceView {
    /// The number of the view.
    number: u64,
    /// The rules of requests.
    pub(super) rules: Arc<RequestRules>,
    /// The endpoints to draw from; `None` if the service has none, or goes to the address that the client dialled.
    candidates: Option<Candidates>,
    /// By their numbers the endpoints to which each draw leads by the same way. Empty before the first draw.
    known: RefCell<Vec<Option<Rc<KnownEndpoint>>>>,
}

/// An endpoint and its connections.
pub(super) struct KnownEndpoint {
    pub(super) endpoint: Endpoint,
    /// Of HTTP/1 and HTTP/2, for as long as the worker keeps them.
    upstreams: [RefCell<Weak<Upstream>>; 2],
}

/// An endpoint that was drawn.
pub(super) struct Drawn {
    pub(super) way: Way,
    /// The endpoints beside this one.
    pub(super) others: usize,
}

/// The reason for which no endpoint was drawn.
pub(super) enum NotDrawn {
    /// All were to be avoided.
    Avoided,
    /// The address of this endpoint is that of a pod or a service of the mesh, of which all were to be avoided.
    AvoidedBehind(WorkloadUid),
    /// No way leads to this endpoint.
    Refused(WorkloadUid, Refusal),
}

/// The way to an endpoint.
pub(super) enum Way {
    Known(Rc<KnownEndpoint>),
    /// It depends on the draw, or its address has still to be found.
    Chosen(Box<NextHop>),
}

impl ServiceViews {
    /// The service that is asked for by an address, in the view in force.
    pub(super) fn get(
        &self,
        view: &View,
        service: &Service,
        address: SocketAddr,
    ) -> Rc<ServiceView> {
        let mut known = self.0.borrow_mut();
        let key = (service.key.clone(), address);
        if let Some(found) = known.get(&key)
            && found.is_of(view)
        {
            return Rc::clone(found);
        }
        if known.len() >= MOST {
            known.clear();
        }
        let made = Rc::new(ServiceView::new(view, &service.key, address));
        known.insert(key, Rc::clone(&made));
        made
    }

    /// Forgets all: another view is in force.
    pub(super) fn clear(&self) {
        self.0.take();
    }
}

impl ServiceView {
    fn new(view: &View, service: &ServiceKey, address: SocketAddr) -> Self {
        let View { snapshot, own, .. } = view;
        let now = snapshot.service_by_key(service);
        let candidates = now.and_then(|now| Candidates::of(snapshot, own, now, address));
        Self {
            number: view.number,
            rules: Arc::clone(view.request_rules(Some(service))),
            candidates,
            known: RefCell::default(),
        }
    }

    /// True if this view is the one.
    pub(super) fn is_of(&self, view: &View) -> bool {
        self.number == view.number
    }

    /// Draws an endpoint. `None` if there is nothing to draw from. `view` is that of the service; `avoid` names the endpoints to be
    /// left out, and `random` is uniform below its argument.
    ///
    /// # Errors
    /// See [`NotDrawn`].
    pub(super) fn draw(
        &self,
        view: &View,
        avoid: impl Fn(&Workload) -> bool,
        mut random: impl FnMut(u64) -> u64,
    ) -> Option<Result<Drawn, NotDrawn>> {
        let candidates = self.candidates.as_ref()?;
        let drawn = candidates.draw(&avoid, &mut random)?;
        let item = drawn.item as usize;
        if let Some(Some(known)) = self.known.borrow().get(item) {
            if drawn.avoided {
                return Some(Err(NotDrawn::Avoided));
            }
            return Some(Ok(Drawn {
                way: Way::Known(Rc::clone(known)),
                others: drawn.others,
            }));
        }
        let asks = Cell::new(false);
        let avoid = |workload: &Workload| {
            asks.set(true);
            avoid(workload)
        };
        let random = &mut |below| {
            asks.set(true);
            random(below)
        };
        let View { snapshot, own, .. } = view;
        let reached = candidates.reach(snapshot, own, &drawn, &avoid, random);
        let choice = match reached {
            // The gateway of another network may choose another endpoint each time.
            Ok(choice) if !choice.avoided => choice,
            _ if drawn.avoided => return Some(Err(NotDrawn::Avoided)),
            not_reached => {
                let uid = candidates.workload(&drawn)?.uid.clone();
                return Some(Err(match not_reached {
                    Ok(_) => NotDrawn::AvoidedBehind(uid),
                    Err(refusal) => NotDrawn::Refused(uid, refusal),
                }));
            }
        };
        if asks.get() || matches!(choice.next_hop, NextHop::Resolve(_)) {
            return Some(Ok(choice.into()));
        }
        let known = Rc::new(KnownEndpoint::from(Endpoint::of(choice.next_hop)));
        let mut places = self.known.borrow_mut();
        if places.is_empty() {
            places.resize(candidates.bound(), None);
        }
        if let Some(place) = places.get_mut(item) {
            *place = Some(Rc::clone(&known));
        }
        Some(Ok(Drawn {
            way: Way::Known(known),
            others: drawn.others,
        }))
    }
}

impl KnownEndpoint {
    /// The connections to the endpoint, of those that the worker has.
    pub(super) fn upstream(
        &self,
        upstreams: &Upstreams,
        numbers: &Numbers,
        protocol: Protocol,
    ) -> Rc<Upstream> {
        let place = &self.upstreams[usize::from(protocol == Protocol::Http2)];
        let known = place.borrow().upgrade();
        known.unwrap_or_else(|| {
            let upstream = upstreams.get(&self.endpoint.hop, protocol, || numbers.next());
            place.replace(Rc::downgrade(&upstream));
            upstream
        })
    }
}

impl From<Endpoint> for KnownEndpoint {
    fn from(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            upstreams: Default::default(),
        }
    }
}

impl From<Choice> for Drawn {
    fn from(choice: Choice) -> Self {
        Self {
            others: choice.others,
            way: Way::Chosen(Box::new(choice.next_hop)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waypoint::hop::{AddressSource, Hop};

    #[test]
    fn connections_that_the_worker_has_forgotten_are_looked_up_anew() {
        let (upstreams, numbers) = (Upstreams::default(), Numbers::default());
        let known = KnownEndpoint::from(Endpoint {
            hop: Hop {
                address: ([192, 0, 2, 1], 80).into(),
                tunnel: None,
                host: None,
                source: AddressSource::Configured,
            },
            workload: None,
            uid: None,
        });
        let number = |protocol| known.upstream(&upstreams, &numbers, protocol).number();
        let first = number(Protocol::Http1);
        assert_eq!(number(Protocol::Http1), first);
        assert_ne!(number(Protocol::Http2), first);
        let used = known.upstream(&upstreams, &numbers, Protocol::Http1);
        upstreams.clear();
        assert_eq!(number(Protocol::Http1), first, "a request has it");
        drop(used);
        upstreams.clear();
        let again = number(Protocol::Http1);
        assert_ne!(again, first);
        assert_eq!(number(Protocol::Http1), again);
    }
}
