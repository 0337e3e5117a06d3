//! Frames written by hand: what a hostile peer sends.
#![allow(dead_code)]

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PUSH_PROMISE: u8 = 5;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const END_STREAM: u8 = 1;
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// One entry of SETTINGS.
pub fn setting(id: u16, value: u32) -> Vec<u8> {
    [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()
}

/// A header field that enters no table.
pub fn literal(name: &[u8], value: &[u8]) -> Vec<u8> {
    let mut block = vec![0x00];
    for text in [name, value] {
        assert!(text.len() < 127 + 16_000);
        if text.len() < 127 {
            block.push(text.len() as u8);
        } else {
            block.push(127);
            let mut rest = text.len() - 127;
            while rest >= 128 {
                block.push((rest % 128) as u8 | 128);
                rest /= 128;
            }
            block.push(rest as u8);
        }
        block.extend(text);
    }
    block
}

/// The header block of a CONNECT to 10.0.0.7:8080.
pub fn connect_block() -> Vec<u8> {
    [
        literal(b":method", b"CONNECT"),
        literal(b":authority", b"10.0.0.7:8080"),
    ]
    .concat()
}

/// A CONNECT request.
pub fn connect(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &connect_block())
}

/// RST_STREAM with CANCEL.
pub fn reset(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &8u32.to_be_bytes())
}

/// Reads a frame: kind, flags, stream, payload.
pub async fn read_frame(io: &mut DuplexStream) -> Option<(u8, u8, u32, Vec<u8>)> {
    let mut head = [0; 9];
    io.read_exact(&mut head).await.ok()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
    let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
    let mut payload = vec![0; length];
    io.read_exact(&mut payload).await.ok()?;
    Some((head[3], head[4], stream, payload))
}

/// Writes until all is written or the peer has closed; `false` then.
pub async fn write(io: &mut DuplexStream, bytes: &[u8]) -> bool {
    io.write_all(bytes).await.is_ok()
}
