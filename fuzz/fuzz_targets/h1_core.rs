//! Any bytes as what a peer sends to the HTTP/1 core, as a server and as a client. Nothing panics, no event follows the end of
//! a message, and the cuts of the input change neither an event nor the error. The first byte gives the role, the method of
//! the request and the length of the pieces.
//!
//! Parsers: HTTP/1
//! Files: crates/h1/src :!crates/h1/src/output.rs :!crates/h1/src/encode.rs
#![no_main]

use bytes::Bytes;
use lateen_h1::{ClientConnection, ClientEvent, Config, Error, Field, Length, ServerConnection, ServerEvent};
use libfuzzer_sys::fuzz_target;

/// Small limits, which short inputs reach.
fn config() -> Config {
    Config { max_head: 300, max_fields: 6, max_empty_lines: 2, max_informational: 3, chunk_overhead: 60, drain: 40 }
}

/// Events with content joined, and the error that ends them.
#[derive(Debug, Default, PartialEq)]
struct Told {
    heads: Vec<String>,
    contents: Vec<Vec<u8>>,
    ends: usize,
    error: Option<Error>,
}

impl Told {
    fn head(&mut self, head: String, end: bool) {
        assert_eq!(self.ends, self.heads.len(), "the message before is complete");
        self.heads.push(head);
        self.contents.push(Vec::new());
        self.ends += usize::from(end);
    }

    fn data(&mut self, bytes: &[u8], end: bool) {
        assert_eq!(self.ends + 1, self.heads.len(), "a message is open");
        assert!(!bytes.is_empty());
        self.contents.last_mut().expect("a head").extend_from_slice(bytes);
        self.ends += usize::from(end);
    }
}

fn serve(pieces: &[&[u8]]) -> Told {
    let (mut server, mut told, mut unread) = (ServerConnection::new(config()), Told::default(), Vec::new());
    let mut status = 200;
    for piece in pieces {
        unread.extend_from_slice(piece);
        let mut input = Bytes::from(std::mem::take(&mut unread));
        loop {
            let event = match server.receive(&mut input) {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(error) => {
                    told.error = Some(error);
                    return told;
                }
            };
            match event {
                ServerEvent::Request { head, end } => {
                    status = if head.is_connect() { 405 } else { 200 };
                    told.head(format!("{head:?}"), end);
                }
                ServerEvent::Data { bytes, end } => told.data(&bytes, end),
                ServerEvent::Trailers(trailers) => {
                    told.heads.last_mut().expect("a head").push_str(&format!("{trailers:?}").replace(char::is_numeric, ""));
                    told.ends += 1;
                }
                ServerEvent::End => told.ends += 1,
            }
            if told.ends == told.heads.len() {
                server.respond(status, [], Length::Unknown).expect("it is due");
                // A response to HEAD has no content.
                let _ = server.send(Bytes::from_static(b"answer"));
                server.finish().expect("it was begun");
                server.advance(server.queued());
            }
        }
        assert!(input.is_empty() || !server.wants_input(), "all input is taken that is wanted");
        unread = input.to_vec();
    }
    if told.ends == told.heads.len() && server.end_of_input().is_ok() {
        assert!(server.is_done());
    }
    told
}

fn ask(method: &str, pieces: &[&[u8]]) -> Told {
    let (mut client, mut told) = (ClientConnection::new(config()), Told::default());
    let target = if method == "CONNECT" { "a:80" } else { "/" };
    let fields = [Field::new("host", "a"), Field::new("upgrade", "x")].map(|field| field.expect("it is valid"));
    client.request(method.as_bytes(), target.as_bytes(), fields, Length::None).expect("it is idle");
    for piece in pieces {
        let mut input = Bytes::copy_from_slice(piece);
        loop {
            match client.receive(&mut input) {
                Ok(None) => break,
                Ok(Some(ClientEvent::Informational(head) | ClientEvent::Tunnel(head))) => told.head(format!("{head:?}"), true),
                Ok(Some(ClientEvent::Response { head, end })) => told.head(format!("{head:?}"), end),
                Ok(Some(ClientEvent::Data { bytes, end })) => told.data(&bytes, end),
                Ok(Some(ClientEvent::Trailers(_) | ClientEvent::End)) => told.ends += 1,
                Err(error) => {
                    told.error = Some(error);
                    return told;
                }
            }
        }
    }
    match client.end_of_input() {
        Ok(event) => told.ends += usize::from(event.is_some()),
        Err(error) => told.error = Some(error),
    }
    told
}

fuzz_target!(|data: &[u8]| {
    let Some((&how, bytes)) = data.split_first() else { return };
    let step = usize::from(how >> 3).max(1);
    let pieces: Vec<_> = bytes.chunks(step).collect();
    match ["", "", "", "", "GET", "HEAD", "CONNECT", "POST"][usize::from(how & 7)] {
        "" => assert_eq!(serve(&[bytes]), serve(&pieces)),
        method => assert_eq!(ask(method, &[bytes]), ask(method, &pieces)),
    }
});
