//! A client over TCP, without TLS: it makes one request and prints the answer.
//!
//! - `cargo run -p lateen-exchange --example client -- --h1` asks the `echo_server` of this crate.
//! - `cargo run -p lateen-exchange --example client -- --h2 127.0.0.1:8081 /path hello` sends content.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};

use bytes::Bytes;
use lateen_exchange::{Config, Protocol, client};
use lateen_http::{
    Canonical, Downstream, FieldValue, Limits, PeerKind, RawRequest, RequestHead, Rules, Scheme,
    Version,
};
use tokio::net::TcpStream;
use tokio::task::{LocalSet, spawn_local};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (protocol, rest) = match words.split_first() {
        Some((&"--h1", rest)) if rest.len() < 4 => (Protocol::Http1, rest),
        Some((&"--h2", rest)) if rest.len() < 4 => (Protocol::Http2, rest),
        _ => {
            eprintln!("usage: client --h1|--h2 [ADDRESS [PATH [CONTENT]]]");
            std::process::exit(64);
        }
    };
    let word = |at: usize, usual: &'static str| rest.get(at).copied().unwrap_or(usual).to_owned();
    let (address, path) = (word(0, "127.0.0.1:8080"), word(1, "/"));
    let content = word(2, "");
    LocalSet::new()
        .run_until(async {
            let tcp = TcpStream::connect(&address).await?;
            tcp.set_nodelay(true)?;
            let (handle, connection) = client::open(tcp, Config::new(protocol));
            let driver = spawn_local(connection);
            let asked = ask(&handle, &address, &path, &content).await;
            drop(handle);
            driver.await??;
            asked
        })
        .await
}

async fn ask(
    handle: &client::Handle,
    authority: &str,
    path: &str,
    content: &str,
) -> Result<(), Box<dyn Error>> {
    let head = head(authority, path, content.len())?;
    let exchange = handle.request(&head, None)?;
    exchange.send(Bytes::from(content.to_owned())).await?;
    exchange.finish()?;
    let answer = loop {
        let answer = exchange.answer().await?;
        println!("{}", answer.status());
        if !answer.status().is_informational() {
            break answer.canonical(None, PeerKind::Mesh)?;
        }
    };
    for field in answer.fields().iter() {
        println!("{field:?}");
    }
    println!();
    while let Some(bytes) = exchange.data().await? {
        std::io::stdout().write_all(&bytes)?;
    }
    println!();
    if let Some(trailers) = exchange.trailers() {
        println!("{:?}", trailers.fields());
    }
    Ok(())
}

/// The head of a GET, or of a POST if there is content.
fn head(authority: &str, path: &str, length: usize) -> Result<RequestHead, Box<dyn Error>> {
    let method = if length == 0 { "GET" } else { "POST" };
    let length = length.to_string();
    let fields = [("host", authority), ("content-length", &length)];
    let mut text = format!("{method}{path}");
    let target = method.len()..text.len();
    let mut spans = Vec::new();
    for (name, value) in &fields[..if method == "GET" { 1 } else { 2 }] {
        let start = text.len();
        text.extend([*name, *value]);
        spans.push((start..start + name.len(), start + name.len()..text.len()));
    }
    let limits = Limits::default();
    let mut raw = RawRequest::http1(
        text.into(),
        0..method.len(),
        target,
        Version::Http11,
        limits,
    )?;
    for (name, value) in spans {
        raw.field(name, value)?;
    }
    let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let here = Downstream::new(PeerKind::Mesh, here, Scheme::Http);
    let mut id = || FieldValue::new("client").expect("it is visible");
    match raw.frame()?.canonical(&Rules::default(), &here, &mut id)? {
        Canonical::Request(head) => Ok(head),
        Canonical::Connect(_) => Err("CONNECT has no path".into()),
    }
}
