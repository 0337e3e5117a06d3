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
//! | `content_length`, `x_forwarded_client_cert` and the like | removed | removed | removed |
//! | `traceparent`, `tracestate`, `b3`, `x-b3-*` | kept, or removed by a setting | the same | kept |
//!
//! These are Istio's rules, with these differences. Istio keeps `x-forwarded-host` and the like, `baggage` and
//! `x-istio-source` from anybody. It trusts private addresses at the edge; here no address has trust.

mod client_cert;
mod forwarded;
mod settings;

use std::net::IpAddr;

pub use settings::{CertDetails, ForwardClientCert, ForwardedFor, Trust, Underscores};

use crate::downstream::{Downstream, PeerKind};
use crate::fields::Fields;
use crate::known::{Known, NameSet};
use crate::refusal::Cause;
use crate::scheme::Scheme;
use crate::value::FieldValue;

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
    let unwanted = if is_edge {
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
    };
    fields.remove_all(unwanted);
    if fields.has_others() {
        remove_unnumbered(fields, trust, is_edge)?;
        let removed = unwanted.or(NameSet::DISGUISED);
        fields.remove_others(|name| name.contains(&b'_') && is_disguise(name, removed));
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

/// True if an application that takes underscores for hyphens, as CGI and WSGI do, reads the name as one of `names`.
pub(crate) fn is_disguise(name: &[u8], names: NameSet) -> bool {
    let mut buffer = [0; 64];
    let Some(hyphens) = buffer.get_mut(..name.len()) else {
        return false;
    };
    for (to, from) in hyphens.iter_mut().zip(name) {
        *to = if *from == b'_' { b'-' } else { *from };
    }
    Known::of(hyphens).is_some_and(|known| names.has(known))
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
