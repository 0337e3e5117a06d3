//! Heads from text, as the codecs hand them over: one buffer, and spans.
#![allow(dead_code)]

use std::net::SocketAddr;

use bytes::Bytes;
use lateen_http::*;

pub fn range(whole: &[u8], part: &[u8]) -> std::ops::Range<usize> {
    let start = part.as_ptr() as usize - whole.as_ptr() as usize;
    start..start + part.len()
}

/// The name and the value of a field line.
type Line<'a> = (&'a [u8], &'a [u8]);

/// Splits the lines of a head. The fields keep the white space around their values.
pub fn split(head: &[u8]) -> (&[u8], Vec<Line<'_>>) {
    let mut lines = head
        .split(|&byte| byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
        .filter(|line| !line.is_empty());
    let start = lines.next().unwrap_or_default();
    let fields = lines.map(|line| {
        let colon = line.iter().position(|&byte| byte == b':').expect("a colon");
        (&line[..colon], &line[colon + 1..])
    });
    (start, fields.collect())
}

pub fn raw1(head: &[u8]) -> Result<RawRequest, Refusal> {
    raw1_over(&Bytes::copy_from_slice(head))
}

/// A request over a read buffer.
pub fn raw1_over(bytes: &Bytes) -> Result<RawRequest, Refusal> {
    let (line, fields) = split(bytes);
    let first = line
        .iter()
        .position(|&byte| byte == b' ')
        .expect("a method");
    let last = line
        .iter()
        .rposition(|&byte| byte == b' ')
        .expect("a version");
    let version = Version::parse(&line[last + 1..])?;
    let (method, target) = (&line[..first], &line[first + 1..last]);
    let (method, target) = (range(bytes, method), range(bytes, target));
    let mut raw = RawRequest::http1(bytes.clone(), method, target, version, Limits::default())?;
    for (name, value) in fields {
        raw.field(range(bytes, name), range(bytes, value))?;
    }
    Ok(raw)
}

pub fn buffer(fields: &[(&[u8], &[u8])]) -> (Bytes, Vec<[std::ops::Range<usize>; 2]>) {
    let mut buffer = Vec::new();
    let mut spans = Vec::new();
    for (name, value) in fields {
        let start = buffer.len();
        buffer.extend_from_slice(name);
        let middle = buffer.len();
        buffer.extend_from_slice(value);
        spans.push([start..middle, middle..buffer.len()]);
    }
    (buffer.into(), spans)
}

pub fn raw2(fields: &[(&[u8], &[u8])], ends: bool) -> Result<RawRequest, Refusal> {
    let (bytes, spans) = buffer(fields);
    let mut raw = RawRequest::http2(bytes, ends, Limits::default())?;
    for [name, value] in spans {
        raw.field(name, value)?;
    }
    Ok(raw)
}

pub fn bytes<'a>(fields: &[(&'a str, &'a str)]) -> Vec<(&'a [u8], &'a [u8])> {
    let pair = |(name, value): &(&'a str, &'a str)| (name.as_bytes(), value.as_bytes());
    fields.iter().map(pair).collect()
}

pub fn response1(status: u16, fields: &[(&str, &str)]) -> Result<RawResponse, Refusal> {
    let (buffer, spans) = buffer(&bytes(fields));
    let status = Status::new(status).expect("three digits");
    let mut raw = RawResponse::http1(buffer, status, Version::Http11, Limits::default())?;
    for [name, value] in spans {
        raw.field(name, value)?;
    }
    Ok(raw)
}

pub fn response2(fields: &[(&str, &str)], ends: bool) -> Result<RawResponse, Refusal> {
    let (buffer, spans) = buffer(&bytes(fields));
    let mut raw = RawResponse::http2(buffer, ends, Limits::default())?;
    for [name, value] in spans {
        raw.field(name, value)?;
    }
    Ok(raw)
}

pub fn peer(kind: PeerKind) -> Downstream {
    let address: SocketAddr = "198.51.100.7:40000".parse().expect("an address");
    Downstream::new(kind, address, Scheme::Http)
}

pub const ID: &str = "5b7f3c1e-8a5b-4f53-9c0e-0e2ab1a0d5f3";

pub fn canonical_of(
    raw: RawRequest,
    rules: &Rules,
    downstream: &Downstream,
) -> Result<Canonical, Refusal> {
    let mut id = || FieldValue::new(ID).expect("a value");
    raw.frame()?.canonical(rules, downstream, &mut id)
}

pub fn head(canonical: Canonical) -> RequestHead {
    match canonical {
        Canonical::Request(head) => head,
        Canonical::Connect(head) => panic!("a request: {head:?}"),
    }
}

/// The head of an HTTP/1 request from the mesh, under default rules.
pub fn request1(text: &str) -> Result<RequestHead, Refusal> {
    let raw = raw1(text.as_bytes())?;
    canonical_of(raw, &Rules::default(), &peer(PeerKind::Mesh)).map(head)
}

/// The head of an HTTP/2 request from the mesh, under default rules.
pub fn request2(fields: &[(&str, &str)]) -> Result<RequestHead, Refusal> {
    let raw = raw2(&bytes(fields), true)?;
    canonical_of(raw, &Rules::default(), &peer(PeerKind::Mesh)).map(head)
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn listed(fields: &Fields) -> Vec<(String, String)> {
    let pair = |field: Field<'_>| (text(field.name()), text(field.value()));
    fields.iter().map(pair).collect()
}

pub fn pairs(fields: &[(&str, &str)]) -> Vec<(String, String)> {
    fields
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect()
}

pub fn http2_of(head: &RequestHead) -> Vec<(String, String)> {
    let mut out = Vec::new();
    head.http2(|field| out.push((text(field.name()), text(field.value()))));
    out
}

pub fn http1_of(head: &RequestHead, key: Option<&WebSocketKey>) -> Option<Vec<(String, String)>> {
    let mut out = Vec::new();
    head.http1(key, |field| {
        out.push((text(field.name()), text(field.value())))
    })?;
    Some(out)
}
