//! What policies say about the requests of a stream: the engine of `lateen_policy`, asked in this role's terms.

use std::cell::RefCell;
use std::net::IpAddr;

use lateen_config::l7::RequestRules;
use lateen_http::{Canonical, FieldName, Known, WebSocketKey};
use lateen_policy::request::{
    PeerBits, PeerFacts, RequestDecision, RequestDenial, RequestFacts, RequestPolicies, TokenPlaces,
};
use lateen_types::NamespacedName;

use super::head;

/// The verdict about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It goes on.
    Admitted,
    /// 403.
    Denied {
        /// The policy that decided, where one did.
        policy: Option<NamespacedName>,
        /// The sentence for the log.
        reason: String,
    },
    /// 401: it carries a token, and tokens are not verified yet.
    TokenRefused,
}

/// The sentence for a request with a token where tokens are looked for.
pub(super) const TOKEN_REFUSED: &str = "the request carries a token, and tokens are not verified yet: a RequestAuthentication refuses all";

impl Verdict {
    /// The policy that refuses, where one decided, and the sentence for the log; none of what goes on.
    pub(super) fn denial(self) -> Option<(Option<NamespacedName>, String)> {
        match self {
            Self::Admitted => None,
            Self::Denied { policy, reason } => Some((policy, reason)),
            Self::TokenRefused => Some((None, TOKEN_REFUSED.to_owned())),
        }
    }
}

/// The peer of a stream, as the policies in force have judged it: once for all of its requests.
#[derive(Debug, Default)]
pub(super) struct Judge(RefCell<Option<PeerBits>>);

impl Judge {
    /// Decides about a request. A CUSTOM policy comes before the check of tokens, which comes before all others.
    pub(super) fn request(
        &self,
        rules: &RequestRules,
        peer: &PeerFacts<'_>,
        head: &Canonical,
    ) -> Verdict {
        let facts = Facts {
            head,
            places: &rules.tokens,
        };
        let mut bits = self.0.borrow_mut();
        let bits = judged(&mut bits, &rules.policies, peer);
        report(&rules.policies, bits, &facts);
        decide(rules, peer, bits, &facts)
    }

    /// Decides anew about a request that has become a relay. Nothing is reported once more.
    pub(super) fn request_again(
        &self,
        rules: &RequestRules,
        peer: &PeerFacts<'_>,
        head: &Canonical,
    ) -> Verdict {
        let facts = Facts {
            head,
            places: &rules.tokens,
        };
        let mut bits = self.0.borrow_mut();
        let bits = judged(&mut bits, &rules.policies, peer);
        decide(rules, peer, bits, &facts)
    }

    /// Decides anew about a connection that is relayed. Nothing is reported once more.
    pub(super) fn stream_again(rules: &RequestRules, peer: &PeerFacts<'_>) -> Verdict {
        let bits = rules.streams.peer(peer);
        verdict(rules.streams.decide(&bits, &NoRequest(peer.source_ip)))
    }

    /// Decides about a connection whose requests nobody reads.
    pub(super) fn stream(rules: &RequestRules, peer: &PeerFacts<'_>) -> Verdict {
        let bits = rules.streams.peer(peer);
        let facts = NoRequest(peer.source_ip);
        report(&rules.streams, &bits, &facts);
        verdict(rules.streams.decide(&bits, &facts))
    }
}

/// Decides about a request by policies that have judged its peer, and by token rules.
fn decide(
    rules: &RequestRules,
    peer: &PeerFacts<'_>,
    bits: &PeerBits,
    facts: &Facts<'_>,
) -> Verdict {
    let decision = rules.policies.decide(bits, facts);
    let is_custom = matches!(
        decision,
        RequestDecision::Deny {
            by: RequestDenial::Custom(_)
        }
    );
    if !is_custom && rules.refuses_tokens && facts.token_present() {
        return Verdict::TokenRefused;
    }
    match (verdict(decision), facts.head) {
        (Verdict::Admitted, Canonical::Connect(_)) => decide_tunnel(rules, peer),
        (verdict, _) => verdict,
    }
}

/// Decides about the tunnel of a CONNECT that is admitted. Nobody reads the requests in it, so a rule that refuses some of them
/// refuses the tunnel. ALLOW policies have decided about the CONNECT itself.
fn decide_tunnel(rules: &RequestRules, peer: &PeerFacts<'_>) -> Verdict {
    if rules.refuses_tokens {
        return Verdict::Denied {
            policy: None,
            reason:
                "requests are searched for tokens, and those in the tunnel of a CONNECT cannot be"
                    .to_owned(),
        };
    }
    let bits = rules.streams.peer(peer);
    match rules.streams.decide(&bits, &NoRequest(peer.source_ip)) {
        RequestDecision::Deny {
            by: RequestDenial::NoAllowMatched,
        } => Verdict::Admitted,
        decision => verdict(decision),
    }
}

/// The bits of the peer. They are judged anew when the policies have changed.
fn judged<'b>(
    bits: &'b mut Option<PeerBits>,
    policies: &RequestPolicies,
    peer: &PeerFacts<'_>,
) -> &'b PeerBits {
    if bits.as_ref().is_none_or(|bits| !policies.judged(bits)) {
        *bits = None;
    }
    bits.get_or_insert_with(|| policies.peer(peer))
}

/// Writes what AUDIT policies and policies in dry run say to the log.
fn report(policies: &RequestPolicies, bits: &PeerBits, facts: &impl RequestFacts) {
    if !policies.has_reports() {
        return;
    }
    let reports = policies.reports(bits, facts);
    for name in reports.audited {
        tracing::info!(target: "policy", policy = %name, "audited");
    }
    for hit in reports.dry_run {
        tracing::info!(target: "policy", "{hit}");
    }
}

fn verdict(decision: RequestDecision<'_>) -> Verdict {
    match decision {
        RequestDecision::Allow { .. } => Verdict::Admitted,
        RequestDecision::Deny { by } => Verdict::Denied {
            policy: match &by {
                RequestDenial::Custom(name) | RequestDenial::Policy(name) => Some((*name).clone()),
                RequestDenial::Unknown(name) => name.parse().ok(),
                RequestDenial::NoAllowMatched | RequestDenial::OtherPeer => None,
            },
            reason: by.to_string(),
        },
    }
}

/// A request, as policies see it.
struct Facts<'a> {
    head: &'a Canonical,
    places: &'a TokenPlaces,
}

impl RequestFacts for Facts<'_> {
    fn authority(&self) -> &[u8] {
        head::authority(self.head).as_bytes()
    }

    fn method(&self) -> &[u8] {
        head::method(self.head)
    }

    fn path(&self) -> &[u8] {
        match self.head {
            Canonical::Request(head) => head.path().as_bytes(),
            Canonical::Connect(_) => b"",
        }
    }

    fn target(&self) -> &[u8] {
        match self.head {
            Canonical::Request(head) => head.path().target(),
            Canonical::Connect(_) => b"",
        }
    }

    fn scheme(&self) -> &[u8] {
        match self.head {
            Canonical::Request(head) => head.scheme().as_str().as_bytes(),
            Canonical::Connect(_) => b"",
        }
    }

    fn fields<'a>(&'a self, name: &'a FieldName) -> impl Iterator<Item = &'a [u8]> {
        head::fields(self.head)
            .named(name)
            .chain(of_handshake(self.head, name))
    }

    fn may_have(&self, name: &FieldName) -> bool {
        head::fields(self.head).may_have(name) || head::is_upgrade(self.head)
    }

    fn remote_ip(&self) -> IpAddr {
        match self.head {
            Canonical::Request(head) => head.client(),
            Canonical::Connect(head) => head.client(),
        }
    }

    fn token_present(&self) -> bool {
        self.places.has_token(self)
    }
}

/// A field of a WebSocket handshake, which the one form of a head has elsewhere. Rules see it as Envoy's do: without it, a DENY of
/// `upgrade` would match nothing.
fn of_handshake<'a>(head: &'a Canonical, name: &FieldName) -> Option<&'a [u8]> {
    if !head::is_upgrade(head) {
        return None;
    }
    match name.known()? {
        Known::Connection => Some(b"upgrade"),
        Known::Upgrade => Some(b"websocket"),
        Known::SecWebsocketKey => head::websocket_key(head).map(WebSocketKey::as_bytes),
        _ => None,
    }
}

/// A connection without requests, from this address.
struct NoRequest(IpAddr);

impl RequestFacts for NoRequest {
    fn authority(&self) -> &[u8] {
        b""
    }

    fn method(&self) -> &[u8] {
        b""
    }

    fn path(&self) -> &[u8] {
        b""
    }

    fn target(&self) -> &[u8] {
        b""
    }

    fn scheme(&self) -> &[u8] {
        b""
    }

    fn fields<'a>(&'a self, _: &'a FieldName) -> impl Iterator<Item = &'a [u8]> {
        std::iter::empty()
    }

    fn remote_ip(&self) -> IpAddr {
        self.0
    }

    fn token_present(&self) -> bool {
        false
    }
}
