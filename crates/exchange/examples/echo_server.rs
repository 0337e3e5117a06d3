//! A server over TCP, without TLS, that answers each request with its own content and trailers, and echoes tunnels. A GET
//! without content gets a line of text. For `/hints` status 103 comes before.
//!
//! - `cargo run -p lateen-exchange --example echo_server -- --h1`; try `curl -d hello http://127.0.0.1:8080/`.
//! - `cargo run -p lateen-exchange --example echo_server -- --h2 127.0.0.1:8081`; try `nghttp -v http://127.0.0.1:8081/`.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout)]

use std::net::SocketAddr;

use bytes::Bytes;
use lateen_exchange::{Config, Error, Protocol, Tunnel, server};
use lateen_http::{
    Asked, Canonical, Downstream, FieldName, FieldValue, FramedRequest, Length, Limits, Method,
    PeerKind, RawResponse, ResponseHead, Rules, Scheme, Status, Version,
};
use tokio::io::{AsyncWriteExt, copy, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{LocalSet, spawn_local};

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (protocol, address) = match words[..] {
        ["--h1"] => (Protocol::Http1, "127.0.0.1:8080"),
        ["--h2"] => (Protocol::Http2, "127.0.0.1:8080"),
        ["--h1", address] => (Protocol::Http1, address),
        ["--h2", address] => (Protocol::Http2, address),
        _ => {
            eprintln!("usage: echo_server --h1|--h2 [ADDRESS]");
            std::process::exit(64);
        }
    };
    let listener = TcpListener::bind(address).await?;
    println!("listening {}", listener.local_addr()?);
    LocalSet::new()
        .run_until(async {
            loop {
                let (tcp, peer) = listener.accept().await?;
                tcp.set_nodelay(true)?;
                spawn_local(serve(tcp, peer, protocol));
            }
        })
        .await
}

async fn serve(tcp: TcpStream, peer: SocketAddr, protocol: Protocol) {
    let peer = Downstream::new(PeerKind::Edge, peer, Scheme::Http);
    let mut connection = server::Connection::new(tcp, Config::new(protocol));
    loop {
        match connection.next().await {
            Ok(Some((request, exchange))) => {
                let peer = peer.clone();
                spawn_local(async move {
                    if let Err(error) = answer(request, exchange, &peer).await {
                        println!("exchange failed: {error}");
                    }
                });
            }
            Ok(None) => return,
            Err(error) => return println!("connection failed: {error}"),
        }
    }
}

async fn answer(
    request: FramedRequest,
    exchange: server::Exchange,
    peer: &Downstream,
) -> Result<(), Error> {
    let mut id = || FieldValue::new("echo").expect("it is visible");
    let head = match request.canonical(&Rules::default(), peer, &mut id) {
        Ok(Canonical::Request(head)) => head,
        Ok(Canonical::Connect(_)) => {
            exchange.reply(Status::OK, &[], Length::None)?;
            return echo(exchange).await;
        }
        Err(refusal) => return exchange.reply(refusal.status(), &[], Length::Known(0)),
    };
    println!("{:?} {:?}", head.method(), head.path());
    if head.upgrade().is_some() {
        exchange.accept(&head)?;
        return echo(exchange).await;
    }
    if head.path().as_bytes() == b"/hints" {
        exchange.inform(&hints()?)?;
    }
    let kind = FieldName::new("content-type").zip(FieldValue::new("application/octet-stream"));
    if *head.method() == Method::GET && head.length() == Length::None {
        let line = Bytes::from_static(b"no content came\n");
        exchange.reply(Status::OK, kind.as_slice(), Length::Known(16))?;
        exchange.send(line).await?;
        return exchange.finish();
    }
    exchange.reply(Status::OK, kind.as_slice(), head.length())?;
    while let Some(bytes) = exchange.data().await? {
        exchange.send(bytes).await?;
    }
    match exchange.trailers() {
        Some(trailers) => exchange.finish_with(&trailers),
        None => exchange.finish(),
    }
}

/// Early hints (RFC 8297).
fn hints() -> Result<ResponseHead, Error> {
    let field = Bytes::from_static(b"link</style.css>; rel=preload");
    let (version, limits) = (Version::Http11, Limits::default());
    let mut raw = RawResponse::http1(field, Status::new(103).expect("103"), version, limits)?;
    raw.field(0..4, 4..29)?;
    Ok(raw
        .frame(Asked::Ordinary)?
        .canonical(None, PeerKind::Edge)?)
}

async fn echo(exchange: server::Exchange) -> Result<(), Error> {
    let Ok(tunnel) = exchange.into_tunnel() else {
        return Ok(());
    };
    let (mut reader, mut writer) = split::<Tunnel>(tunnel);
    // A failure shows at the other end.
    let _ = copy(&mut reader, &mut writer).await;
    let _ = writer.shutdown().await;
    Ok(())
}
