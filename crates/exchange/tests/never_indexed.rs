//! HPACK literals that are never indexed: they leave as they came (RFC 7541 §6.2.3).

mod common;

use std::cell::RefCell;
use std::rc::Rc;

use common::{PIPE, answer, canonical, local, serve};
use lateen_exchange::{Config, Error, Protocol, Stream, client, server};
use lateen_h2::{Event, Field, Fields, Timestamp};
use lateen_http::Canonical;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::spawn_local;

/// The names of the fields that are never indexed.
fn never_indexed(fields: &Fields) -> Vec<String> {
    let lines = fields.lines().filter(|line| line.never_indexed);
    lines
        .map(|line| String::from_utf8_lossy(line.name).into_owned())
        .collect()
}

/// Moves bytes between one end of HTTP/2 and its stream until `hear` returns true.
async fn speak(
    peer: &mut lateen_h2::Connection,
    io: &mut DuplexStream,
    mut hear: impl FnMut(&mut lateen_h2::Connection, Event<'_>) -> bool,
) {
    let mut buffer = vec![0; PIPE];
    let mut is_over = false;
    loop {
        while peer.has_output() {
            let bytes: Vec<u8> = peer.output().flatten().copied().collect();
            io.write_all(&bytes).await.expect("it is open");
            peer.advance(bytes.len());
        }
        if is_over {
            return;
        }
        let length = io.read(&mut buffer).await.expect("it is open");
        assert!(length > 0, "it is open");
        let mut input = &buffer[..length];
        while let Some(event) = peer
            .receive(&mut input, Timestamp::default())
            .expect("the proxy is right")
        {
            is_over |= hear(peer, event);
        }
    }
}

/// Moves content and trailers.
async fn pass(from: &Stream, to: &Stream) -> Result<(), Error> {
    while let Some(bytes) = from.data().await? {
        to.send(bytes).await?;
    }
    match from.trailers() {
        Some(trailers) => to.finish_with(&trailers),
        None => to.finish(),
    }
}

#[test]
fn field_that_is_never_indexed_is_sent_on_so() {
    local(async {
        let config = lateen_h2::Config::requests().share();
        let (mut near, io) = duplex(PIPE);
        let below = server::Connection::new(io, Config::new(Protocol::Http2));
        let (io, mut far) = duplex(PIPE);
        let (handle, above) = client::open(io, Config::new(Protocol::Http2));
        spawn_local(above);
        serve(below, move |request, below| {
            let handle = handle.clone();
            async move {
                let Canonical::Request(head) = canonical(request) else {
                    panic!("a request")
                };
                let above = handle.request(&head, None)?;
                pass(&below, &above).await?;
                let head = answer(&above).await?;
                below.respond(&head, None)?;
                pass(&above, &below).await
            }
        });
        let asked = Rc::new(RefCell::new(Vec::new()));
        let seen = Rc::clone(&asked);
        let mut application = lateen_h2::Connection::server(&config, Timestamp::default());
        spawn_local(async move {
            speak(&mut application, &mut far, |peer, event| {
                match event {
                    Event::Request { .. } => seen.borrow_mut().push(never_indexed(peer.fields())),
                    Event::Trailers { stream } => {
                        seen.borrow_mut().push(never_indexed(peer.fields()));
                        let fields = [
                            Field::new(":status", "200"),
                            Field::new("server", "a").secret(),
                            Field::new("x-open", "1"),
                        ];
                        peer.respond(stream, None, &fields, false)
                            .expect("it is open");
                        let trailers = [Field::new("x-sum", "7").secret()];
                        peer.trailers(stream, &trailers).expect("it is open");
                        return true;
                    }
                    _ => {}
                }
                false
            })
            .await;
            // The connection stays open.
            std::future::pending::<()>().await;
        });
        let mut user = lateen_h2::Connection::client(&config, Timestamp::default());
        let fields = [
            Field::new(":method", "POST"),
            Field::new(":scheme", "http"),
            Field::new(":authority", "a"),
            Field::new(":path", "/?token=1").secret(),
            Field::new("accept", "a/b").secret(),
            Field::new("accept-language", "en"),
            Field::new("x-key", "1").secret(),
            Field::new("x-open", "1"),
        ];
        let stream = user.request(None, &fields, false).expect("it is open");
        let trailers = [
            Field::new("x-open", "1"),
            Field::new("x-signature", "1").secret(),
        ];
        user.trailers(stream, &trailers).expect("it is open");
        let mut answered = Vec::new();
        speak(&mut user, &mut near, |peer, event| match event {
            Event::Response { .. } => {
                answered.push(never_indexed(peer.fields()));
                false
            }
            Event::Trailers { .. } => {
                answered.push(never_indexed(peer.fields()));
                true
            }
            _ => false,
        })
        .await;
        assert_eq!(
            *asked.borrow(),
            [vec![":path", "accept", "x-key"], vec!["x-signature"]]
        );
        assert_eq!(answered, [["server"], ["x-sum"]]);
    });
}
