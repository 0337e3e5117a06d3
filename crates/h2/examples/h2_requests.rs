//! An ordinary client and server over TCP, without TLS.
//!
//! - `cargo run -p lateen-h2 --example h2_requests` runs a server and a client of it in one process.
//! - `… h2_requests -- serve ADDRESS` only serves; try `curl --http2-prior-knowledge -d hello http://ADDRESS/a`.
//! - `… h2_requests -- get ADDRESS PATH` is the client alone.
//!
//! The server describes the request and repeats its content. A client that takes trailers gets the length in them. A request
//! with `expect: 100-continue` gets an informational answer first.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout)]

use std::collections::HashMap;
use std::io::{Error, IoSlice, Read, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use bytes::Bytes;
use lateen_h2::{Config, Connection, Event, Field, Fields, Known, StreamId, Timestamp};

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        [] => {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let address = listener.local_addr()?.to_string();
            std::thread::spawn(move || serve(&listener));
            get(&address, "/hello")
        }
        ["serve", address] => {
            let listener = TcpListener::bind(address)?;
            println!("listening {}", listener.local_addr()?);
            serve(&listener)
        }
        ["get", address, path] => get(address, path),
        _ => {
            eprintln!("usage: h2_requests [serve ADDRESS | get ADDRESS PATH]");
            std::process::exit(64);
        }
    }
}

/// Moves a connection's bytes until it is done or the peer closes, and tells `act` of events.
fn drive(
    mut tcp: TcpStream,
    connection: &mut Connection,
    mut act: impl FnMut(&mut Connection, Event<'_>),
) -> Result<()> {
    tcp.set_nodelay(true)?;
    let start = Instant::now();
    let mut buffer = [0; 16 * 1024];
    loop {
        while connection.has_output() {
            let pieces: Vec<_> = connection.output().take(64).map(IoSlice::new).collect();
            let written = tcp.write_vectored(&pieces)?;
            connection.advance(written);
        }
        if connection.is_done() {
            return Ok(());
        }
        let length = match tcp.read(&mut buffer)? {
            0 => return Ok(()),
            length => length,
        };
        let now = Timestamp::from_micros(start.elapsed().as_micros() as u64);
        let mut input = &buffer[..length];
        loop {
            match connection.receive(&mut input, now) {
                Ok(Some(event)) => act(connection, event),
                Ok(None) => break,
                Err(error) => {
                    // The GOAWAY says why.
                    for piece in connection.output() {
                        tcp.write_all(piece)?;
                    }
                    return Err(Error::other(error));
                }
            }
        }
    }
}

fn serve(listener: &TcpListener) -> Result<()> {
    loop {
        let (tcp, _) = listener.accept()?;
        std::thread::spawn(move || {
            let config = Config::requests().share();
            let mut connection = Connection::server(&config, Timestamp::default());
            let mut requests = HashMap::new();
            let result = drive(tcp, &mut connection, |connection, event| {
                serve_event(connection, &mut requests, event);
            });
            if let Err(error) = result {
                println!("{error}");
            }
        });
    }
}

/// Requests that are not whole: their fields and content so far.
type Requests = HashMap<StreamId, (Fields, Vec<u8>)>;

fn serve_event(connection: &mut Connection, requests: &mut Requests, event: Event<'_>) {
    match event {
        Event::Request { stream, end, .. } => {
            let fields = connection.take_fields();
            if fields.find(Known::Expect) == Some(b"100-continue") {
                let _ = connection.inform(stream, 100, &[]);
            }
            requests.insert(stream, (fields, Vec::new()));
            if end {
                answer(connection, requests, stream);
            }
        }
        Event::TooLarge { stream, .. } => {
            let fields = [Field::known(Known::Status, "431")];
            let _ = connection.respond(stream, None, &fields, true);
            connection.release(stream);
        }
        Event::Data { stream, bytes, end } => {
            if let Some((_, content)) = requests.get_mut(&stream) {
                content.extend_from_slice(bytes);
            }
            connection.consumed(stream, bytes.len());
            if end {
                answer(connection, requests, stream);
            }
        }
        Event::Trailers { stream } => answer(connection, requests, stream),
        Event::Reset { stream, .. } => {
            requests.remove(&stream);
            connection.release(stream);
        }
        Event::Failed(error) => {
            requests.remove(&error.stream);
            connection.release(error.stream);
        }
        _ => {}
    }
}

/// Answers a request that is whole.
fn answer(connection: &mut Connection, requests: &mut Requests, stream: StreamId) {
    let Some((fields, content)) = requests.remove(&stream) else {
        return;
    };
    let value = |known| String::from_utf8_lossy(fields.find(known).unwrap_or_default());
    let method = value(Known::Method);
    let mut text = format!("{method} {}, {} bytes\n", value(Known::Path), content.len());
    text.push_str(&String::from_utf8_lossy(&content));
    let length = text.len().to_string();
    let head = [
        Field::known(Known::Status, "200"),
        Field::known(Known::ContentType, "text/plain").kept(),
        Field::known(Known::ContentLength, &length),
    ];
    let is_head = method == "HEAD";
    // A stream that was reset meanwhile takes none of this.
    let _ = connection.respond(stream, None, &head, is_head);
    if !is_head {
        let _ = connection.send(stream, Bytes::from(text));
        let _ = match fields.find(Known::Te) {
            Some(_) => connection.trailers(stream, &[Field::new("x-length", &length)]),
            None => connection.finish(stream),
        };
    }
    connection.release(stream);
}

fn get(address: &str, path: &str) -> Result<()> {
    let config = Config::requests().share();
    let mut connection = Connection::client(&config, Timestamp::default());
    let fields = [
        Field::known(Known::Method, "GET"),
        Field::known(Known::Scheme, "http"),
        Field::known(Known::Authority, address),
        Field::known(Known::Path, path),
        Field::known(Known::Te, "trailers"),
    ];
    let asked = connection.request(None, &fields, true);
    asked.map_err(Error::other)?;
    let tcp = TcpStream::connect(address)?;
    drive(tcp, &mut connection, |connection, event| {
        let over = match event {
            Event::Informational { .. } | Event::Response { .. } | Event::Trailers { .. } => {
                for (name, value) in connection.fields().iter() {
                    let text = String::from_utf8_lossy;
                    println!("{}: {}", text(name), text(value));
                }
                matches!(
                    event,
                    Event::Trailers { .. } | Event::Response { end: true, .. }
                )
            }
            Event::Data { stream, bytes, end } => {
                print!("{}", String::from_utf8_lossy(bytes));
                connection.consumed(stream, bytes.len());
                end
            }
            Event::Reset { code, .. } => {
                println!("the server reset the request: {code}");
                true
            }
            Event::Failed(error) => {
                println!("{error}");
                true
            }
            _ => false,
        };
        if over {
            connection.drain();
        }
    })
}
