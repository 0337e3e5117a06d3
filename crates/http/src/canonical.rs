//! Canonical requests: one method, host, path and scheme; hop-by-hop and untrusted fields gone.

mod target;

use crate::connect::ConnectHead;
use crate::downstream::Downstream;
use crate::fields::Fields;
use crate::framing::{FramedRequest, Length};
use crate::hop;
use crate::known::{Known, NameSet};
use crate::method::Method;
use crate::path::PathRules;
use crate::raw::{Raw, Version};
use crate::refusal::{Cause, Refusal};
use crate::request::{RequestHead, Upgrade};
use crate::trust::{self, Trust};
use crate::value::FieldValue;
use crate::websocket::WebSocketKey;

/// The rules of a listener for heads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rules {
    /// Path normalisation.
    pub path: PathRules,
    /// Header trust.
    pub trust: Trust,
}

/// A request that routes and policies may look at. A CONNECT has no path, so it is not a `RequestHead`: code that reads paths
/// cannot get one by mistake (CVE-2026-73547).
#[derive(Debug, Clone)]
pub enum Canonical {
    /// A request for a resource, WebSocket handshakes included.
    Request(RequestHead),
    /// A CONNECT for a tunnel to an authority (RFC 9110 §9.3.6).
    Connect(ConnectHead),
}

impl Canonical {
    /// Copies the head out of the read buffer that it keeps alive: a head that is kept for long then costs its own bytes alone.
    pub fn detach(&mut self) {
        match self {
            Canonical::Request(head) => head.detach(),
            Canonical::Connect(head) => head.detach(),
        }
    }
}

/// The protocol of extended CONNECT that this crate converts (RFC 8441 §5).
const WEBSOCKET: &[u8] = b"websocket";

impl FramedRequest {
    /// Makes the one form of the request. `request_id` gives the value of a missing `x-request-id`.
    pub fn canonical(
        self,
        rules: &Rules,
        downstream: &Downstream,
        request_id: &mut dyn FnMut() -> FieldValue,
    ) -> Result<Canonical, Refusal> {
        let FramedRequest {
            mut raw,
            method,
            length,
        } = self;
        check_single(&raw.fields)?;
        let is_http2 = raw.version == Version::Http2;
        if is_http2 {
            check_pseudo(&raw, &method)?;
        }
        let is_extended = raw.pseudo.protocol.is_some();
        if method == Method::CONNECT && !is_extended {
            return connect(raw, rules, downstream, request_id).map_err(Refusal::from);
        }
        let target = target::parse(&raw, &method, rules.path)?;
        let host = target.authority;
        check_served(&host, downstream)?;
        let fields = &mut raw.fields;
        let hop = hop::remove(fields, raw.version, true)?;
        let client = trust::apply(fields, &rules.trust, downstream, request_id)?;
        if target.is_https && client.scheme == crate::scheme::Scheme::Http && !is_http2 {
            return Err(Cause::SchemeOverClear.into());
        }
        fields.remove(Known::Host);
        if fields.is_repeated(Known::Cookie) {
            fields.join(Known::Cookie, b"; ", b"")?;
        }
        // Middleware of gRPC that copies metadata appends a second one. Envoy joins them alike.
        if fields.is_repeated(Known::XRequestId) {
            fields.join(Known::XRequestId, b",", b"")?;
        }
        let is_handshake = hop.websocket && method == Method::GET;
        let upgrade = if is_extended || is_handshake {
            Some(websocket(fields, length, is_extended)?)
        } else {
            None
        };
        Ok(Canonical::Request(RequestHead {
            // The method of a handshake is GET in HTTP/1, and policies are written for it.
            method: if is_extended { Method::GET } else { method },
            scheme: client.scheme,
            authority: host,
            path: target.path,
            // The bytes behind an extended CONNECT are the tunnel's.
            length: if is_extended { Length::None } else { length },
            version: raw.version,
            client: client.address,
            accepts_trailers: hop.accepts_trailers,
            upgrade,
            never_indexed: raw.pseudo.never_indexed,
            fields: raw.fields,
        }))
    }
}

/// Takes the handshake out of the fields.
fn websocket(fields: &mut Fields, length: Length, is_extended: bool) -> Result<Upgrade, Cause> {
    let key = match (is_extended, fields.get(Known::SecWebsocketKey)) {
        (true, _) => None,
        (false, value) => {
            if length != Length::None && length != Length::Known(0) {
                return Err(Cause::UpgradeContent);
            }
            let key = value.and_then(WebSocketKey::parse);
            Some(key.ok_or(Cause::WebSocketKey)?)
        }
    };
    fields.remove(Known::SecWebsocketKey);
    Ok(Upgrade::WebSocket { key })
}

/// Makes the one form of a CONNECT.
fn connect(
    mut raw: Raw,
    rules: &Rules,
    downstream: &Downstream,
    request_id: &mut dyn FnMut() -> FieldValue,
) -> Result<Canonical, Cause> {
    let authority = target::of_connect(&raw)?;
    check_served(&authority, downstream)?;
    hop::remove(&mut raw.fields, raw.version, true)?;
    let client = trust::apply(&mut raw.fields, &rules.trust, downstream, request_id)?;
    raw.fields.remove(Known::Host);
    Ok(Canonical::Connect(ConnectHead {
        authority,
        client: client.address,
        version: raw.version,
        never_indexed: raw.pseudo.never_indexed,
        fields: raw.fields,
    }))
}

/// Refuses fields that occur twice and decide something: a policy reads one of them, an application the other.
#[inline]
fn check_single(fields: &Fields) -> Result<(), Cause> {
    const SINGLE: NameSet = NameSet::of(&[
        Known::Authorization,
        Known::ContentType,
        Known::Expect,
        Known::Host,
        Known::Origin,
        Known::SecWebsocketKey,
    ]);
    match fields.repeated().and(SINGLE).iter().next() {
        Some(known) => Err(Cause::Duplicate(known)),
        None => Ok(()),
    }
}

/// Judges which pseudo-header fields there are (RFC 9113 §8.3.1, §8.5, RFC 8441 §4).
fn check_pseudo(raw: &Raw, method: &Method) -> Result<(), Cause> {
    let pseudo = &raw.pseudo;
    if pseudo.status.is_some() {
        return Err(Cause::PseudoMisplaced(":status"));
    }
    match (method == &Method::CONNECT, raw.text(pseudo.protocol)) {
        (true, None) => {
            if pseudo.scheme.is_some() || pseudo.path.is_some() {
                return Err(Cause::PseudoMisplaced(":scheme or :path"));
            }
            if pseudo.authority.is_none() {
                return Err(Cause::PseudoMissing(":authority"));
            }
            return Ok(());
        }
        (false, Some(_)) => return Err(Cause::PseudoMisplaced(":protocol")),
        (true, Some(protocol)) if !protocol.eq_ignore_ascii_case(WEBSOCKET) => {
            return Err(Cause::Protocol);
        }
        _ => {}
    }
    if pseudo.scheme.is_none() {
        return Err(Cause::PseudoMissing(":scheme"));
    }
    match pseudo.path {
        Some(_) => Ok(()),
        None => Err(Cause::PseudoMissing(":path")),
    }
}

#[inline]
fn check_served(
    authority: &crate::authority::Authority,
    downstream: &Downstream,
) -> Result<(), Cause> {
    let hosts = &downstream.hosts;
    if hosts.is_empty() || hosts.iter().any(|pattern| pattern.covers(authority)) {
        return Ok(());
    }
    Err(Cause::Misdirected)
}
