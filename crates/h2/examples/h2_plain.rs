//! The core as a server without TLS on a port of 127.0.0.1, for h2spec. It prints `listening ADDRESS`. It echoes a CONNECT, and
//! answers any other complete request with a short text.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout)]

use std::collections::HashSet;
use std::io::{IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use bytes::Bytes;
use lateen_h2::{Config, Connection, ConnectionError, Event, Field, Prebuilt, StreamId, Timestamp};

const TEXT: &[u8] = b"What is whole is answered, and what is not is not.\n";

fn main() -> std::io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("listening {}", listener.local_addr()?);
    loop {
        let (tcp, _) = listener.accept()?;
        std::thread::spawn(move || println!("closed {:?}", serve(tcp)));
    }
}

fn serve(mut tcp: TcpStream) -> std::io::Result<Option<ConnectionError>> {
    tcp.set_nodelay(true)?;
    let start = Instant::now();
    let config = Config {
        max_frame: 1 << 14,
        max_streams: 100,
        ..Config::tunnel()
    };
    let mut connection = Connection::server(&config.share(), Timestamp::default());
    let mut tunnels = HashSet::new();
    let mut buffer = [0; 64 * 1024];
    loop {
        while connection.has_output() {
            let pieces: Vec<_> = connection.output().take(64).map(IoSlice::new).collect();
            let written = tcp.write_vectored(&pieces)?;
            connection.advance(written);
        }
        let length = match tcp.read(&mut buffer)? {
            0 => return Ok(None),
            length => length,
        };
        let now = Timestamp::from_micros(start.elapsed().as_micros() as u64);
        let mut input = &buffer[..length];
        loop {
            match connection.receive(&mut input, now) {
                Ok(Some(event)) => act(&mut connection, &mut tunnels, event),
                Ok(None) => break,
                Err(error) => {
                    for piece in connection.output() {
                        tcp.write_all(piece)?;
                    }
                    return Ok(Some(error));
                }
            }
        }
        if connection.is_done() {
            return Ok(None);
        }
    }
}

/// What is refused below is over, and its peer is told; nothing else is to be done here.
fn act(connection: &mut Connection, tunnels: &mut HashSet<StreamId>, event: Event<'_>) {
    let ok = || Prebuilt::new([Field::new(":status", "200")]);
    match event {
        Event::Request {
            stream,
            connect: true,
            ..
        } => {
            tunnels.insert(stream);
            let _ = connection.respond(stream, Some(&ok()), &[], false);
        }
        Event::Request {
            stream, end: true, ..
        }
        | Event::Trailers { stream } => answer(connection, stream),
        Event::Data { stream, bytes, end } => {
            connection.consumed(stream, bytes.len());
            if tunnels.contains(&stream) {
                let _ = connection.send(stream, Bytes::copy_from_slice(bytes));
            }
            if end {
                answer(connection, stream);
            }
        }
        Event::Reset { stream, .. } => connection.release(stream),
        Event::Failed(error) => connection.release(error.stream),
        _ => {}
    }
}

/// Ends an echo, or answers what is whole.
fn answer(connection: &mut Connection, stream: StreamId) {
    let ok = Prebuilt::new([Field::new(":status", "200")]);
    if connection.respond(stream, Some(&ok), &[], false).is_ok() {
        let _ = connection.send(stream, Bytes::from_static(TEXT));
    }
    let _ = connection.finish(stream);
    connection.release(stream);
}
