//! `x-forwarded-for` and `x-forwarded-proto`: the client's address and scheme, as far as they are trusted.

use std::net::IpAddr;

use super::settings::{ForwardedFor, Trust};
use crate::downstream::{Downstream, PeerKind, parse_address};
use crate::fields::Fields;
use crate::known::Known;
use crate::refusal::Cause;
use crate::scan;
use crate::scheme::Scheme;

/// The address of the client. At the edge with N trusted proxies it is the Nth element from the right, in the mesh the
/// one left of N further elements. The peer's own address stands for an element that is missing or no address.
#[inline]
pub(super) fn client_address(fields: &Fields, trust: &Trust, downstream: &Downstream) -> IpAddr {
    let hops = usize::from(trust.trusted_proxies);
    let back = match downstream.kind {
        PeerKind::Edge if hops == 0 => return downstream.address,
        PeerKind::Edge => hops - 1,
        PeerKind::Mesh => hops,
    };
    if !fields.has(Known::XForwardedFor) {
        return downstream.address;
    }
    if !fields.is_repeated(Known::XForwardedFor) {
        let value = fields.get(Known::XForwardedFor).unwrap_or_default();
        let element = scan::elements(value).nth_back(back);
        return element
            .and_then(parse_address)
            .unwrap_or(downstream.address);
    }
    let elements = || fields.all(Known::XForwardedFor).flat_map(scan::elements);
    let count = elements().count();
    let element = count.checked_sub(back + 1);
    element
        .and_then(|at| elements().nth(at))
        .and_then(parse_address)
        .unwrap_or(downstream.address)
}

/// Adds the peer to `x-forwarded-for`.
#[inline]
pub(super) fn extend(
    fields: &mut Fields,
    trust: &Trust,
    downstream: &Downstream,
) -> Result<(), Cause> {
    let peer = downstream.address_text.as_bytes();
    if !fields.has(Known::XForwardedFor) {
        return fields.add(Known::XForwardedFor, &[peer]);
    }
    match trust.forwarded_for {
        ForwardedFor::Append => fields.join(Known::XForwardedFor, b", ", peer),
        ForwardedFor::Vouched => {
            let elements = || fields.all(Known::XForwardedFor).flat_map(scan::elements);
            let unvouched = elements()
                .count()
                .saturating_sub(usize::from(trust.trusted_proxies));
            let kept: Vec<&[u8]> = elements().skip(unvouched).chain([peer]).collect();
            let value = kept.join(&b", "[..]);
            fields.set(Known::XForwardedFor, &[&value])
        }
    }
}

/// The scheme of the request: a trusted `x-forwarded-proto`, else the transport's, which the field then gets.
#[inline]
pub(super) fn scheme(
    fields: &mut Fields,
    trust: &Trust,
    downstream: &Downstream,
) -> Result<Scheme, Cause> {
    let is_trusted = downstream.kind == PeerKind::Mesh || trust.trusted_proxies != 0;
    if is_trusted
        && !fields.is_repeated(Known::XForwardedProto)
        && let Some(value) = fields.get(Known::XForwardedProto)
        && let Some(scheme) = Scheme::parse(value)
    {
        return Ok(scheme);
    }
    let scheme = downstream.scheme;
    fields.set(Known::XForwardedProto, &[scheme.as_str().as_bytes()])?;
    Ok(scheme)
}
