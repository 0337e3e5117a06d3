//! Whole messages through both ends of a connection, in both protocols.

mod common;

use std::rc::Rc;

use bytes::Bytes;
use common::{
    PROTOCOLS, answer, canonical, content, head, informational, local, pair, pattern, serve, text,
};
use lateen_exchange::{Config, Protocol, server};
use lateen_http::{
    Canonical, FieldName, FieldValue, Known, Length, Limits, RawTrailers, Status, Trailers, Version,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::task::spawn_local;

fn status(code: u16) -> Status {
    Status::new(code).expect("three digits")
}

fn trailers(value: &'static str) -> Trailers {
    let text = Bytes::from(format!("grpc-status{value}"));
    let length = text.len();
    let mut raw = RawTrailers::new(text, Version::Http11, Limits::default()).expect("it is small");
    raw.field(0..11, 11..length).expect("it is good");
    raw.canonical()
}

#[test]
fn content_arrives_in_both_directions() {
    for protocol in PROTOCOLS {
        local(async {
            let pair = pair(protocol);
            let server = serve(pair.server, |request, exchange| async move {
                let Canonical::Request(head) = canonical(request) else {
                    panic!("a request")
                };
                let name = FieldName::new("X-Path").expect("a token");
                let path = head.path().target().to_vec();
                let value = FieldValue::new(path).expect("it is visible");
                exchange.reply(Status::OK, &[(name, value)], head.length())?;
                while let Some(bytes) = exchange.data().await? {
                    exchange.send(bytes).await?;
                }
                exchange.finish()
            });
            for (length, size) in [("5", 5), ("300000", 300_000), ("0", 0)] {
                let bytes = pattern(size);
                for fields in [
                    [("content-length", length)],
                    [("transfer-encoding", "chunked")],
                ] {
                    let head = head("POST", "/a?b", &fields);
                    let exchange = pair.handle.request(&head, None).expect("it is ready");
                    let sent = async {
                        exchange.send(bytes.clone()).await.expect("it is read");
                        exchange.finish().expect("it is open");
                    };
                    let heard = async {
                        let answer = answer(&exchange).await.expect("an answer");
                        assert_eq!(answer.status(), Status::OK);
                        let path = FieldName::new("x-path").expect("a token");
                        assert_eq!(answer.fields().named(&path).next(), Some(&b"/a?b"[..]));
                        content(&exchange).await.expect("content")
                    };
                    let ((), echo) = tokio::join!(sent, heard);
                    assert!(echo == bytes, "{protocol:?} {size}");
                }
            }
            drop(pair.handle);
            pair.driver
                .await
                .expect("no panic")
                .expect("an orderly end");
            server.await.expect("no panic").expect("an orderly end");
        });
    }
}

#[test]
fn trailers_arrive_in_both_directions() {
    for protocol in PROTOCOLS {
        local(async {
            let pair = pair(protocol);
            serve(pair.server, |_, exchange| async move {
                let content = content(&exchange).await?;
                let trailers = exchange.trailers().expect("they came");
                exchange.reply(Status::OK, &[], Length::Delimited)?;
                exchange.send(content.into()).await?;
                exchange.finish_with(&trailers)
            });
            let head = head(
                "POST",
                "/",
                &[("transfer-encoding", "chunked"), ("te", "trailers")],
            );
            let exchange = pair.handle.request(&head, None).expect("it is ready");
            exchange.send("hello".into()).await.expect("it is open");
            exchange.finish_with(&trailers("7")).expect("it is open");
            answer(&exchange).await.expect("an answer");
            assert_eq!(content(&exchange).await.expect("content"), b"hello");
            let trailers = exchange.trailers().expect("they came");
            assert_eq!(trailers.fields().get(Known::GrpcStatus), Some(&b"7"[..]));
            assert!(exchange.trailers().is_none());
        });
    }
}

#[test]
fn informational_answers_come_before_the_final_one() {
    for protocol in PROTOCOLS {
        local(async {
            let pair = pair(protocol);
            serve(pair.server, |_, exchange| async move {
                exchange.inform(&informational(103, "</style.css>"))?;
                exchange.inform(&informational(102, "</style.css>"))?;
                exchange.reply(status(204), &[], Length::None)?;
                assert!(
                    exchange
                        .inform(&informational(103, "</style.css>"))
                        .is_err()
                );
                Ok(())
            });
            let exchange = pair.handle.request(&head("GET", "/", &[]), None);
            let exchange = exchange.expect("it is ready");
            for code in [103, 102, 204] {
                let answer = exchange.answer().await.expect("an answer");
                assert_eq!(answer.status().code(), code, "{protocol:?}");
            }
            assert_eq!(exchange.data().await.expect("an end"), None);
        });
    }
}

#[test]
fn continue_is_sent_once_the_content_is_read() {
    local(async {
        let (mut peer, io) = duplex(4096);
        let mut server = server::Connection::new(io, Config::new(Protocol::Http1));
        let request =
            b"POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n";
        peer.write_all(request).await.expect("there is room");
        let (_, exchange) = server.next().await.expect("no fault").expect("a request");
        let driver = spawn_local(async move { server.next().await.map(|_| ()) });
        let reader = spawn_local(async move {
            let content = content(&exchange).await?;
            exchange.reply(Status::OK, &[], Length::Known(2))?;
            exchange.send(content.into()).await
        });
        let mut told = [0; 25];
        peer.read_exact(&mut told).await.expect("it is told");
        assert_eq!(&told, b"HTTP/1.1 100 Continue\r\n\r\n");
        peer.write_all(b"ok").await.expect("there is room");
        peer.shutdown().await.expect("it is open");
        assert!(text(&mut peer).await.ends_with("\r\n\r\nok"));
        reader.await.expect("no panic").expect("it is answered");
        driver.await.expect("no panic").expect("an orderly end");
    });
}

#[test]
fn a_client_is_told_once_to_continue() {
    local(async {
        let (mut peer, io) = duplex(4096);
        let mut server = server::Connection::new(io, Config::new(Protocol::Http1));
        let request =
            b"POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n";
        peer.write_all(request).await.expect("there is room");
        let (_, exchange) = server.next().await.expect("no fault").expect("a request");
        let driver = spawn_local(async move { server.next().await.map(|_| ()) });
        let exchange = Rc::new(exchange);
        let read = Rc::clone(&exchange);
        let reader = spawn_local(async move { content(&read).await });
        let mut told = [0; 25];
        peer.read_exact(&mut told).await.expect("it is told");
        assert_eq!(&told, b"HTTP/1.1 100 Continue\r\n\r\n");
        // The endpoint says so too.
        let again = informational(100, "</style.css>");
        exchange.inform(&again).expect("it is open");
        peer.write_all(b"ok").await.expect("there is room");
        let content = reader.await.expect("no panic").expect("it comes");
        assert_eq!(content, b"ok");
        exchange
            .reply(Status::OK, &[], Length::Known(0))
            .expect("it is open");
        exchange.finish().expect("it is open");
        drop(exchange);
        peer.shutdown().await.expect("it is open");
        let rest = text(&mut peer).await;
        assert!(rest.starts_with("HTTP/1.1 200 "), "{rest}");
        driver.await.expect("no panic").expect("an orderly end");
    });
}

#[test]
fn answer_to_head_has_a_length_and_no_content() {
    for protocol in PROTOCOLS {
        local(async {
            let pair = pair(protocol);
            serve(pair.server, |_, exchange| async move {
                exchange.reply(Status::OK, &[], Length::Known(1234))?;
                exchange.finish()
            });
            for _ in 0..2 {
                let exchange = pair.handle.request(&head("HEAD", "/", &[]), None);
                let exchange = exchange.expect("it is ready");
                let answer = answer(&exchange).await.expect("an answer");
                let length = answer.fields().get(Known::ContentLength);
                assert_eq!(length, Some(&b"1234"[..]), "{protocol:?}");
                assert_eq!(exchange.data().await.expect("an end"), None);
            }
        });
    }
}

#[test]
fn many_streams_share_a_connection() {
    local(async {
        let pair = pair(Protocol::Http2);
        serve(pair.server, |_, exchange| async move {
            let content = content(&exchange).await?;
            exchange.reply(Status::OK, &[], Length::Delimited)?;
            exchange.send(content.into()).await?;
            exchange.finish()
        });
        let exchanges: Vec<_> = (0..50)
            .map(|number| {
                let handle = pair.handle.clone();
                spawn_local(async move {
                    let head = head("POST", "/", &[("transfer-encoding", "chunked")]);
                    let exchange = handle.request(&head, None).expect("there is room");
                    let bytes = pattern(10_000 + number);
                    exchange.send(bytes.clone()).await.expect("it is read");
                    exchange.finish().expect("it is open");
                    answer(&exchange).await.expect("an answer");
                    assert!(content(&exchange).await.expect("content") == bytes);
                })
            })
            .collect();
        for exchange in exchanges {
            exchange.await.expect("no panic");
        }
    });
}
