//! The two ends of a connection of a pod, in the words of telemetry.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use lateen_config::{Service, Snapshot, Workload};
use lateen_hbone::Baggage;
use lateen_telemetry::{Claims, Labels, Opening, Reporter, ResponseFlags, Security, Trace};
use lateen_types::Identity;

use super::state::Node;
pub(super) use crate::describe::{baggage, claimed, party};
use crate::describe::{service, some};
use crate::pod::Pod;

/// What an outbound connection is known by.
pub(super) struct Outbound<'a> {
    pub(super) start: Instant,
    pub(super) client: SocketAddr,
    pub(super) source: &'a Workload,
    pub(super) destination: Option<&'a Workload>,
    pub(super) service: Option<&'a Service>,
    pub(super) address: SocketAddr,
    pub(super) hbone: Option<String>,
    pub(super) trace: Option<Trace>,
}

impl Outbound<'_> {
    pub(super) fn opening(self) -> Opening {
        let tunnelled = self.hbone.is_some();
        Opening {
            start: self.start,
            source: self.client,
            source_name: some(&self.source.name),
            destination: self.address,
            hbone: self.hbone.map(Into::into),
            trace: self.trace,
            destination_name: self.destination.and_then(|workload| some(&workload.name)),
            labels: Labels {
                reporter: Reporter::Source,
                // Plain TCP proves nobody's identity.
                source: party(self.source, tunnelled.then(|| self.source.identity.clone())),
                service: self.service.map(service),
                destination: self
                    .destination
                    .map(|workload| party(workload, Some(workload.identity.clone())))
                    .unwrap_or_default(),
                flags: ResponseFlags::None,
                security: if tunnelled {
                    Security::MutualTls
                } else {
                    Security::Unknown
                },
            },
        }
    }
}

/// What an inbound connection is known by.
pub(super) struct Inbound<'a> {
    pub(super) start: Instant,
    pub(super) client: SocketAddr,
    pub(super) network: &'a str,
    pub(super) peer: Option<&'a Identity>,
    pub(super) baggage: Option<&'a Baggage>,
    pub(super) through_gateway: bool,
    pub(super) destination: &'a Workload,
    pub(super) service: Option<&'a Service>,
    pub(super) address: SocketAddr,
    pub(super) hbone: Option<String>,
    pub(super) trace: Option<Trace>,
}

impl Inbound<'_> {
    pub(super) fn opening(self, snapshot: &Snapshot, claims: &Claims) -> Opening {
        let source = self.source(snapshot, self.client.ip());
        let peer = self.peer.cloned();
        Opening {
            start: self.start,
            source: self.client,
            source_name: source.as_ref().and_then(|workload| some(&workload.name)),
            destination: self.address,
            hbone: self.hbone.map(Into::into),
            trace: self.trace,
            destination_name: some(&self.destination.name),
            labels: Labels {
                reporter: Reporter::Destination,
                source: match source {
                    Some(workload) => party(workload, peer),
                    None => claims.admit(claimed(self.baggage, peer)),
                },
                service: self.service.map(service),
                destination: party(self.destination, Some(self.destination.identity.clone())),
                flags: ResponseFlags::None,
                security: if self.peer.is_some() {
                    Security::MutualTls
                } else {
                    Security::Unknown
                },
            },
        }
    }

    /// The workload at the client's address. Behind a gateway that address is another network's and says nothing.
    fn source<'s>(&self, snapshot: &'s Snapshot, address: IpAddr) -> Option<&'s Arc<Workload>> {
        if self.through_gateway {
            return None;
        }
        snapshot.workload(self.network, address)
    }
}

/// What is known of a connection that was refused before it counted as opened. Nobody has proven anything.
pub(super) fn unopened(
    node: &Node,
    pod: &Pod,
    client: IpAddr,
    reporter: Reporter,
    flags: ResponseFlags,
) -> Labels {
    let snapshot = node.worker.snapshot();
    let own = snapshot
        .as_ref()
        .and_then(|snapshot| pod.workload(snapshot));
    let (source, destination) = match reporter {
        Reporter::Source => (own.map(|own| party(own, None)), None),
        Reporter::Destination | Reporter::Waypoint => {
            let source = snapshot
                .as_ref()
                .and_then(|s| s.workload(&node.network, client));
            let identity = |own: &Workload| Some(own.identity.clone());
            (
                source.map(|source| party(source, None)),
                own.map(|own| party(own, identity(own))),
            )
        }
    };
    Labels {
        reporter,
        source: source.unwrap_or_default(),
        service: None,
        destination: destination.unwrap_or_default(),
        flags,
        security: Security::Unknown,
    }
}
