//! Facts of one stream of a tunnel, which hold for all of its requests: the peer, the source, and the destination.

use std::cell::{Cell, OnceCell, RefCell};
use std::net::SocketAddr;
use std::rc::{Rc, Weak};

use lateen_config::l7::{RequestRules, Standing};
use lateen_config::{PortProtocol, ServiceKey};
use lateen_exchange::{Account, Config, OpenConnection, Protocol};
use lateen_http::{Downstream, PeerKind, Scheme};
use lateen_policy::request::PeerFacts;
use lateen_telemetry::{LogShare, Part, Party};
use lateen_types::{Strng, VerifiedPeer};

use super::destination::{self, Destination, Target};
use super::listing::{self, About};
use super::metadata::{NewestMetadata, StreamMetadata};
use super::policy::Judge;
use super::service_view::ServiceView;
use super::state::Waypoint;
use super::view::View;
use crate::describe;

/// A peer that opened a tunnel.
#[derive(Debug)]
pub(super) struct TunnelPeer {
    /// The identity that it proved.
    pub(super) peer: VerifiedPeer,
    /// Its address: that of the source workload, whose proxy dials from there.
    pub(super) client: SocketAddr,
    /// The address that it dialled.
    pub(super) local: SocketAddr,
    /// The facts that header trust goes by.
    pub(super) downstream: Downstream,
    /// The memory of its identity's requests, and of answers to them.
    pub(super) account: Account,
    /// Parameters of its connections: HTTP/1 and HTTP/2.
    configs: [Rc<Config>; 2],
    /// The share of the log's buffer that lines about it have.
    pub(super) log_share: LogShare,
    /// The description of its newest stream.
    pub(super) metadata: NewestMetadata,
}

impl TunnelPeer {
    /// A peer that has proven its identity. `client` is its address, and `local` the one that it dialled.
    pub(super) fn new(
        waypoint: &Waypoint,
        peer: VerifiedPeer,
        client: SocketAddr,
        local: SocketAddr,
    ) -> Self {
        let account = waypoint.accounts.of(peer.identity());
        Self {
            client,
            local,
            downstream: Downstream::new(PeerKind::Mesh, client, Scheme::Http),
            configs: waypoint.server_configs(&account),
            account,
            log_share: LogShare::of(peer.identity()),
            metadata: NewestMetadata::default(),
            peer,
        }
    }

    /// Parameters of its connections in this protocol.
    pub(super) fn config(&self, protocol: Protocol) -> Rc<Config> {
        Rc::clone(&self.configs[usize::from(protocol == Protocol::Http2)])
    }
}

/// One stream.
pub(super) struct Session {
    pub(super) waypoint: Rc<Waypoint>,
    pub(super) tunnel: Rc<TunnelPeer>,
    pub(super) destination: Destination,
    /// The source, for counters and logs.
    pub(super) source: Party,
    pub(super) source_name: Option<Strng>,
    /// The numbers of source and service, by which counters are found.
    pub(super) source_number: u32,
    pub(super) service_number: u32,
    /// The peer, as policies have judged it.
    pub(super) judge: Judge,
    /// The description of the stream by the source's proxy.
    pub(super) metadata: Rc<StreamMetadata>,
    /// The server name that the client's TLS asks for: empty if it asks for none, and unset where the waypoint does not read it.
    server_name: OnceCell<Box<str>>,
    /// The standing of the destination to this waypoint, in the view of this number.
    standing: Cell<(u64, Standing)>,
    /// The fields of the access log that all requests have in common, for those who write it.
    pub(super) log_parts: OnceCell<[Part; 2]>,
    /// The service as it was last looked up, while its view is in force.
    service_view: RefCell<Weak<ServiceView>>,
    /// Its place among the connections that its client may have.
    _place: OpenConnection,
}

// Every open connection has one. With the counts of its `Rc` the allocator gives it 512 bytes.
const _: () = assert!(size_of::<Session>() <= 496);

impl Session {
    /// The facts of a stream to a destination, which has this standing in the view.
    pub(super) fn new(
        waypoint: &Rc<Waypoint>,
        tunnel: &Rc<TunnelPeer>,
        view: &View,
        (destination, standing): (Destination, Standing),
        metadata: Rc<StreamMetadata>,
        place: OpenConnection,
    ) -> Self {
        let TunnelPeer { peer, client, .. } = &**tunnel;
        let named = view.snapshot.workload(&waypoint.network, client.ip());
        // An address may be another's by now; the identity is proven.
        let named = named.filter(|workload| workload.identity == *peer.identity());
        let identity = Some(peer.identity().clone());
        let source = match named {
            Some(workload) => describe::party(workload, identity),
            None => {
                let claims = waypoint.metrics.claims();
                claims.admit(describe::claimed(metadata.baggage.as_ref(), identity))
            }
        };
        let source_name = named.and_then(|workload| describe::some(&workload.name));
        let service_number = match &destination.target {
            Target::Service(service) => waypoint.numbers.service(&service.key),
            Target::Workload(_) => 0,
        };
        Self {
            source_number: waypoint.numbers.party(&source),
            service_number,
            source_name: source_name.or_else(|| source.canonical_service.clone()),
            source,
            judge: Judge::default(),
            waypoint: Rc::clone(waypoint),
            tunnel: Rc::clone(tunnel),
            server_name: OnceCell::new(),
            standing: Cell::new((view.number, standing)),
            log_parts: OnceCell::new(),
            service_view: RefCell::default(),
            _place: place,
            destination,
            metadata,
        }
    }

    /// Returns the standing of the destination to this waypoint. It is looked up once a view.
    pub(super) fn standing(&self, view: &View) -> Standing {
        let (known, standing) = self.standing.get();
        if known == view.number {
            return standing;
        }
        let Destination { target, .. } = &self.destination;
        let standing = destination::standing(view, &self.waypoint.own, target);
        self.standing.set((view.number, standing));
        standing
    }

    /// Returns the service in a view; none for a workload. It is looked up once a view.
    pub(super) fn service_view(&self, view: &View) -> Option<Rc<ServiceView>> {
        let service = self.destination.target.service()?;
        let known = self.service_view.borrow().upgrade();
        if let Some(known) = known.filter(|known| known.is_of(view)) {
            return Some(known);
        }
        let views = &self.waypoint.service_views;
        let found = views.get(view, service, self.destination.address);
        self.service_view.replace(Rc::downgrade(&found));
        Some(found)
    }

    /// Notes the server name that the client's TLS asks for; `None` if it asks for none, or speaks no TLS.
    pub(super) fn set_server_name(&self, name: Option<String>) {
        self.server_name
            .get_or_init(|| name.unwrap_or_default().into());
    }

    /// The server name that the client's TLS asks for, where the waypoint reads it.
    pub(super) fn server_name(&self) -> Option<&str> {
        let name = self.server_name.get()?;
        Some(&**name).filter(|name| !name.is_empty())
    }

    /// True if policies in force compare the server name of a connection whose requests nobody reads.
    pub(super) async fn reads_server_name(&self) -> bool {
        let view = self.waypoint.view().await;
        view.is_some_and(|view| view.request_rules(self.service_key()).streams.reads_sni())
    }

    /// True if such policies decide, and do not only report.
    pub(super) async fn decides_by_server_name(&self) -> bool {
        let view = self.waypoint.view().await;
        view.is_some_and(|view| {
            let rules = view.request_rules(self.service_key());
            rules.streams.decides_by_sni()
        })
    }

    /// True if the rules decide by the server name, and nobody has read that of this connection, though it may have one.
    pub(super) fn lacks_server_name(&self, rules: &RequestRules) -> bool {
        let protocol = self.destination.protocol;
        let may_have = matches!(protocol, PortProtocol::Tls | PortProtocol::Unknown);
        may_have && self.server_name.get().is_none() && rules.streams.decides_by_sni()
    }

    /// What policies see of the peer.
    pub(super) fn peer_facts(&self) -> PeerFacts<'_> {
        PeerFacts {
            peer: Some(&self.tunnel.peer),
            source_ip: self.tunnel.client.ip(),
            destination: self.destination.address,
            sni: self.server_name().map(str::as_bytes),
        }
    }

    /// True if requests for the destination are searched for tokens.
    pub(super) async fn looks_for_tokens(&self) -> bool {
        let view = self.waypoint.view().await;
        view.is_some_and(|view| view.request_rules(self.service_key()).refuses_tokens)
    }

    /// What operators see of a connection of the client in this protocol.
    pub(super) fn about(&self, protocol: &'static str) -> About {
        let TunnelPeer { peer, client, .. } = &*self.tunnel;
        About {
            source: *client,
            workload: self.source_name.clone(),
            namespace: self.source.namespace.clone(),
            identity: peer.identity().clone(),
            asked: self.destination.address,
            destination: match &self.destination.target {
                Target::Service(service) => listing::Destination::Service(service.hostname.clone()),
                Target::Workload(workload) => listing::Destination::Workload {
                    namespace: workload.namespace.clone(),
                    name: workload.name.clone(),
                },
            },
            protocol,
        }
    }

    /// A random number.
    pub(super) fn random(&self) -> u128 {
        let half = || u128::from(self.waypoint.worker.random_below(u64::MAX));
        half() << 64 | half()
    }

    /// The service whose policies hold; none for a workload.
    pub(super) fn service_key(&self) -> Option<&ServiceKey> {
        let service = self.destination.target.service();
        service.map(|service| &service.key)
    }
}
