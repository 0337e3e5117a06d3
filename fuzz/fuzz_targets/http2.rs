//! Any bytes as what a peer sends on a tunnel, to our server and to our client: nothing panics, nothing hangs, and what
//! waits stays within its bounds. The first byte says to whom, and how the bytes are cut into reads. Frames are read by crates/h2/src.
//!
//! Parsers: HTTP/2, HPACK
#![no_main]

use std::time::Duration;

use lateen_hbone::{ConnectRequest, Connection, Settings, client};
use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::task::{LocalSet, spawn_local};

fn settings(base: Settings) -> Settings {
    // Little is enough to reach every limit.
    Settings { max_frame: 16 * 1024, max_header_list: 4 * 1024, max_streams: 4, ..base }
}

async fn serve(io: tokio::io::DuplexStream) {
    let Ok(mut connection) = Connection::accept(io, settings(Settings::server())).await else { return };
    let mut number = 0u32;
    while let Ok(Some(incoming)) = connection.next().await {
        number += 1;
        if number % 3 == 0 {
            incoming.refuse(lateen_hbone::Status::Unauthorized);
            continue;
        }
        if let Ok(mut stream) = incoming.accept(None) {
            spawn_local(async move {
                let mut buffer = [0; 256];
                while let Ok(n @ 1..) = stream.read(&mut buffer).await {
                    if stream.write_all(&buffer[..n]).await.is_err() { return }
                }
                let _ = stream.shutdown().await;
            });
        }
        assert!(connection.queued() <= 4 << 20);
    }
}

async fn connect(io: tokio::io::DuplexStream) {
    let Ok((tunnel, driver)) = client::handshake(io, settings(Settings::client())).await else { return };
    for _ in 0..3 {
        let tunnel = tunnel.clone();
        spawn_local(async move {
            let target: std::net::SocketAddr = "10.0.0.7:80".parse().expect("an address");
            if let Ok((mut stream, _)) = tunnel.connect(&ConnectRequest::new(target)).await {
                let _ = stream.write_all(&[7; 3000]).await;
                let mut buffer = [0; 256];
                while let Ok(1..) = stream.read(&mut buffer).await {}
            }
        });
    }
    let _ = driver.await;
}

fuzz_target!(|data: &[u8]| {
    let Some((&how, bytes)) = data.split_first() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime can be made");
    let local = LocalSet::new();
    runtime.block_on(local.run_until(async {
        let (near, far) = duplex(64 * 1024);
        let server = how & 1 == 0;
        let victim = spawn_local(async move { if server { serve(far).await } else { connect(far).await } });
        let (mut reader, mut writer) = tokio::io::split(near);
        let hostile = spawn_local({
            let bytes = bytes.to_vec();
            async move {
                if server && writer.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.is_err() { return }
                let step = usize::from(how >> 1).max(1) * 16;
                for piece in bytes.chunks(step) {
                    if writer.write_all(piece).await.is_err() { return }
                    tokio::task::yield_now().await;
                }
                let _ = writer.shutdown().await;
            }
        });
        let rest = spawn_local(async move { let mut sink = Vec::new(); let _ = reader.read_to_end(&mut sink).await; });
        // Time is virtual: whoever waits for nothing runs into its own limits at once.
        tokio::time::timeout(Duration::from_secs(600), victim).await.expect("the tunnel hangs").expect("no panic");
        hostile.abort();
        rest.abort();
    }));
});
