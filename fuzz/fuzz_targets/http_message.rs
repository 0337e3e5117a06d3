//! Any bytes as the head of a request over HTTP/1 or HTTP/2: what is accepted has one form, which this crate reads again as
//! itself, over either protocol.
//!
//! Parsers: message-heads
#![no_main]

use bytes::Bytes;
use lateen_http::*;
use libfuzzer_sys::fuzz_target;

fn downstream(kind: PeerKind) -> Downstream {
    Downstream::new(kind, "198.51.100.7:1".parse().expect("an address"), Scheme::Http)
}

fn canonical(raw: RawRequest, rules: &Rules, kind: PeerKind) -> Result<Canonical, Refusal> {
    let mut id = || FieldValue::new("id").expect("a value");
    raw.frame()?.canonical(rules, &downstream(kind), &mut id)
}

/// A list of names and values, each behind a length.
fn http2(mut data: &[u8], ends: bool, limits: Limits) -> Result<RawRequest, Refusal> {
    let mut buffer = Vec::new();
    let mut spans = Vec::new();
    while let [name, value, rest @ ..] = data {
        let name = rest.len().min(usize::from(*name));
        let value = (rest.len() - name).min(usize::from(*value));
        let start = buffer.len();
        buffer.extend_from_slice(&rest[..name + value]);
        spans.push((start..start + name, start + name..buffer.len()));
        data = &rest[name + value..];
    }
    let mut raw = RawRequest::http2(buffer.into(), ends, limits)?;
    spans.into_iter().try_for_each(|(name, value)| raw.field(name, value))?;
    Ok(raw)
}

/// Lines: the request line, then fields. The codec would refuse more.
fn http1(data: &[u8]) -> Option<Result<RawRequest, Refusal>> {
    let bytes = Bytes::copy_from_slice(data);
    let end = data.iter().position(|&byte| byte == b'\n')?;
    let first = data[..end].iter().position(|&byte| byte == b' ')?;
    let last = data[..end].iter().rposition(|&byte| byte == b' ').filter(|&last| last > first)?;
    let version = match Version::parse(&data[last + 1..end]) {
        Ok(version) => version,
        Err(refusal) => return Some(Err(refusal)),
    };
    let raw = RawRequest::http1(bytes, 0..first, first + 1..last, version, Limits::default());
    let mut at = end + 1;
    Some(raw.and_then(|mut raw| {
        for line in data[at..].split(|&byte| byte == b'\n') {
            if let Some(colon) = line.iter().position(|&byte| byte == b':') {
                raw.field(at..at + colon, at + colon + 1..at + line.len())?;
            }
            at += line.len() + 1;
        }
        Ok(raw)
    }))
}

fn check(head: &RequestHead, rules: &Rules) {
    let path = head.path().target();
    assert!(path.starts_with(b"/") || path == b"*");
    assert!(path.iter().all(u8::is_ascii_graphic) && !path.contains(&b'#'));
    assert!(head.path().as_bytes().split(|&byte| byte == b'/').all(|segment| segment != b".." && segment != b"."));
    for field in head.fields().iter() {
        assert!(!field.value().iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n')));
        assert!(!matches!(field.known(), Some(Known::Host | Known::Connection | Known::TransferEncoding | Known::Upgrade)));
    }
    // Over HTTP/2, and read again. The mesh adds nothing to its own heads.
    let mut data = Vec::new();
    let mut is_small = true;
    head.http2(|field| {
        is_small &= field.name().len() < 256 && field.value().len() < 256;
        data.extend([field.name().len() as u8, field.value().len() as u8]);
        data.extend([field.name(), field.value()].concat());
    });
    if !is_small {
        return;
    }
    let ends = head.length() == Length::None;
    // The first reading adds fields, such as an identifier of the request, to the most that a client may send.
    let most = Limits::default();
    let limits = Limits { fields: most.fields + 10, ..most };
    let again = http2(&data, ends, limits).and_then(|raw| canonical(raw, rules, PeerKind::Mesh));
    let Ok(Canonical::Request(again)) = again else { panic!("{head:?} became {again:?}") };
    assert_eq!((head.method(), head.authority(), head.path()), (again.method(), again.authority(), again.path()));
    let list = |head: &RequestHead| -> Vec<_> {
        head.fields().iter().map(|field| (field.name().to_ascii_lowercase(), field.value().to_vec())).collect()
    };
    assert_eq!(list(head), list(&again));
}

fuzz_target!(|data: &[u8]| {
    let Some((&choice, data)) = data.split_first() else { return };
    let levels = [PathLevel::None, PathLevel::Base, PathLevel::MergeSlashes, PathLevel::DecodeAndMergeSlashes];
    let parameters = [Parameters::Keep, Parameters::Drop, Parameters::Refuse];
    let path = PathRules {
        level: levels[usize::from(choice & 3)],
        parameters: parameters[usize::from(choice >> 2 & 3) % 3],
    };
    let trust = if choice & 16 == 0 { Trust::waypoint() } else { Trust::gateway(choice >> 5) };
    let kind = if choice & 16 == 0 { PeerKind::Mesh } else { PeerKind::Edge };
    let raw = if data.starts_with(&[7]) { Some(http2(data, choice & 32 == 0, Limits::default())) } else { http1(data) };
    let Some(Ok(raw)) = raw else { return };
    let rules = Rules { path, trust };
    if let Ok(Canonical::Request(head)) = canonical(raw, &rules, kind) {
        check(&head, &Rules { path, trust: Trust::waypoint() });
    }
});
