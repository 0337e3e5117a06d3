//! One service in one view: the rules of its requests, and the ways to its endpoints. They are looked up once for all requests.

use std::cell::{Cell, OnceCell, RefCell};
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
    /// The same without those that no request can use, once a request has met one.
    usable: OnceCell<Usable>,
    /// By their numbers the endpoints to which each draw leads by the same way. Empty before the first draw.
    known: RefCell<Vec<Option<Rc<KnownEndpoint>>>>,
}

/// The endpoints of a view that requests can use.
struct Usable {
    candidates: Candidates,
    /// The first of the others.
    excluded: Option<Excluded>,
}

/// An endpoint that no request can use in a view.
pub(super) enum Excluded {
    /// It may not be sent what it speaks.
    Forbidden(Endpoint),
    /// No way leads there.
    Unreachable(WorkloadUid, Refusal),
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
            usable: OnceCell::new(),
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
        let usable = self.usable.get();
        let candidates = match usable {
            Some(usable) => &usable.candidates,
            None => self.candidates.as_ref()?,
        };
        let Some(drawn) = candidates.draw(&avoid, &mut random) else {
            return usable.map(|_| Err(NotDrawn::Avoided));
        };
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
        let (reached, asks) = reach(candidates, view, &drawn, avoid, random);
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
        if asks || matches!(choice.next_hop, NextHop::Resolve(_)) {
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

    /// Leaves the endpoints out of all further draws that no request can use in this view: those that `forbids` says yes to, and those
    /// to which no way leads. It does so once. A request that draws such an endpoint calls it, since it would look at each of them
    /// otherwise, and there may be thousands.
    ///
    /// An endpoint stays whose way depends on the draw, or whose address has still to be found.
    pub(super) fn exclude(&self, view: &View, forbids: impl Fn(&Endpoint) -> bool) {
        let Some(all) = &self.candidates else {
            return;
        };
        self.usable.get_or_init(|| {
            let mut excluded = None;
            let candidates = all.only(|drawn| {
                let why = match reach(all, view, drawn, |_| false, |_| 0) {
                    (_, true) => return true,
                    (Ok(choice), _) if matches!(choice.next_hop, NextHop::Resolve(_)) => {
                        return true;
                    }
                    (Ok(choice), _) => match Endpoint::of(choice.next_hop) {
                        endpoint if forbids(&endpoint) => Excluded::Forbidden(endpoint),
                        _ => return true,
                    },
                    (Err(refusal), _) => match all.workload(drawn) {
                        Some(workload) => Excluded::Unreachable(workload.uid.clone(), refusal),
                        None => return true,
                    },
                };
                excluded.get_or_insert(why);
                false
            });
            Usable {
                candidates,
                excluded,
            }
        });
    }

    /// One of the endpoints that draws leave out.
    pub(super) fn excluded(&self) -> Option<&Excluded> {
        self.usable.get()?.excluded.as_ref()
    }
}

/// The way to an endpoint that was drawn, and whether another draw of it may lead another way.
fn reach(
    candidates: &Candidates,
    view: &View,
    drawn: &lateen_balance::Drawn,
    avoid: impl Fn(&Workload) -> bool,
    mut random: impl FnMut(u64) -> u64,
) -> (Result<Choice, Refusal>, bool) {
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
    let reached = candidates.reach(snapshot, own, drawn, &avoid, random);
    (reached, asks.get())
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
    use std::net::IpAddr;

    use lateen_config::{Batch, Store, l7 as kinds};
    use lateen_proto::l7;
    use lateen_testkit::{identity, wds};
    use lateen_types::NamespacedName;
    use prost::Message as _;

    use super::*;
    use crate::waypoint::hop::{AddressSource, Hop};
    use crate::waypoint::own::Own;

    /// The address of an endpoint.
    fn address(number: usize) -> IpAddr {
        [192, 0, 2, number as u8].into()
    }

    /// The view of a waypoint, and the service `web` with so many endpoints in plain text. The address of the first one belongs to
    /// a service without endpoints.
    fn view(endpoints: usize) -> (View, Rc<ServiceView>) {
        let gateway = NamespacedName::new("default", "gate");
        let mut store = Store::new("", None).of_gateway(gateway.clone());
        let resource = l7::Gateway {
            namespace: "default".to_owned(),
            name: "gate".to_owned(),
            identity: "default/gate".to_owned(),
            settings: Some(l7::MeshSettings {
                trust_domain: "cluster.local".to_owned(),
                connect_timeout_ms: 10_000,
                ..l7::MeshSettings::default()
            }),
            ..l7::Gateway::default()
        };
        let batch = Batch {
            upserts: vec![("default/gate".into(), resource.encode_to_vec().into())],
            ..Batch::new(&kinds::GATEWAY)
        };
        let refused = store.apply(&batch);
        assert!(refused.is_empty(), "{refused:?}");
        let mut put = |name: &str, resource| store.upsert(name, resource).unwrap();
        let own = wds::workload("gate", "n1", [198, 51, 100, 1].into());
        put(&own.uid.clone(), wds::workload_resource(own));
        for (name, vip) in [("web", [203, 0, 113, 1].into()), ("empty", address(0))] {
            let service = wds::service(name, vip, 80, 8080);
            put(
                &wds::service_name("default", name),
                wds::service_resource(service),
            );
        }
        for number in 0..endpoints {
            let mut endpoint = wds::workload(&format!("e{number}"), "n2", address(number));
            if number == 0 {
                // An address of a pod is the pod's.
                endpoint.uid = "Kubernetes/networking.istio.io/WorkloadEntry/default/e0".to_owned();
            }
            let endpoint = wds::serving(wds::plain(endpoint), "web", 80, 80);
            put(&endpoint.uid.clone(), wds::workload_resource(endpoint));
        }
        let own = Own {
            gateway,
            pod: "gate".into(),
            uid: WorkloadUid(wds::uid("default", "gate").as_str().into()),
            identity: identity("gate"),
        };
        let view = View::of(store.snapshot(), &own, None, false).unwrap();
        let web = ServiceKey::new("default", "web.default.svc.cluster.local");
        let service = view.snapshot.service_by_key(&web).unwrap();
        let made = ServiceViews::default().get(&view, service, ([203, 0, 113, 1], 80).into());
        (view, made)
    }

    /// Draws `count` times as a request does that has tried `tried`. Returns the endpoints and the number of those that were looked at.
    fn drawn(
        (view, service): &(View, Rc<ServiceView>),
        count: u64,
        tried: &[usize],
    ) -> (Vec<Option<usize>>, usize) {
        let looked_at = Cell::new(0);
        let tried: Vec<_> = tried.iter().map(|number| format!("e{number}")).collect();
        let avoid = |workload: &Workload| {
            looked_at.set(looked_at.get() + 1);
            tried.iter().any(|tried| **tried == *workload.name)
        };
        let draw = |turn| match service.draw(view, avoid, |below| turn % below) {
            Some(Ok(Drawn {
                way: Way::Known(known),
                ..
            })) => {
                let name = &known.endpoint.workload.as_ref().unwrap().name;
                name.strip_prefix('e')?.parse().ok()
            }
            Some(Err(NotDrawn::Avoided)) => None,
            _ => panic!("no way is found, or another one"),
        };
        ((0..count).map(draw).collect(), looked_at.get())
    }

    /// True for all endpoints but these.
    fn all_but<const N: usize>(usable: [usize; N]) -> impl Fn(&Endpoint) -> bool {
        move |endpoint| !usable.map(address).contains(&endpoint.hop.address.ip())
    }

    #[test]
    fn endpoints_that_no_request_can_use_are_looked_at_once_a_view() {
        let (view, service) = view(100);
        let judged = Cell::new(0);
        let forbids = all_but([41, 83]);
        service.exclude(&view, |endpoint| {
            judged.set(judged.get() + 1);
            forbids(endpoint)
        });
        service.exclude(&view, |_| panic!("they were looked at before"));
        // No way leads to the first one, so there is nothing to judge.
        assert_eq!(judged.get(), 99);
        let of = (view, service);
        let (found, looked_at) = drawn(&of, 4, &[]);
        assert_eq!(found, [41, 83, 41, 83].map(Some));
        assert_eq!(looked_at, 4);
        assert_eq!(drawn(&of, 2, &[41]).0, [Some(83); 2]);
        assert_eq!(drawn(&of, 1, &[41, 83]).0, [None]);
    }

    #[test]
    fn an_endpoint_without_a_way_is_excluded_with_its_reason() {
        let (view, service) = view(3);
        service.exclude(&view, |_| false);
        match service.excluded() {
            Some(Excluded::Unreachable(uid, Refusal::NoHealthyEndpoint { .. })) => {
                assert!(uid.as_str().ends_with("/e0"), "{uid}");
            }
            _ => panic!("the reason is another one"),
        }
        let (found, _) = drawn(&(view, service), 4, &[]);
        assert_eq!(found, [1, 2, 1, 2].map(Some));
    }

    #[test]
    fn a_service_whose_endpoints_are_all_forbidden_has_none_to_look_at() {
        let (view, service) = view(100);
        service.exclude(&view, |_| true);
        assert_eq!(drawn(&(view, service), 3, &[]), (vec![None; 3], 0));
    }

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
