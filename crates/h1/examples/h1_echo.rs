//! A server that echoes content, and a client that asks it, over TCP without TLS.
//!
//! - `cargo run -p lateen-h1 --example h1_echo` runs both on a port of 127.0.0.1.
//! - With `serve` as its argument it only serves; try `curl -d hello http://ADDRESS/`.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout)]

use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use bytes::{Bytes, BytesMut};
use lateen_h1::{
    ClientConnection, ClientEvent, Config, Field, Length, ServerConnection, ServerEvent,
};

fn main() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    println!("listening {address}");
    let server = thread::spawn(move || {
        for tcp in listener.incoming().flatten() {
            thread::spawn(move || {
                if let Err(error) = serve(tcp) {
                    println!("connection ended: {error}");
                }
            });
        }
    });
    if std::env::args().nth(1).as_deref() == Some("serve") {
        return server
            .join()
            .map_err(|_| io::Error::other("the server panicked"));
    }
    for content in ["hello", "and again"] {
        let echo = ask(address, content)?;
        println!("{}", String::from_utf8_lossy(&echo));
    }
    Ok(())
}

/// Answers requests until the connection is done.
fn serve(mut tcp: TcpStream) -> io::Result<()> {
    let mut connection = ServerConnection::new(Config::default());
    let mut input = Bytes::new();
    loop {
        loop {
            match connection.receive(&mut input) {
                Ok(Some(event)) => echo(&mut connection, event).map_err(io::Error::other)?,
                Ok(None) => break,
                Err(error) => {
                    // An answer that has begun cannot be taken back; then the connection just ends.
                    let _ = connection.respond(error.status(), [], Length::None);
                    flush(&mut tcp, connection.output())?;
                    return Err(io::Error::other(error));
                }
            }
        }
        let written = flush(&mut tcp, connection.output())?;
        connection.advance(written);
        if connection.is_done() {
            return Ok(());
        }
        // Input that the connection does not want yet is read no further.
        if connection.wants_input() && !read(&mut tcp, &mut input)? {
            connection.end_of_input().map_err(io::Error::other)?;
        }
    }
}

/// Answers one event with the content that came.
fn echo(
    connection: &mut ServerConnection,
    event: ServerEvent,
) -> Result<(), lateen_h1::WriteError> {
    match event {
        ServerEvent::Request { head, end } => {
            if connection.awaits_continue() {
                connection.inform(100, [])?;
            }
            let kind = head.fields().get("content-type").unwrap_or(b"text/plain");
            let fields = [Field::new("content-type", kind)?];
            // A CONNECT is not for this server.
            let (status, length) = match (head.is_connect(), end) {
                (true, _) => (405, Length::None),
                (false, true) => (200, Length::None),
                (false, false) => (200, head.length()),
            };
            connection.respond(status, fields, length)
        }
        ServerEvent::Data { bytes, end } => {
            connection.send(bytes)?;
            if end { connection.finish() } else { Ok(()) }
        }
        ServerEvent::Trailers(_) | ServerEvent::End => connection.finish(),
    }
}

/// Posts content, and returns the content of the answer.
fn ask(address: SocketAddr, content: &str) -> io::Result<Vec<u8>> {
    let mut tcp = TcpStream::connect(address)?;
    let mut connection = ClientConnection::new(Config::default());
    let host = address.to_string();
    let fields = [Field::new("host", &host).map_err(io::Error::other)?];
    connection
        .request(b"POST", b"/echo", fields, Length::Unknown)
        .map_err(io::Error::other)?;
    connection
        .send(Bytes::copy_from_slice(content.as_bytes()))
        .map_err(io::Error::other)?;
    connection.finish().map_err(io::Error::other)?;
    let written = flush(&mut tcp, connection.output())?;
    connection.advance(written);
    let (mut input, mut echo) = (Bytes::new(), Vec::new());
    loop {
        while let Some(event) = connection.receive(&mut input).map_err(io::Error::other)? {
            match event {
                ClientEvent::Response { head, .. } => println!(
                    "{} {}",
                    head.status(),
                    String::from_utf8_lossy(head.reason())
                ),
                ClientEvent::Data { bytes, .. } => echo.extend_from_slice(&bytes),
                _ => {}
            }
        }
        if connection.is_idle() || connection.is_done() {
            return Ok(echo);
        }
        if !read(&mut tcp, &mut input)? {
            connection.end_of_input().map_err(io::Error::other)?;
        }
    }
}

/// Reads once, behind the input that is left. False at the end of the stream.
fn read(tcp: &mut TcpStream, input: &mut Bytes) -> io::Result<bool> {
    let mut buffer = BytesMut::zeroed(16 * 1024);
    let length = tcp.read(&mut buffer)?;
    buffer.truncate(length);
    if input.is_empty() {
        *input = buffer.freeze();
    } else {
        let mut joined = BytesMut::from(&input[..]);
        joined.extend_from_slice(&buffer);
        *input = joined.freeze();
    }
    Ok(length > 0)
}

/// Writes all pieces, and returns their length.
fn flush<'a>(tcp: &mut TcpStream, pieces: impl Iterator<Item = &'a [u8]>) -> io::Result<usize> {
    let mut slices: Vec<_> = pieces.map(IoSlice::new).collect();
    let total = slices.iter().map(|slice| slice.len()).sum();
    let mut rest = &mut slices[..];
    while !rest.is_empty() {
        let written = tcp.write_vectored(rest)?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        IoSlice::advance_slices(&mut rest, written);
    }
    Ok(total)
}
