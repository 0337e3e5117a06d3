//! Drivers of both roles that write down the events of an input, however it is cut.
#![allow(dead_code)]

use bytes::Bytes;
use lateen_h1::{
    ClientConnection, ClientEvent, Config, Error, Field, Fields, Length, Request, ServerConnection,
    ServerEvent,
};

/// A message as a peer understood it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Message {
    /// Method and target, or status and reason.
    pub start: (String, String),
    pub version: String,
    pub fields: Vec<(String, String)>,
    pub content: Vec<u8>,
    pub trailers: Vec<(String, String)>,
    pub is_complete: bool,
}

pub fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| byte as char).collect()
}

pub fn pairs(fields: &Fields) -> Vec<(String, String)> {
    fields
        .iter()
        .map(|field| (text(field.name()), text(field.value())))
        .collect()
}

pub fn field<'a>(name: &'a str, value: &'a str) -> Field<'a> {
    Field::new(name, value).expect("a valid field")
}

/// Everything that waits to be written.
pub fn written(pieces: impl Iterator<Item = impl AsRef<[u8]>>) -> Vec<u8> {
    pieces.flat_map(|piece| piece.as_ref().to_vec()).collect()
}

/// All output of a server, which counts as written.
pub fn flush(server: &mut ServerConnection) -> String {
    let bytes = written(server.output());
    server.advance(bytes.len());
    text(&bytes)
}

/// All output of a client, which counts as written.
pub fn flush_client(client: &mut ClientConnection) -> String {
    let bytes = written(client.output());
    client.advance(bytes.len());
    text(&bytes)
}

pub fn server() -> ServerConnection {
    ServerConnection::new(Config::default())
}

pub fn client() -> ClientConnection {
    ClientConnection::new(Config::default())
}

/// A client that sent a request of this method.
pub fn asked(method: &str) -> ClientConnection {
    let mut client = client();
    let target = if method == "CONNECT" { "a:80" } else { "/" };
    client
        .request(
            method.as_bytes(),
            target.as_bytes(),
            [field("host", "a")],
            Length::None,
        )
        .expect("it is idle");
    flush_client(&mut client);
    client
}

/// A server that was given one request, and its head.
pub fn opened(request: &str) -> (ServerConnection, Request, Bytes) {
    let mut server = server();
    let mut input = Bytes::copy_from_slice(request.as_bytes());
    match server.receive(&mut input) {
        Ok(Some(ServerEvent::Request { head, .. })) => (server, head, input),
        other => panic!("{request:?} gave {other:?}"),
    }
}

/// Requests of an input in pieces. Each is answered when it is complete. A cut that is empty is allowed.
pub fn requests(config: Config, pieces: &[&[u8]]) -> (Vec<Message>, Option<Error>, Vec<u8>) {
    let mut server = ServerConnection::new(config);
    let mut unread = Vec::new();
    let mut messages: Vec<Message> = Vec::new();
    for piece in pieces {
        unread.extend_from_slice(piece);
        let mut input = Bytes::from(std::mem::take(&mut unread));
        loop {
            let event = match server.receive(&mut input) {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(error) => return (messages, Some(error), input.to_vec()),
            };
            let end = match event {
                ServerEvent::Request { head, end } => {
                    messages.push(Message {
                        start: (text(head.method()), text(head.target())),
                        version: format!("{:?}", head.version()),
                        fields: pairs(head.fields()),
                        ..Message::default()
                    });
                    end
                }
                ServerEvent::Data { bytes, end } => {
                    messages
                        .last_mut()
                        .expect("a head")
                        .content
                        .extend_from_slice(&bytes);
                    end
                }
                ServerEvent::Trailers(trailers) => {
                    messages.last_mut().expect("a head").trailers = pairs(&trailers.fields);
                    true
                }
                ServerEvent::End => true,
            };
            if end {
                messages.last_mut().expect("a head").is_complete = true;
                server.respond(200, [], Length::None).expect("it is due");
                flush(&mut server);
            }
        }
        unread = input.to_vec();
    }
    (messages, None, unread)
}

/// Responses to a request of this method, of an input in pieces.
pub fn responses(method: &str, pieces: &[&[u8]], is_ended: bool) -> (Vec<Message>, Option<Error>) {
    let mut client = asked(method);
    let mut messages: Vec<Message> = Vec::new();
    let add = |messages: &mut Vec<Message>, event| {
        let last = messages.len().saturating_sub(1);
        match event {
            ClientEvent::Informational(head) => messages.push(response(&head, true)),
            ClientEvent::Response { head, end } => messages.push(response(&head, end)),
            ClientEvent::Tunnel(head) => messages.push(response(&head, true)),
            ClientEvent::Data { bytes, end } => {
                messages[last].content.extend_from_slice(&bytes);
                messages[last].is_complete = end;
            }
            ClientEvent::Trailers(trailers) => {
                messages[last].trailers = pairs(&trailers.fields);
                messages[last].is_complete = true;
            }
            ClientEvent::End => messages[last].is_complete = true,
        }
    };
    for piece in pieces {
        let mut input = Bytes::copy_from_slice(piece);
        loop {
            match client.receive(&mut input) {
                Ok(Some(event)) => add(&mut messages, event),
                Ok(None) => break,
                Err(error) => return (messages, Some(error)),
            }
        }
    }
    if is_ended {
        match client.end_of_input() {
            Ok(event) => event
                .into_iter()
                .for_each(|event| add(&mut messages, event)),
            Err(error) => return (messages, Some(error)),
        }
    }
    (messages, None)
}

fn response(head: &lateen_h1::Response, end: bool) -> Message {
    Message {
        start: (head.status().to_string(), text(head.reason())),
        version: format!("{:?}", head.version()),
        fields: pairs(head.fields()),
        is_complete: end,
        ..Message::default()
    }
}
