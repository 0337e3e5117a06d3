//! The cores of the message model for tests/bench/instructions.sh: each runs a thousand times inside its measured function.
#![forbid(unsafe_code)]

use std::hint::black_box;
use std::ops::Range;

use bytes::Bytes;
use lateen_http::*;

const RUNS: usize = 1000;

/// Ten fields, as a browser behind a proxy sends them.
const FIELDS: [(&str, &str); 10] = [
    ("host", "details.default.svc.cluster.local:9080"),
    ("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:128.0)"),
    ("accept", "text/html,application/xhtml+xml,*/*;q=0.8"),
    ("accept-encoding", "gzip, deflate, br"),
    ("accept-language", "en-US,en;q=0.5"),
    ("cookie", "session=eyJ1c2VyIjoibm9ybWFsIn0"),
    ("x-forwarded-for", "10.244.1.2"),
    ("x-forwarded-proto", "http"),
    ("x-request-id", "5b7f3c1e-8a5b-4f53-9c0e-0e2ab1a0d5f3"),
    (
        "traceparent",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    ),
];

fn main() {
    let core = std::env::args().nth(1).unwrap_or_default();
    let head = Head::new();
    let framed = || -> Vec<_> {
        (0..RUNS)
            .map(|_| head.raw().frame().expect("it is good"))
            .collect()
    };
    let peer = |kind| {
        let address = "198.51.100.7:40000".parse().expect("an address");
        Downstream::new(kind, address, Scheme::Http)
    };
    match core.as_str() {
        "http_lookup" => measured_http_lookup(
            &Known::of(b"x-request-id")
                .map(FieldName::from)
                .expect("known"),
        ),
        "http_field" => measured_http_field(&canonical(
            head.raw().frame().expect("good"),
            &Rules::default(),
            &peer(PeerKind::Mesh),
        )),
        "http_raw" => measured_http_raw(&head),
        "http_canonical" => measured_http_canonical(framed(), &peer(PeerKind::Mesh)),
        "http_edge" => measured_http_edge(framed(), &peer(PeerKind::Edge)),
        "http_to_http2" => measured_http_to_http2(&canonical(
            head.raw().frame().expect("good"),
            &Rules::default(),
            &peer(PeerKind::Mesh),
        )),
        _ => {
            panic!("http_lookup, http_field, http_raw, http_canonical, http_edge or http_to_http2")
        }
    }
}

/// A head as a codec hands it over.
struct Head {
    bytes: Bytes,
    method: Range<usize>,
    target: Range<usize>,
    fields: Vec<(Range<usize>, Range<usize>)>,
}

impl Head {
    fn new() -> Head {
        let mut text = "GET /productpage?u=normal HTTP/1.1\r\n".to_owned();
        let mut fields = Vec::new();
        for (name, value) in FIELDS {
            let start = text.len();
            text.push_str(&format!("{name}: {value}\r\n"));
            let middle = start + name.len();
            fields.push((start..middle, middle + 2..text.len() - 2));
        }
        // A read buffer is shared: slices of it count references.
        let bytes = Bytes::from(text.into_bytes());
        drop(bytes.clone());
        Head {
            bytes,
            method: 0..3,
            target: 4..25,
            fields,
        }
    }

    #[inline(never)]
    fn raw(&self) -> RawRequest {
        let (method, target) = (self.method.clone(), self.target.clone());
        let raw = RawRequest::http1(
            self.bytes.clone(),
            method,
            target,
            Version::Http11,
            Limits::default(),
        );
        let mut raw = raw.expect("it is good");
        for (name, value) in &self.fields {
            raw.field(name.clone(), value.clone()).expect("it is good");
        }
        raw
    }
}

fn canonical(framed: FramedRequest, rules: &Rules, downstream: &Downstream) -> RequestHead {
    let mut id =
        || FieldValue::new("5b7f3c1e-8a5b-4f53-9c0e-0e2ab1a0d5f3").expect("it is printable");
    match framed.canonical(rules, downstream, &mut id) {
        Ok(Canonical::Request(head)) => head,
        other => panic!("a request: {other:?}"),
    }
}

/// The number of a name: a thousand look-ups over ten names.
#[inline(never)]
fn measured_http_lookup(expected: &FieldName) {
    for _ in 0..RUNS / 10 {
        for (name, _) in black_box(&FIELDS) {
            black_box(Known::of(name.as_bytes()));
        }
    }
    assert!(expected.known().is_some());
}

/// The value of a field by its number.
#[inline(never)]
fn measured_http_field(head: &RequestHead) {
    for _ in 0..RUNS {
        black_box(black_box(head).fields().get(black_box(Known::Traceparent)));
    }
}

/// Ten fields taken, their names numbered and their values judged; and the head dropped.
#[inline(never)]
fn measured_http_raw(head: &Head) {
    for _ in 0..RUNS {
        black_box(head.raw());
    }
}

/// The one form of a request from the mesh.
#[inline(never)]
fn measured_http_canonical(framed: Vec<FramedRequest>, downstream: &Downstream) {
    let rules = Rules::default();
    for framed in framed {
        std::mem::forget(black_box(canonical(framed, &rules, downstream)));
    }
}

/// The one form of a request from outside, by the rules of a gateway.
#[inline(never)]
fn measured_http_edge(framed: Vec<FramedRequest>, downstream: &Downstream) {
    let rules = Rules {
        trust: Trust::gateway(1),
        ..Rules::default()
    };
    for framed in framed {
        std::mem::forget(black_box(canonical(framed, &rules, downstream)));
    }
}

/// The fields of an HTTP/2 request.
#[inline(never)]
fn measured_http_to_http2(head: &RequestHead) {
    for _ in 0..RUNS {
        head.http2(|field| {
            black_box(field);
        });
    }
}
