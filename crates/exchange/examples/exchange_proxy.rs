//! A proxy over TCP, without TLS: each connection has one to the upstream, on which its requests go on.
//!
//! `cargo run -p lateen-exchange --example exchange_proxy -- --h2 127.0.0.1:8082 127.0.0.1:8081` stands before an `echo_server`.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout)]

use std::future::{pending, poll_fn};
use std::net::SocketAddr;

use lateen_exchange::{Config, Error, Protocol, client, server};
use lateen_http::{
    Canonical, Downstream, FieldValue, FramedRequest, Length, PeerKind, Rules, Scheme, Status,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{LocalSet, spawn_local};

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (protocol, address, upstream) = match &words[..] {
        [version, address, upstream] if version == "--h1" => (Protocol::Http1, address, upstream),
        [version, address, upstream] if version == "--h2" => (Protocol::Http2, address, upstream),
        _ => {
            eprintln!("usage: exchange_proxy --h1|--h2 ADDRESS UPSTREAM");
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
                let upstream = TcpStream::connect(upstream).await?;
                upstream.set_nodelay(true)?;
                spawn_local(serve(tcp, peer, upstream, protocol));
            }
        })
        .await
}

async fn serve(tcp: TcpStream, peer: SocketAddr, upstream: TcpStream, protocol: Protocol) {
    let peer = Downstream::new(PeerKind::Edge, peer, Scheme::Http);
    let (handle, driver) = client::open(upstream, Config::new(protocol));
    spawn_local(driver);
    let mut connection = server::Connection::new(tcp, Config::new(protocol));
    loop {
        match connection.next().await {
            Ok(Some((request, below))) => {
                let (handle, peer) = (handle.clone(), peer.clone());
                spawn_local(async move {
                    if let Err(error) = forward(request, &below, &handle, &peer).await {
                        println!("exchange failed: {error}");
                        if let Error::Reset(code) = error {
                            below.reset(code);
                        }
                    }
                });
            }
            Ok(None) => return,
            Err(error) => return println!("connection failed: {error}"),
        }
    }
}

/// Moves one exchange until the answer is complete, or one side has given it up.
async fn forward(
    request: FramedRequest,
    below: &server::Exchange,
    handle: &client::Handle,
    peer: &Downstream,
) -> Result<(), Error> {
    let mut id = || FieldValue::new("proxy").expect("it is visible");
    let head = match request.canonical(&Rules::default(), peer, &mut id) {
        Ok(Canonical::Request(head)) if head.upgrade().is_none() => head,
        Ok(_) => return below.reply(Status::NOT_IMPLEMENTED, &[], Length::Known(0)),
        Err(refusal) => return below.reply(refusal.status(), &[], Length::Known(0)),
    };
    let above = match handle.request(&head, None) {
        Ok(above) => above,
        Err(error) => {
            println!("request was not taken: {error}");
            return below.reply(Status::BAD_GATEWAY, &[], Length::Known(0));
        }
    };
    tokio::select! {
        answered = answer(below, &above) => answered,
        error = poll_fn(|cx| below.poll_gone(cx)) => Err(error),
        // An upstream may answer a request that it does not read; the answer says how it ends.
        () = async { let _ = upload(below, &above).await; pending().await } => Ok(()),
    }
}

async fn upload(below: &server::Exchange, above: &client::Exchange) -> Result<(), Error> {
    while let Some(bytes) = below.data().await? {
        above.send(bytes).await?;
    }
    match below.trailers() {
        Some(trailers) => above.finish_with(&trailers),
        None => above.finish(),
    }
}

async fn answer(below: &server::Exchange, above: &client::Exchange) -> Result<(), Error> {
    loop {
        let head = above.answer().await?.canonical(None, PeerKind::Edge)?;
        if !head.status().is_informational() {
            below.respond(&head, None)?;
            break;
        }
        below.inform(&head)?;
    }
    while let Some(bytes) = above.data().await? {
        below.send(bytes).await?;
    }
    match above.trailers() {
        Some(trailers) => below.finish_with(&trailers),
        None => below.finish(),
    }
}
