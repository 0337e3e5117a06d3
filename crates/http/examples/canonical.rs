//! Reads a request head from standard input and prints what routes, policies and upstreams see of it:
//!
//! ```text
//! printf 'GET /a/../b HTTP/1.1\r\nHost: Example.com\r\nConnection: close\r\n\r\n' | cargo run -p lateen-http --example canonical
//! ```
#![forbid(unsafe_code)]

use std::error::Error;
use std::io::{Read, Write};

use bytes::Bytes;
use lateen_http::{
    Canonical, Downstream, FieldValue, Limits, PeerKind, RawRequest, Refusal, Rules, Scheme,
    Version,
};

fn main() -> Result<(), Box<dyn Error>> {
    let mut head = Vec::new();
    std::io::stdin().take(1 << 16).read_to_end(&mut head)?;
    let peer = Downstream::new(PeerKind::Edge, "198.51.100.7:40000".parse()?, Scheme::Http);
    let mut out = std::io::stdout().lock();
    match canonical(head.into(), &peer) {
        Ok(Canonical::Request(head)) => {
            writeln!(
                out,
                "{:?} {:?} for {}",
                head.method(),
                head.path(),
                head.client()
            )?;
            let mut lines = Vec::new();
            head.http2(|field| lines.push(format!("{field:?}")));
            lines
                .iter()
                .try_for_each(|line| writeln!(out, "  {line}"))?;
        }
        Ok(Canonical::Connect(head)) => writeln!(out, "CONNECT {}", head.authority())?,
        Err(refusal) => writeln!(out, "{}: {refusal}", refusal.status())?,
    }
    Ok(())
}

/// Splits the lines, as a codec does, and makes the one form.
fn canonical(bytes: Bytes, peer: &Downstream) -> Result<Canonical, Refusal> {
    let range = |part: &[u8]| {
        let start = part.as_ptr() as usize - bytes.as_ptr() as usize;
        start..start + part.len()
    };
    let mut lines = bytes
        .split(|&byte| byte == b'\n')
        .map(<[u8]>::trim_ascii_end);
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
    let mut id = || FieldValue::new("made-here").expect("it is printable");
    raw.frame()?.canonical(&Rules::default(), peer, &mut id)
}
