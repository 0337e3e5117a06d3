//! Heads and trailers of HTTP messages.

use std::net::{Ipv4Addr, SocketAddr};

use lateen_http::{
    Canonical, Downstream, FieldValue, Limits, PeerKind, RawRequest, RawTrailers, RequestHead,
    Rules, Scheme, Trailers, Version,
};

/// The head of a request.
pub fn head(method: &str, target: &str, fields: &[(&str, &str)]) -> RequestHead {
    let mut text = format!("{method}{target}");
    let target = method.len()..text.len();
    let mut spans = Vec::new();
    for (name, value) in [("host", "a:80")].iter().chain(fields) {
        let start = text.len();
        text.extend([*name, *value]);
        spans.push((start..start + name.len(), start + name.len()..text.len()));
    }
    let (method, limits) = (0..method.len(), Limits::default());
    let mut raw = RawRequest::http1(text.into(), method, target, Version::Http11, limits).unwrap();
    for (name, value) in spans {
        raw.field(name, value).unwrap();
    }
    let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    let here = Downstream::new(PeerKind::Mesh, here, Scheme::Http);
    let mut id = || FieldValue::new("id").unwrap();
    let framed = raw.frame().unwrap();
    match framed.canonical(&Rules::default(), &here, &mut id).unwrap() {
        Canonical::Request(head) => head,
        Canonical::Connect(_) => panic!("a request"),
    }
}

/// Trailers with a status of gRPC.
pub fn trailers(status: &str) -> Trailers {
    let text = format!("grpc-status{status}");
    let end = text.len();
    let mut raw = RawTrailers::new(text.into(), Version::Http11, Limits::default()).unwrap();
    raw.field(0..11, 11..end).unwrap();
    raw.canonical()
}
