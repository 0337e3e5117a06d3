//! Header trust: which statements about earlier hops are removed, replaced, extended or kept.
//!
//! | field | edge, no trusted proxy | edge, trusted proxies | mesh |
//! |---|---|---|---|
//! | `x-forwarded-for` | extended by the peer | extended by the peer | kept |
//! | `x-forwarded-proto` | replaced | kept if it is a scheme | kept if it is a scheme |
//! | `x-forwarded-{host,port,prefix,…}`, `forwarded`, `x-real-ip` | removed | kept | kept |
//! | `x-forwarded-client-cert` | by `ForwardClientCert` | by `ForwardClientCert` | by `ForwardClientCert` |
//! | `x-envoy-external-address` | replaced | replaced | kept |
//! | `x-envoy-{internal,original-path,original-dst-host}` | removed | removed | removed |
//! | other `x-envoy-*` | removed | removed | kept |
//! | `baggage`, `x-istio-source`, `x-forwarded-network` | removed | removed | kept |
//! | `x-request-id` | replaced, or kept by a setting | the same | kept, made if missing |
//! | `traceparent`, `tracestate`, `b3`, `x-b3-*` | kept, or removed by a setting | the same | kept |
//!
//! These are Istio's rules, with these differences. Istio keeps `x-forwarded-host` and the like, `baggage` and
//! `x-istio-source` from anybody. It trusts private addresses at the edge; here no address has trust.

mod client_cert;
mod forwarded;

use std::net::IpAddr;

pub use client_cert::{CertDetails, ForwardClientCert};

use crate::downstream::{Downstream, PeerKind};
use crate::fields::Fields;
use crate::known::{Known, NameSet};
use crate::refusal::Cause;
use crate::scheme::Scheme;
use crate::value::FieldValue;

/// Treatment of `x-forwarded-for` at the edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ForwardedFor {
    /// The peer's address is added behind all that arrived, as in Istio. Applications must count from the right.
    #[default]
    Append,
    /// Elements that no trusted proxy wrote are removed first.
    Vouched,
}

/// Treatment of names with an underscore. Some applications read `x_forwarded_for` as `x-forwarded-for`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Underscores {
    /// The field is kept.
    #[default]
    Keep,
    /// The field is removed.
    Remove,
    /// The request is refused, as Istio's edge profile does.
    Refuse,
}

/// Header trust of a listener: Istio's `gatewayTopology` and what belongs to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Trust {
    /// How many proxies in front are trusted (`numTrustedProxies`).
    pub trusted_proxies: u8,
    /// Treatment of `x-forwarded-for` at the edge.
    pub forwarded_for: ForwardedFor,
    /// Treatment of `x-forwarded-client-cert` (`forwardClientCertDetails`).
    pub client_cert: ForwardClientCert,
    /// Parts of the client certificate that `x-forwarded-client-cert` gets (`setCurrentClientCertDetails`).
    pub cert_details: CertDetails,
    /// Keeps `x-request-id` of clients at the edge.
    pub keeps_request_id: bool,
    /// Removes the trace context of clients at the edge.
    pub drops_trace_context: bool,
    /// Treatment of names with an underscore.
    pub underscores: Underscores,
}

impl Trust {
    /// Istio's settings for gateways.
    pub fn gateway(trusted_proxies: u8) -> Trust {
        Trust {
            trusted_proxies,
            client_cert: ForwardClientCert::SanitizeSet,
            cert_details: CertDetails::ISTIO,
            underscores: Underscores::Refuse,
            ..Trust::default()
        }
    }

    /// Istio's settings for sidecars.
    pub fn sidecar() -> Trust {
        Trust {
            client_cert: ForwardClientCert::AppendForward,
            cert_details: CertDetails::ISTIO,
            ..Trust::default()
        }
    }

    /// Istio's settings for waypoints.
    pub fn waypoint() -> Trust {
        Trust::default()
    }
}

/// What the fields say about the client, as far as they are trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Client {
    /// The address for `remoteIpBlocks`.
    pub(crate) address: IpAddr,
    pub(crate) scheme: Scheme,
}

/// Applies the rules to the fields of a request.
#[inline]
pub(crate) fn apply(
    fields: &mut Fields,
    trust: &Trust,
    downstream: &Downstream,
    request_id: &mut dyn FnMut() -> FieldValue,
) -> Result<Client, Cause> {
    let is_edge = downstream.kind == PeerKind::Edge;
    fields.remove_all(if is_edge {
        let mut unwanted = NameSet::ENVOY.or(NameSet::MESH);
        if trust.trusted_proxies == 0 {
            unwanted = unwanted.or(NameSet::FORWARDED);
        }
        if trust.drops_trace_context {
            unwanted = unwanted.or(NameSet::TRACE);
        }
        unwanted
    } else {
        NameSet::OWN
    });
    if fields.has_others() {
        remove_unnumbered(fields, trust, is_edge)?;
    }
    let address = forwarded::client_address(fields, trust, downstream);
    if is_edge {
        forwarded::extend(fields, trust, downstream)?;
        if address == downstream.address {
            fields.add(
                Known::XEnvoyExternalAddress,
                &[downstream.address_text.as_bytes()],
            )?;
        } else {
            let text = address.to_string();
            fields.add(Known::XEnvoyExternalAddress, &[text.as_bytes()])?;
        }
    }
    let scheme = forwarded::scheme(fields, trust, downstream)?;
    if trust.client_cert != ForwardClientCert::AlwaysForwardOnly {
        client_cert::apply(fields, trust, downstream.certificate.as_ref())?;
    }
    let keeps_id = !is_edge || trust.keeps_request_id;
    if !keeps_id || fields.get(Known::XRequestId).is_none_or(<[u8]>::is_empty) {
        fields.set(Known::XRequestId, &[request_id().as_bytes()])?;
    }
    Ok(Client { address, scheme })
}

/// Applies the rules to names that have no number but a meaningful prefix, or an underscore.
fn remove_unnumbered(fields: &mut Fields, trust: &Trust, is_edge: bool) -> Result<(), Cause> {
    if trust.underscores != Underscores::Keep {
        let removed = fields.remove_others(|name| name.contains(&b'_'));
        if removed != 0 && trust.underscores == Underscores::Refuse {
            return Err(Cause::NameUnderscore);
        }
    }
    if is_edge {
        let hops = trust.trusted_proxies;
        fields.remove_others(|name| {
            begins(name, b"x-envoy-") || (hops == 0 && begins(name, b"x-forwarded-"))
        });
    }
    Ok(())
}

fn begins(name: &[u8], prefix: &[u8]) -> bool {
    name.get(..prefix.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// Removes from a response what only the mesh reads, when it leaves the mesh.
pub(crate) fn apply_to_response(fields: &mut Fields, kind: PeerKind) {
    fields.remove_all(match kind {
        PeerKind::Edge => NameSet::ENVOY.or(NameSet::MESH),
        PeerKind::Mesh => NameSet::OWN,
    });
}
