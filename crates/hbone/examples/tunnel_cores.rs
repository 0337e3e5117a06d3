//! What a tunnel costs, both of its ends, without sockets and TLS: for callgrind, as tests/bench/instructions.sh counts it.
//! The argument says what is done: `tunnel_requests` (16 streams, 1 KiB there and back),
//! `tunnel_bulk` (one stream, 64 KiB at a time) or `tunnel_opens` (streams that come, say something and go).
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout)]

use std::future::Future;
use std::hint::black_box;

use lateen_hbone::{ConnectRequest, Connection, Settings, Stream, Tunnel, client};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::task::{LocalSet, spawn_local};

const STREAMS: usize = 16;
/// On each stream.
const REQUESTS: usize = 500;
const BULK: usize = 64 << 20;
const OPENS: usize = 4_000;

fn main() {
    let what = std::env::args().nth(1).unwrap_or_default();
    match what.as_str() {
        "tunnel_requests" => run(measured_tunnel_requests),
        "tunnel_bulk" => run(measured_tunnel_bulk),
        "tunnel_opens" => run(measured_tunnel_opens),
        _ => println!("tunnel_requests, tunnel_bulk or tunnel_opens"),
    }
}

fn run(measured: fn(&tokio::runtime::Runtime, &LocalSet, Tunnel)) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        // Windows follow the measured delay of the path: by the machine's clock what is counted would depend on what else runs.
        .start_paused(true)
        .build()
        .expect("a runtime");
    let local = LocalSet::new();
    let tunnel = local.block_on(&runtime, async {
        // As much as a socket takes.
        let (near, far) = duplex(256 * 1024);
        spawn_local(async move {
            let accepted = Connection::accept(far, Settings::server()).await;
            let mut connection = accepted.expect("a client");
            while let Ok(Some(incoming)) = connection.next().await {
                if let Ok(stream) = incoming.accept(None) {
                    spawn_local(echo(stream));
                }
            }
        });
        let made = client::handshake(near, Settings::client()).await;
        let (tunnel, driver) = made.expect("a server");
        spawn_local(driver);
        // Windows have their sizes, and tables are filled.
        talk(open(&tunnel).await, 16 * 1024, 400).await;
        tunnel
    });
    measured(&runtime, &local, tunnel);
}

async fn open(tunnel: &Tunnel) -> Stream {
    let to: std::net::SocketAddr = "10.0.0.7:8080".parse().expect("an address");
    let mut request = ConnectRequest::new(to);
    request.baggage = Some("k8s.namespace.name=default,service.name=client".into());
    tunnel.connect(&request).await.expect("it is granted").0
}

/// Sends back what comes.
async fn echo(mut stream: Stream) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(n @ 1..) = stream.read(&mut buffer).await {
        if stream.write_all(&buffer[..n]).await.is_err() {
            return;
        }
    }
    // Whoever has left need not be told.
    let _ = stream.shutdown().await;
}

/// So often so many bytes there and back.
async fn talk(mut stream: Stream, bytes: usize, times: usize) {
    let (sent, mut got) = (vec![7; bytes], vec![0; bytes]);
    for _ in 0..times {
        stream.write_all(&sent).await.expect("it is open");
        stream.read_exact(&mut got).await.expect("it is open");
    }
    black_box(&got);
    stream.shutdown().await.expect("it is open");
}

fn block_on(runtime: &tokio::runtime::Runtime, local: &LocalSet, work: impl Future<Output = ()>) {
    local.block_on(runtime, work);
}

#[inline(never)]
fn measured_tunnel_requests(runtime: &tokio::runtime::Runtime, local: &LocalSet, tunnel: Tunnel) {
    block_on(runtime, local, async {
        let mut all = Vec::new();
        for _ in 0..STREAMS {
            all.push(spawn_local(talk(open(&tunnel).await, 1024, REQUESTS)));
        }
        for one in all {
            one.await.expect("it talks");
        }
    });
}

#[inline(never)]
fn measured_tunnel_bulk(runtime: &tokio::runtime::Runtime, local: &LocalSet, tunnel: Tunnel) {
    block_on(runtime, local, async {
        let (mut reader, mut writer) = tokio::io::split(open(&tunnel).await);
        let sending = spawn_local(async move {
            let block = vec![7; 64 * 1024];
            for _ in 0..BULK / block.len() {
                writer.write_all(&block).await.expect("it is open");
            }
            writer.shutdown().await.expect("it is open");
        });
        let (mut got, mut buffer) = (0, vec![0; 64 * 1024]);
        while let n @ 1.. = reader.read(&mut buffer).await.expect("it is open") {
            got += n;
        }
        assert_eq!(got, BULK);
        sending.await.expect("it sends");
    });
}

#[inline(never)]
fn measured_tunnel_opens(runtime: &tokio::runtime::Runtime, local: &LocalSet, tunnel: Tunnel) {
    block_on(runtime, local, async {
        for _ in 0..OPENS {
            talk(open(&tunnel).await, 100, 1).await;
        }
    });
}
