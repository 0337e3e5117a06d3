//! Any bytes as the header block of a CONNECT, in one frame or cut into several: a header list in force means the same
//! however its block is cut, and what comes out is within the limit.
//!
//! Parsers: HPACK
//! Files: crates/hbone/src crates/h2/src/hpack crates/h2/src/reader crates/h2/src/reader.rs crates/h2/src/message.rs crates/h2/src/connection/headers.rs
#![no_main]

use lateen_hbone::{Connection, Settings};
use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::task::LocalSet;

fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags, 0, 0, 0, u8::from(kind != 4)];
    bytes.extend(payload);
    bytes
}

/// The request that a server sees, and whether the connection ended with an error.
fn outcome(frames: &[u8]) -> (Option<String>, bool) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime can be made");
    let local = LocalSet::new();
    runtime.block_on(local.run_until(async {
        let (near, far) = duplex(256 * 1024);
        let (mut reader, mut writer) = tokio::io::split(near);
        let rest = tokio::task::spawn_local(async move { let mut sink = Vec::new(); let _ = reader.read_to_end(&mut sink).await; });
        let _ = writer.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
        let _ = writer.write_all(&frame(4, 0, &[])).await;
        let _ = writer.write_all(frames).await;
        let _ = writer.shutdown().await;
        let mut seen = None;
        let mut broke = true;
        if let Ok(mut connection) = Connection::accept(far, Settings::client()).await {
            broke = loop {
                match connection.next().await {
                    Ok(Some(incoming)) => {
                        let baggage = incoming.baggage.as_ref().map(ToString::to_string);
                        let host = incoming.forwarded.as_ref().and_then(|f| f.host.clone());
                        seen = Some(format!("{} {baggage:?} {host:?}", incoming.authority));
                        incoming.refuse(lateen_hbone::Status::Unavailable);
                    }
                    Ok(None) => break false,
                    Err(_) => break true,
                }
            };
        }
        rest.abort();
        (seen, broke)
    }))
}

fuzz_target!(|data: &[u8]| {
    let Some((&cut, block)) = data.split_first() else { return };
    if block.len() > 16_000 { return }
    // END_STREAM on both, so that the stream is over either way.
    let whole = frame(1, 0x5, block);
    let (first, second) = block.split_at(usize::from(cut).min(block.len()));
    let parts = [frame(1, 0x1, first), frame(9, 0x4, second)].concat();
    let (whole, _) = outcome(&whole);
    let (parts, _) = outcome(&parts);
    assert_eq!(whole, parts);
    assert!(whole.is_none_or(|text| text.len() < 64 * 1024));
});
