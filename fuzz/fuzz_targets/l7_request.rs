//! Any policies of one attribute each, and any request: never a panic, and the decision of all is that which each of them makes alone:
//! a DENY that matches refuses, else an ALLOW that matches admits, if there is one. A token is where a plain look finds it.
//!
//! Lines up to an empty one are policies, of alternatives with `|` between: `A` or `D` for the action, `p` (path), `t` (template), `h`
//! (host), `m` (method) or `f` (field), then `=`, `<`, `>` or `*`, and the text. Behind it stand method, authority, target and the
//! value of a field.
#![no_main]

use std::net::IpAddr;

use lateen_config::{Batch, ServiceKey, Store, l7};
use lateen_http::FieldName;
use lateen_policy::request::{PeerFacts, RequestFacts, TokenPlaces};
use lateen_proto::l7::{
    Action, Authorization, Condition, Operation, PathMatch, Rule, StringMatch, Target, Value, condition, path_match, string_match, target, value,
};
use libfuzzer_sys::fuzz_target;
use prost::Message as _;

const GATEWAY: &str = "shop/gateway";
const SERVICE: &str = "shop/web";
/// More of them show nothing else.
const POLICIES: usize = 12;

struct Request<'a> {
    method: &'a [u8],
    authority: &'a [u8],
    target: &'a [u8],
    value: &'a [u8],
}

impl RequestFacts for Request<'_> {
    fn authority(&self) -> &[u8] {
        self.authority
    }

    fn method(&self) -> &[u8] {
        self.method
    }

    fn path(&self) -> &[u8] {
        self.target.split(|&byte| byte == b'?').next().unwrap_or_default()
    }

    fn target(&self) -> &[u8] {
        self.target
    }

    fn scheme(&self) -> &[u8] {
        b"http"
    }

    fn fields<'a>(&'a self, _: &'a FieldName) -> impl Iterator<Item = &'a [u8]> {
        [self.value].into_iter()
    }

    fn remote_ip(&self) -> IpAddr {
        [203, 0, 113, 9].into()
    }

    fn token_present(&self) -> bool {
        false
    }
}

/// One alternative of a rule.
fn rule(text: &[u8]) -> Option<Rule> {
    let [attribute, form, pattern @ ..] = text else { return None };
    let pattern = String::from_utf8(pattern.to_vec()).ok()?;
    let form = match form {
        b'=' => string_match::Match::Exact(pattern.clone()),
        b'<' => string_match::Match::Prefix(pattern.clone()),
        b'>' => string_match::Match::Suffix(pattern.clone()),
        _ => string_match::Match::Present(true),
    };
    let text = StringMatch { r#match: Some(form) };
    let mut operation = Operation::default();
    match attribute {
        b'p' => operation.paths.push(PathMatch { r#match: Some(path_match::Match::Text(text)) }),
        b't' => operation.paths.push(PathMatch { r#match: Some(path_match::Match::Template(pattern)) }),
        b'h' => operation.hosts.push(text),
        b'm' => operation.methods.push(text),
        _ => {
            let condition = Condition {
                attribute: Some(condition::Attribute::Header("x-a".to_owned())),
                values: vec![Value { value: Some(value::Value::Text(text)) }],
                ..Condition::default()
            };
            return Some(Rule { when: vec![condition], ..Rule::default() });
        }
    }
    Some(Rule { to: vec![operation], ..Rule::default() })
}

fn policy(number: usize, line: &[u8]) -> Option<Authorization> {
    let (action, rest) = line.split_first()?;
    let rules: Option<Vec<Rule>> = rest.split(|&byte| byte == b'|').map(rule).collect();
    Some(Authorization {
        namespace: "shop".to_owned(),
        name: format!("p{number}"),
        targets: vec![Target { target: Some(target::Target::Service(SERVICE.to_owned())) }],
        action: if *action == b'D' { Action::Deny } else { Action::Allow }.into(),
        rules: rules?,
        ..Authorization::default()
    })
}

/// True if these policies admit the request. None if one of them is refused.
fn allows(policies: &[Authorization], request: &Request<'_>) -> Option<bool> {
    let mut store = Store::new("", None).of_gateway(GATEWAY.parse().expect("a name"));
    let upserts = policies.iter().map(|policy| (format!("shop/{}", policy.name).into(), policy.encode_to_vec().into()));
    let refused = store.apply(&Batch { upserts: upserts.collect(), ..Batch::new(&l7::AUTHORIZATION) });
    let service: ServiceKey = SERVICE.parse().expect("a key");
    let snapshot = store.snapshot();
    let policies = &snapshot.request_rules(Some(&service)).policies;
    let peer = policies.peer(&PeerFacts { peer: None, source_ip: [10, 0, 0, 1].into(), destination: ([10, 96, 0, 1], 80).into(), sni: None });
    let _ = policies.reports(&peer, request);
    let decision = policies.decide(&peer, request).is_allow();
    refused.is_empty().then_some(decision)
}

/// Looks for the parameter `access_token` and for a bearer token, in as few words as there are.
fn has_token(request: &Request<'_>) -> bool {
    let query = request.target.iter().position(|&byte| byte == b'?').map(|at| &request.target[at + 1..]);
    let is_param = |pair: &[u8]| {
        let (mut name, mut rest) = (Vec::new(), pair.split(|&byte| byte == b'=').next().unwrap_or_default());
        while let Some((&byte, behind)) = rest.split_first() {
            let code = behind.get(..2).and_then(|code| std::str::from_utf8(code).ok());
            let code = code.filter(|code| byte == b'%' && code.bytes().all(|digit| digit.is_ascii_hexdigit()));
            let decoded = code.and_then(|code| u8::from_str_radix(code, 16).ok());
            name.push(decoded.unwrap_or(if byte == b'+' { b' ' } else { byte }));
            rest = if decoded.is_some() { &behind[2..] } else { behind };
        }
        name == b"access_token"
    };
    let is_bearer = request.value.to_ascii_lowercase().windows(6).any(|window| window == b"bearer");
    is_bearer || query.is_some_and(|query| query.split(|&byte| byte == b'&').any(is_param))
}

fuzz_target!(|data: &[u8]| {
    let mut lines = data.split(|&byte| byte == b'\n');
    let policies: Option<Vec<_>> =
        lines.by_ref().take_while(|line| !line.is_empty()).take(POLICIES).enumerate().map(|(n, line)| policy(n, line)).collect();
    let Some(policies) = policies else { return };
    let mut next = || lines.next().unwrap_or_default();
    let request = Request { method: next(), authority: next(), target: next(), value: next() };
    assert_eq!(TokenPlaces::default().has_token(&request), has_token(&request));
    let Some(together) = allows(&policies, &request) else { return };
    let is_deny = |policy: &&Authorization| policy.action() == Action::Deny;
    let alone = |policy: &Authorization| allows(std::slice::from_ref(policy), &request).expect("it was taken with others");
    let denies = policies.iter().filter(is_deny).all(alone);
    let mut allowing = policies.iter().filter(|policy| !is_deny(policy)).peekable();
    let admits = allowing.peek().is_none() || allowing.any(alone);
    assert_eq!(together, denies && admits, "{policies:?}");
});
