//! A client and a server of this crate in one process, over TCP on 127.0.0.1: one request and its answer in each protocol.
//!
//! `cargo run -p lateen-exchange --example exchange_hello`
//!
//! `echo_server`, `client` and `exchange_proxy` are the same in processes of their own.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};

use bytes::Bytes;
use lateen_exchange::{Config, Protocol, client, server};
use lateen_http::{
    Canonical, Downstream, FieldName, FieldValue, Length, Limits, PeerKind, RawRequest,
    RequestHead, Rules, Scheme, Status, Version,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{LocalSet, spawn_local};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    // A connection and its exchanges stay on one thread.
    LocalSet::new()
        .run_until(async {
            for protocol in [Protocol::Http1, Protocol::Http2] {
                let listener = TcpListener::bind("127.0.0.1:0").await?;
                let address = listener.local_addr()?;
                let server = spawn_local(serve(listener, protocol));
                ask(address, protocol).await?;
                server.await?.map_err(|error| error.to_string())?;
            }
            Ok(())
        })
        .await
}

/// Answers the requests of one connection.
async fn serve(listener: TcpListener, protocol: Protocol) -> Result<(), Box<dyn Error>> {
    let (tcp, peer) = listener.accept().await?;
    let peer = Downstream::new(PeerKind::Mesh, peer, Scheme::Http);
    let mut connection = server::Connection::new(tcp, Config::new(protocol));
    // All answers move while the next request is waited for.
    while let Some((request, exchange)) = connection.next().await? {
        let mut id = || FieldValue::new("1").expect("it is visible");
        match request.canonical(&Rules::default(), &peer, &mut id) {
            Ok(Canonical::Request(head)) => {
                let path = String::from_utf8_lossy(head.path().as_bytes()).into_owned();
                println!("server: {:?} {path}", head.method());
                let text = Bytes::from(format!("hello from {path}"));
                let kind = FieldName::new("content-type").zip(FieldValue::new("text/plain"));
                let length = Length::Known(text.len() as u64);
                exchange.reply(Status::OK, kind.as_slice(), length)?;
                spawn_local(async move {
                    // The client may have left, and then nobody wants the answer.
                    let _ = exchange.send(text).await;
                    let _ = exchange.finish();
                });
            }
            // This server makes no tunnels.
            Ok(Canonical::Connect(_)) => {
                exchange.reply(Status::NOT_IMPLEMENTED, &[], Length::Known(0))?;
            }
            Err(refusal) => exchange.reply(refusal.status(), &[], Length::Known(0))?,
        }
    }
    Ok(())
}

/// Makes one request and prints the answer.
async fn ask(address: SocketAddr, protocol: Protocol) -> Result<(), Box<dyn Error>> {
    let tcp = TcpStream::connect(address).await?;
    let (handle, connection) = client::open(tcp, Config::new(protocol));
    let driver = spawn_local(connection);
    let exchange = handle.request(&head(&address.to_string())?, None)?;
    let answer = exchange.answer().await?.canonical(None, PeerKind::Mesh)?;
    println!("client: {protocol:?} {}", answer.status());
    while let Some(bytes) = exchange.data().await? {
        println!("client: {}", String::from_utf8_lossy(&bytes));
    }
    // Without a handle and an exchange the connection ends.
    drop((exchange, handle));
    Ok(driver.await??)
}

/// The head of `GET /hello`. The message model makes heads of received bytes alone, so that each is valid.
fn head(authority: &str) -> Result<RequestHead, Box<dyn Error>> {
    let bytes = Bytes::from(format!("GET/hellohost{authority}"));
    let (end, limits) = (bytes.len(), Limits::default());
    let mut raw = RawRequest::http1(bytes, 0..3, 3..9, Version::Http11, limits)?;
    raw.field(9..13, 13..end)?;
    let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let here = Downstream::new(PeerKind::Mesh, here, Scheme::Http);
    let mut id = || FieldValue::new("1").expect("it is visible");
    match raw.frame()?.canonical(&Rules::default(), &here, &mut id)? {
        Canonical::Request(head) => Ok(head),
        Canonical::Connect(_) => Err("CONNECT has no path".into()),
    }
}
