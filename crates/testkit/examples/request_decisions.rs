//! Decisions of a waypoint about requests, for tests/oracle: wire resources and the bytes of heads in, decisions in words out.
//!
//! Each line of standard input is one of these. Resources and heads are hexadecimal digits, and `-` stands for what is missing:
//!
//! ```text
//! gateway NAMESPACE/NAME RESOURCE
//! policy NAMESPACE/NAME RESOURCE
//! request PEER SOURCE DESTINATION SNI HEAD
//! end
//! ```
//!
//! The proxy is that of the Gateway `shop/way`, and requests are for the service `shop/web.shop.svc.cluster.local`. `end` removes all
//! resources. Each request is answered by a line: the decision, and the AUDIT policies that match behind a vertical bar.
#![forbid(unsafe_code)]

use std::error::Error;
use std::io::{BufRead, BufWriter, Write};
use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use lateen_config::l7::{AUTHORIZATION, GATEWAY, Gateway, PathNormalization};
use lateen_config::{Batch, Kind, Store};
use lateen_http::{
    Canonical, Downstream, FieldName, FieldValue, Limits, PathLevel, PathRules, PeerKind,
    RawRequest, Refusal, RequestHead, Rules, Scheme, Trust, Version,
};
use lateen_policy::request::{
    PeerFacts, RequestDecision, RequestDenial, RequestFacts, RequestPolicies,
};
use lateen_types::{Identity, NamespacedName, VerifiedPeer};

fn main() -> Result<(), Box<dyn Error>> {
    let service = NamespacedName::new("shop", "web.shop.svc.cluster.local");
    let gateway = NamespacedName::new("shop", "way");
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut store = empty();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["gateway", name, resource] => put(&mut store, &GATEWAY, name, resource)?,
            ["policy", name, resource] => put(&mut store, &AUTHORIZATION, name, resource)?,
            ["request", peer, source, destination, sni, head] => {
                let snapshot = store.snapshot();
                let policies = &snapshot.request_rules(Some(&service)).policies;
                let peer = (peer != "-").then(|| verified(peer)).transpose()?;
                let facts = PeerFacts {
                    peer: peer.as_ref(),
                    source_ip: source.parse()?,
                    destination: destination.parse()?,
                    sni: (sni != "-").then_some(sni.as_bytes()),
                };
                let level = level(snapshot.gateway(&gateway));
                writeln!(
                    out,
                    "{}",
                    decide(policies, &facts, bytes(head)?.into(), level)
                )?;
            }
            ["end"] => store = empty(),
            _ => return Err(format!("cannot read the line {line:?}").into()),
        }
    }
    out.flush()?;
    Ok(())
}

/// The store of a proxy without resources.
fn empty() -> Store {
    Store::new("", None).of_gateway(NamespacedName::new("shop", "way"))
}

fn put(
    store: &mut Store,
    kind: &'static Kind,
    name: &str,
    resource: &str,
) -> Result<(), Box<dyn Error>> {
    let refused = store.apply(&Batch {
        upserts: vec![(name.into(), bytes(resource)?.into())],
        ..Batch::new(kind)
    });
    match refused.first() {
        Some(refused) => Err(format!("{name}: {refused}").into()),
        None => Ok(()),
    }
}

fn verified(principal: &str) -> Result<VerifiedPeer, Box<dyn Error>> {
    let parts: Vec<&str> = principal.split('/').collect();
    let [domain, "ns", namespace, "sa", account] = parts[..] else {
        return Err(format!("{principal:?} is no principal").into());
    };
    let identity = Identity::new(domain, namespace, account)?;
    Ok(VerifiedPeer::by_certificate(identity))
}

/// The normalisation of paths that the Gateway's mesh has.
fn level(gateway: Option<&Gateway>) -> PathLevel {
    match gateway.map(|gateway| gateway.settings.path_normalization) {
        Some(PathNormalization::Base) | None => PathLevel::Base,
        Some(PathNormalization::None) => PathLevel::None,
        Some(PathNormalization::MergeSlashes) => PathLevel::MergeSlashes,
        Some(PathNormalization::DecodeAndMergeSlashes) => PathLevel::DecodeAndMergeSlashes,
    }
}

/// The decision in words.
fn decide(
    policies: &RequestPolicies,
    peer: &PeerFacts<'_>,
    head: Bytes,
    level: PathLevel,
) -> String {
    let head = match canonical(head, peer.source_ip, level) {
        Ok(Canonical::Request(head)) => head,
        Ok(Canonical::Connect(_)) => return "refused: a CONNECT".to_owned(),
        Err(refusal) => return format!("refused: {} {refusal}", refusal.status()),
    };
    let (bits, facts) = (policies.peer(peer), Facts(&head));
    let decision = match policies.decide(&bits, &facts) {
        RequestDecision::Allow { by: None } => "allow".to_owned(),
        RequestDecision::Allow { by: Some(name) } => format!("allow {name}"),
        RequestDecision::Deny { by } => match by {
            RequestDenial::Custom(name) => format!("custom {name}"),
            RequestDenial::Policy(name) => format!("deny {name}"),
            RequestDenial::Unknown(name) => format!("unknown {name}"),
            RequestDenial::NoAllowMatched => "none".to_owned(),
            RequestDenial::OtherPeer => "other peer".to_owned(),
        },
    };
    let audited = policies.reports(&bits, &facts).audited;
    let audited: Vec<String> = audited.iter().map(ToString::to_string).collect();
    format!("{decision}|{}", audited.join(" "))
}

/// Splits the lines of a head, as a codec does, and makes the one form by the rules of a waypoint.
fn canonical(bytes: Bytes, source: IpAddr, level: PathLevel) -> Result<Canonical, Refusal> {
    let range = |part: &[u8]| {
        let start = part.as_ptr() as usize - bytes.as_ptr() as usize;
        start..start + part.len()
    };
    let mut lines = bytes
        .split(|&byte| byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let mut words = lines
        .next()
        .unwrap_or_default()
        .splitn(3, |&byte| byte == b' ');
    let mut word = || words.next().unwrap_or_default();
    let (method, target, version) = (range(word()), range(word()), Version::parse(word())?);
    let mut raw = RawRequest::http1(bytes.clone(), method, target, version, Limits::default())?;
    for line in lines.filter(|line| !line.is_empty()) {
        let colon = line.iter().position(|&byte| byte == b':');
        let (name, value) = line.split_at(colon.unwrap_or(line.len()));
        raw.field(range(name), range(value.get(1..).unwrap_or_default()))?;
    }
    let rules = Rules {
        path: PathRules {
            level,
            ..PathRules::default()
        },
        trust: Trust::waypoint(),
    };
    let peer = SocketAddr::new(source, 40_000);
    let peer = Downstream::new(PeerKind::Mesh, peer, Scheme::Http);
    let mut id = || FieldValue::new("made-here").expect("it is printable");
    raw.frame()?.canonical(&rules, &peer, &mut id)
}

/// A request, as the waypoint shows it to policies.
struct Facts<'a>(&'a RequestHead);

impl RequestFacts for Facts<'_> {
    fn authority(&self) -> &[u8] {
        self.0.authority().as_bytes()
    }

    fn method(&self) -> &[u8] {
        self.0.method().as_bytes()
    }

    fn path(&self) -> &[u8] {
        self.0.path().as_bytes()
    }

    fn target(&self) -> &[u8] {
        self.0.path().target()
    }

    fn scheme(&self) -> &[u8] {
        self.0.scheme().as_str().as_bytes()
    }

    fn fields<'a>(&'a self, name: &'a FieldName) -> impl Iterator<Item = &'a [u8]> {
        self.0.fields().named(name)
    }

    fn may_have(&self, name: &FieldName) -> bool {
        self.0.fields().may_have(name)
    }

    fn remote_ip(&self) -> IpAddr {
        self.0.client()
    }

    fn token_present(&self) -> bool {
        false
    }
}

/// Reads hexadecimal digits.
fn bytes(digits: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?))
        .collect()
}
