//! Agreement with independent parsers: what this crate accepts, `httparse` and hyper read alike.

mod common;

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use common::*;
use http_body_util::{BodyExt, Empty};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use lateen_h1::Config;
use proptest::collection::vec;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// So many inputs that this crate accepts. A strategy that gives hardly any of them fails.
fn accepted(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        max_global_rejects: 8 * cases,
        ..ProptestConfig::default()
    }
}

/// Heads with one or two bytes changed, so that some are good and some are not.
fn heads(line: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let value = "[!-~]?[ -~\t\u{80}-\u{ff}]{0,20}";
    let fields = vec(
        ("[a-zA-Z0-9!#$%&'*+.^_`|~-]{1,12}", "[ \t]{0,3}", value),
        0..6,
    );
    let changes = vec(
        (
            any::<prop::sample::Index>(),
            prop_oneof![
                any::<u8>(),
                Just(b'\n'),
                Just(b'\r'),
                Just(b' '),
                Just(b':')
            ],
        ),
        0..3,
    );
    (line, fields, changes).prop_map(|(line, fields, changes)| {
        let mut head = line.into_bytes();
        head.extend_from_slice(b"\r\nhost: a\r\n");
        for (name, space, value) in fields {
            head.extend(format!("{name}:{space}").bytes());
            head.extend(value.chars().map(|char| char as u32 as u8));
            head.extend(b"\r\n");
        }
        head.extend(b"\r\n");
        for (at, byte) in changes {
            let at = at.index(head.len());
            head[at] = byte;
        }
        head
    })
}

fn httparse_fields(fields: &[httparse::Header<'_>]) -> Vec<(String, String)> {
    fields
        .iter()
        .map(|field| (field.name.to_owned(), text(field.value)))
        .collect()
}

proptest! {
    #![proptest_config(accepted(2000))]

    #[test]
    fn httparse_reads_accepted_requests_alike(input in heads("(GET|POST|OPTIONS|[A-Za-z!]{1,5}) (/[!-\"$-~]{0,20}|http://a/b|\\*) HTTP/1\\.[01]")) {
        let (messages, _, _) = requests(Config::default(), &[&input]);
        prop_assume!(!messages.is_empty());
        let message = &messages[0];
        let mut fields = [httparse::EMPTY_HEADER; 100];
        let mut head = httparse::Request::new(&mut fields);
        prop_assert!(head.parse(&input).is_ok_and(|status| status.is_complete()), "{}", text(&input));
        prop_assert_eq!(&message.start, &(head.method.unwrap().to_owned(), head.path.unwrap().to_owned()));
        prop_assert_eq!(&message.version, &format!("Http1{}", head.version.unwrap()));
        prop_assert_eq!(&message.fields, &httparse_fields(head.headers));
    }

    #[test]
    fn httparse_reads_accepted_responses_alike(input in heads("HTTP/1\\.[01] [1-9][0-9]{2}( [ -~]{0,12})?")) {
        let (messages, _) = responses("HEAD", &[&input], false);
        prop_assume!(!messages.is_empty());
        let message = &messages[0];
        let mut fields = [httparse::EMPTY_HEADER; 100];
        let mut head = httparse::Response::new(&mut fields);
        prop_assert!(head.parse(&input).is_ok_and(|status| status.is_complete()), "{}", text(&input));
        // It drops a reason phrase that is not ASCII.
        let reason = if message.start.1.is_ascii() { &message.start.1 } else { "" };
        prop_assert_eq!((&message.start.0[..], reason), (&head.code.unwrap().to_string()[..], head.reason.unwrap()));
        prop_assert_eq!(&message.version, &format!("Http1{}", head.version.unwrap()));
        prop_assert_eq!(&message.fields, &httparse_fields(head.headers));
    }
}

/// Requests as hyper's server understands them, with content and trailers; an incomplete one is left out.
async fn hyper_requests(input: Vec<u8>) -> Vec<Message> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (near, mut far) = tokio::io::duplex(1 << 20);
    let heard = Arc::clone(&seen);
    let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let seen = Arc::clone(&heard);
        async move {
            let (head, body) = request.into_parts();
            if let Ok(body) = body.collect().await {
                let trailers = body.trailers().map(|fields| {
                    fields
                        .iter()
                        .map(|(name, value)| (name.to_string(), text(value.as_bytes())))
                        .collect()
                });
                seen.lock().unwrap().push(Message {
                    start: (head.method.to_string(), head.uri.to_string()),
                    fields: head
                        .headers
                        .iter()
                        .map(|(name, value)| (name.to_string(), text(value.as_bytes())))
                        .collect(),
                    trailers: trailers.unwrap_or_default(),
                    content: body.to_bytes().to_vec(),
                    is_complete: true,
                    ..Message::default()
                });
            }
            Ok::<_, Infallible>(hyper::Response::new(Empty::<Bytes>::new()))
        }
    });
    far.write_all(&input).await.unwrap();
    far.shutdown().await.unwrap();
    let serving = hyper::server::conn::http1::Builder::new()
        .half_close(true)
        .serve_connection(TokioIo::new(near), service);
    let mut answers = Vec::new();
    let (_, _) = tokio::join!(serving, far.read_to_end(&mut answers));
    Arc::try_unwrap(seen)
        .map(|seen| seen.into_inner().unwrap())
        .unwrap_or_default()
}

/// A response as hyper's client understands it.
async fn hyper_response(input: Vec<u8>, method: &str) -> Option<(String, Vec<u8>)> {
    let (near, mut far) = tokio::io::duplex(1 << 20);
    let (mut send, connection) = hyper::client::conn::http1::handshake(TokioIo::new(near))
        .await
        .ok()?;
    let peer = async move {
        let mut head = [0; 1024];
        let _ = far.read(&mut head).await;
        let _ = far.write_all(&input).await;
        let _ = far.shutdown().await;
    };
    let request = hyper::Request::builder()
        .method(method)
        .uri("/")
        .header("host", "a")
        .body(Empty::<Bytes>::new())
        .ok()?;
    let asking = async move {
        let response = send.send_request(request).await.ok()?;
        let status = response.status().as_str().to_owned();
        Some((
            status,
            response
                .into_body()
                .collect()
                .await
                .ok()?
                .to_bytes()
                .to_vec(),
        ))
    };
    let (answer, _, ()) = tokio::join!(asking, connection, peer);
    answer
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(future)
}

/// Chunked content, mostly good, with what parsers differ over.
fn chunks() -> impl Strategy<Value = String> {
    let end = prop_oneof![8 => Just("\r\n".to_owned()), 1 => "[\r\n ]{0,3}"];
    let size = "0{0,3}[0-9a-fA-F]{0,2}";
    let chunk = (
        size,
        "(;[a-z= \"]{0,6})?| ",
        end.clone(),
        end.clone(),
        any::<bool>(),
    )
        .prop_map(|(size, extension, first, second, is_exact)| {
            let length =
                usize::from_str_radix(&format!("0{size}"), 16).unwrap() + usize::from(!is_exact);
            format!("{size}{extension}{first}{}{second}", "x".repeat(length))
        });
    (vec(chunk, 0..4), prop_oneof![4 => Just("0\r\n\r\n".to_owned()), 1 => "0\r\n[a-c]: [a-c]\r\n\r\n", 1 => "0[\r\n]{0,4}"]).prop_map(|(chunks, last)| chunks.concat() + &last)
}

fn bodies() -> impl Strategy<Value = Vec<u8>> {
    let framed = prop_oneof![
        ("[a-z]{0,12}", 0usize..4).prop_map(|(text, more)| format!(
            "content-length: {}\r\n\r\n{text}",
            text.len() + more.saturating_sub(2)
        )),
        chunks().prop_map(|chunks| format!("transfer-encoding: chunked\r\n\r\n{chunks}")),
        Just("\r\n".to_owned()),
        "content-length: [0-9,+]{1,3}\r\n(content-length: [0-9]\r\n|transfer-encoding: (chunked|gzip)\r\n)?\r\n[a-z]{0,9}",
    ];
    framed.prop_map(String::into_bytes)
}

proptest! {
    #![proptest_config(accepted(1000))]

    #[test]
    fn hyper_reads_accepted_requests_alike(messages in vec(bodies(), 1..4), version in "0\r\nconnection: keep-alive|1|1|1") {
        let input: Vec<u8> = messages.iter().flat_map(|body| [format!("POST /a HTTP/1.{version}\r\nhost: a\r\n").as_bytes(), body].concat()).collect();
        let (ours, _, _) = requests(Config::default(), &[&input]);
        let ours: Vec<_> = ours.into_iter().filter(|message| message.is_complete).collect();
        prop_assume!(!ours.is_empty());
        let theirs = run(hyper_requests(input.clone()));
        prop_assert!(theirs.len() >= ours.len(), "{} gave {ours:?} and {theirs:?}", text(&input));
        for (ours, theirs) in ours.iter().zip(&theirs) {
            prop_assert_eq!(&ours.start, &theirs.start, "{}", text(&input));
            prop_assert_eq!(&ours.content, &theirs.content, "{}", text(&input));
            prop_assert_eq!(&ours.fields, &theirs.fields, "{}", text(&input));
            prop_assert_eq!(&ours.trailers, &theirs.trailers, "{}", text(&input));
        }
    }

    #[test]
    fn hyper_reads_accepted_responses_alike(body in bodies(), line in "HTTP/1\\.1 (200 OK|404|204 x|304 x)|HTTP/1\\.0 200 OK", method in "GET|HEAD") {
        let input = [format!("{line}\r\n").as_bytes(), &body].concat();
        let (ours, error) = responses(&method, &[&input], true);
        prop_assume!(error.is_none() && ours.len() == 1 && ours[0].is_complete);
        let theirs = run(hyper_response(input.clone(), &method));
        prop_assert_eq!(Some((ours[0].start.0.clone(), ours[0].content.clone())), theirs, "{}", text(&input));
    }
}
