//! Against the `h2` crate with ordinary messages: bodies, their lengths, trailers and informational answers, with our client
//! and its server, and the reverse.

mod common;

use std::collections::BTreeMap;
use std::future::poll_fn;

use bytes::Bytes;
use common::drive::{drive, within};
use common::{ok, ordinary};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use lateen_h2::{Code, Config, Connection, Event, Field, Known, StreamId, Timestamp};
use tokio::io::duplex;
use tokio::task::spawn_local;

const REQUESTS: usize = 40;

/// What a request and its answer are.
struct Exchange {
    method: &'static str,
    status: u16,
    /// The same in both directions.
    body: Vec<u8>,
    /// The message says how long its body is.
    counted: bool,
    trailers: Option<String>,
    hints: usize,
}

fn exchange(number: usize) -> Exchange {
    const SIZES: [usize; 5] = [0, 5, 16_384, 16_385, 200_000];
    let size = SIZES[number % SIZES.len()];
    let (method, status) = match number % 8 {
        6 => ("HEAD", 200),
        7 => ("DELETE", 204),
        _ => ("POST", 200),
    };
    Exchange {
        method,
        status,
        body: (0..size).map(|n| (n * 7 + number) as u8).collect(),
        counted: number.is_multiple_of(2),
        trailers: (!number.is_multiple_of(3)).then(|| format!("sum-{number}")),
        hints: number % 4,
    }
}

impl Exchange {
    /// Content that an answer has.
    fn answer(&self) -> &[u8] {
        match (self.method, self.status) {
            ("HEAD", _) | (_, 204) => &[],
            _ => &self.body,
        }
    }

    fn has_request_body(&self) -> bool {
        self.method != "HEAD"
    }
}

/// What came of one message.
#[derive(Default)]
struct Got {
    number: usize,
    stream: Option<StreamId>,
    status: u16,
    body: Vec<u8>,
    hints: usize,
    trailers: Option<String>,
    ended: bool,
}

fn text(value: Option<&[u8]>) -> Option<String> {
    value.map(|value| String::from_utf8(value.to_vec()).expect("it is text"))
}

/// Sends all of a message of ours behind its header block.
fn send(connection: &mut Connection, stream: StreamId, body: &[u8], trailers: Option<&String>) {
    let body = Bytes::copy_from_slice(body);
    connection.send(stream, body).unwrap();
    match trailers {
        Some(value) => {
            let fields = [
                Field::new("x-sum", value),
                Field::new("grpc-status", "0").kept(),
            ];
            connection.trailers(stream, &fields).unwrap();
        }
        None => connection.finish(stream).unwrap(),
    }
}

fn note(got: &mut Got, connection: &mut Connection, event: &Event<'_>) {
    match event {
        Event::Data { stream, bytes, end } => {
            got.body.extend_from_slice(bytes);
            got.ended |= end;
            connection.consumed(*stream, bytes.len());
        }
        Event::Trailers { .. } => {
            got.trailers = text(connection.fields().get("x-sum"));
            got.ended = true;
        }
        Event::Informational { status, .. } => {
            assert_eq!(*status, 103);
            assert!(connection.fields().find(Known::Link).is_some());
            got.hints += 1;
        }
        _ => {}
    }
}

/// Sends a message of the crate's behind its header block.
async fn send_theirs(mut stream: h2::SendStream<Bytes>, body: &[u8], trailers: Option<&String>) {
    let mut rest = Bytes::copy_from_slice(body);
    while !rest.is_empty() {
        stream.reserve_capacity(rest.len());
        let room = poll_fn(|cx| stream.poll_capacity(cx)).await;
        let room = room.unwrap().unwrap();
        let piece = rest.split_to(room.min(rest.len()));
        stream.send_data(piece, false).unwrap();
    }
    match trailers {
        Some(value) => {
            let mut fields = HeaderMap::new();
            fields.insert("x-sum", value.parse().unwrap());
            fields.insert("grpc-status", "0".parse().unwrap());
            stream.send_trailers(fields).unwrap();
        }
        None => stream.send_data(Bytes::new(), true).unwrap(),
    }
}

async fn take_theirs(mut body: h2::RecvStream) -> (Vec<u8>, Option<String>) {
    let mut got = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece.unwrap();
        body.flow_control().release_capacity(piece.len()).unwrap();
        got.extend_from_slice(&piece);
    }
    let trailers = body.trailers().await.unwrap();
    let sum = trailers.map(|fields| fields["x-sum"].to_str().unwrap().to_owned());
    (got, sum)
}

/// Answers a request that is whole.
fn answer(connection: &mut Connection, got: &Got) {
    let (what, stream) = (exchange(got.number), got.stream.expect("it was announced"));
    if what.has_request_body() {
        assert!(got.body == what.body, "request {}", got.number);
        assert_eq!(got.trailers, what.trailers);
    }
    for _ in 0..what.hints {
        let fields = [Field::new("link", "</a>; rel=preload")];
        connection.inform(stream, 103, &fields).unwrap();
    }
    let status = what.status.to_string();
    let length = what.body.len().to_string();
    let mut fields = vec![Field::known(Known::Status, &status)];
    if what.counted && what.status != 204 {
        fields.push(Field::known(Known::ContentLength, &length));
    }
    let over = what.answer().is_empty() && what.trailers.is_none();
    connection.respond(stream, None, &fields, over).unwrap();
    if !over {
        send(connection, stream, what.answer(), what.trailers.as_ref());
    }
    connection.release(stream);
}

async fn our_server_serves_it(pipe: usize, config: Config) {
    let (near, far) = duplex(pipe);
    let connection = Connection::server(&config.share(), Timestamp::default());
    let mut requests = BTreeMap::<u32, Got>::new();
    let server = spawn_local(drive(far, connection, move |connection, event| {
        let stream = match event {
            Some(Event::Request { stream, end, .. }) => {
                let fields = connection.take_fields();
                let number = text(fields.get("x-number")).expect("it is there");
                let got = Got {
                    number: number.parse().expect("a number"),
                    stream: Some(stream),
                    ended: end,
                    ..Got::default()
                };
                assert_eq!(
                    fields.find(Known::Method),
                    Some(exchange(got.number).method.as_bytes())
                );
                requests.insert(stream.get(), got);
                stream
            }
            Some(Event::Data { stream, .. } | Event::Trailers { stream }) => stream,
            Some(Event::Failed(error)) => panic!("{error}"),
            Some(Event::Reset { stream, code, .. }) => panic!("{stream} {code}"),
            _ => return,
        };
        let got = requests.get_mut(&stream.get()).expect("it was announced");
        if let Some(event) = event {
            note(got, connection, &event);
        }
        if got.ended {
            answer(connection, got);
        }
    }));
    let (send, client) = h2::client::handshake(near).await.unwrap();
    spawn_local(async move { client.await.unwrap() });
    let mut tasks = Vec::new();
    for number in 0..REQUESTS {
        let mut send = send.clone().ready().await.unwrap();
        tasks.push(spawn_local(async move {
            let what = exchange(number);
            let mut request = Request::builder()
                .method(Method::from_bytes(what.method.as_bytes()).unwrap())
                .uri("http://reviews:9080/reviews/1")
                .header("x-number", number);
            if what.counted && what.has_request_body() {
                request = request.header("content-length", what.body.len());
            }
            let (mut response, stream) = send
                .send_request(request.body(()).unwrap(), !what.has_request_body())
                .unwrap();
            let upload = what.has_request_body().then(|| {
                let what = exchange(number);
                spawn_local(async move {
                    send_theirs(stream, &what.body, what.trailers.as_ref()).await;
                })
            });
            let mut hints = 0;
            while let Some(hint) = poll_fn(|cx| response.poll_informational(cx)).await {
                assert_eq!(hint.unwrap().status(), StatusCode::EARLY_HINTS);
                hints += 1;
            }
            let response = response.await.unwrap();
            assert_eq!(
                (response.status().as_u16(), hints),
                (what.status, what.hints)
            );
            let (body, sum) = take_theirs(response.into_body()).await;
            assert!(body == what.answer(), "answer {number}");
            assert_eq!(sum, what.trailers);
            if let Some(upload) = upload {
                upload.await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    drop(send);
    let connection = server.await.unwrap().unwrap();
    assert_eq!((connection.active(), connection.credit().held), (0, 0));
}

async fn it_serves_one(
    request: Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
) {
    let number = &request.headers()["x-number"];
    let what = exchange(number.to_str().unwrap().parse().unwrap());
    assert_eq!(request.method().as_str(), what.method);
    let (body, sum) = take_theirs(request.into_body()).await;
    if what.has_request_body() {
        assert!(body == what.body);
        assert_eq!(sum, what.trailers);
    }
    for _ in 0..what.hints {
        let hint = Response::builder()
            .status(103)
            .header("link", "</a>; rel=preload");
        respond.send_informational(hint.body(()).unwrap()).unwrap();
    }
    let mut response = Response::builder().status(what.status);
    if what.counted && what.status != 204 {
        response = response.header("content-length", what.body.len());
    }
    let over = what.answer().is_empty() && what.trailers.is_none();
    let stream = respond.send_response(response.body(()).unwrap(), over);
    if !over {
        send_theirs(stream.unwrap(), what.answer(), what.trailers.as_ref()).await;
    }
}

async fn it_serves_our_client(pipe: usize, config: Config) {
    let (near, far) = duplex(pipe);
    spawn_local(async move {
        let mut server = h2::server::handshake(far).await.unwrap();
        while let Some(request) = server.accept().await {
            let (request, respond) = request.unwrap();
            spawn_local(it_serves_one(request, respond));
        }
    });
    let connection = Connection::client(&config.share(), Timestamp::default());
    let mut answers = BTreeMap::<u32, Got>::new();
    let mut opened = 0;
    let result = drive(near, connection, |connection, event| {
        let stream = match event {
            Some(Event::Response {
                stream,
                status,
                end,
            }) => {
                let got = answers.get_mut(&stream.get()).expect("it was asked");
                (got.status, got.ended) = (status, end);
                stream
            }
            Some(
                Event::Data { stream, .. }
                | Event::Trailers { stream }
                | Event::Informational { stream, .. },
            ) => stream,
            Some(Event::Failed(error)) => panic!("{error}"),
            Some(Event::Reset { stream, code, .. }) => panic!("{stream} {code}"),
            Some(_) => return,
            None => {
                while opened < REQUESTS && connection.is_acquainted() {
                    let what = exchange(opened);
                    let (number, length) = (opened.to_string(), what.body.len().to_string());
                    let mut fields = ordinary(what.method).to_vec();
                    fields.push(Field::new("x-number", &number));
                    if what.counted && what.has_request_body() {
                        fields.push(Field::known(Known::ContentLength, &length));
                    }
                    let Ok(stream) = connection.request(None, &fields, !what.has_request_body())
                    else {
                        break;
                    };
                    if what.has_request_body() {
                        send(connection, stream, &what.body, what.trailers.as_ref());
                    }
                    let got = Got {
                        number: opened,
                        ..Got::default()
                    };
                    answers.insert(stream.get(), got);
                    opened += 1;
                }
                if opened == REQUESTS && answers.values().all(|got| got.ended) {
                    connection.drain();
                }
                return;
            }
        };
        let got = answers.get_mut(&stream.get()).expect("it was asked");
        if let Some(event) = event {
            note(got, connection, &event);
        }
        if got.ended {
            connection.release(stream);
        }
    })
    .await;
    assert_eq!(result.unwrap().active(), 0);
    assert_eq!(answers.len(), REQUESTS);
    for got in answers.into_values() {
        let what = exchange(got.number);
        assert_eq!((got.status, got.hints), (what.status, what.hints));
        assert!(got.body == what.answer(), "answer {}", got.number);
        assert_eq!(got.trailers, what.trailers);
    }
}

fn configs() -> [(usize, Config); 3] {
    [
        (64 * 1024, Config::requests()),
        (
            700,
            Config {
                turn: 1024,
                huffman: true,
                ..Config::requests()
            },
        ),
        (
            1 << 20,
            Config {
                stream_first: 1 << 20,
                max_streams: 8,
                ..Config::requests()
            },
        ),
    ]
}

#[tokio::test]
async fn our_server_answers_the_h2_crate() {
    for (pipe, config) in configs() {
        within(our_server_serves_it(pipe, config)).await;
    }
}

#[tokio::test]
async fn the_h2_crate_answers_our_client() {
    for (pipe, config) in configs() {
        within(it_serves_our_client(pipe, config)).await;
    }
}

/// A tunnel for WebSocket through an extended CONNECT, in both roles.
#[tokio::test]
async fn extended_connect_agrees_with_the_h2_crate() {
    within(async {
        let (near, far) = duplex(64 * 1024);
        let connection = Connection::server(&Config::requests().share(), Timestamp::default());
        let server = spawn_local(drive(far, connection, |connection, event| match event {
            Some(Event::Request {
                stream, connect, ..
            }) => {
                assert!(connect);
                let protocol = connection.fields().find(Known::Protocol);
                assert_eq!(protocol, Some(&b"websocket"[..]));
                connection.respond(stream, Some(&ok()), &[], false).unwrap();
            }
            Some(Event::Data { stream, bytes, end }) => {
                let echo = Bytes::copy_from_slice(bytes);
                connection.send(stream, echo).unwrap();
                connection.consumed(stream, bytes.len());
                if end {
                    connection.finish(stream).unwrap();
                }
            }
            Some(Event::Reset { code, .. }) => assert_eq!(code, Code::CANCEL),
            _ => {}
        }));
        let (mut send, client) = h2::client::handshake(near).await.unwrap();
        spawn_local(async move { client.await.unwrap() });
        while !send.is_extended_connect_protocol_enabled() {
            tokio::task::yield_now().await;
        }
        let mut request = Request::builder()
            .method(Method::CONNECT)
            .uri("https://a/chat")
            .body(())
            .unwrap();
        let protocol = h2::ext::Protocol::from_static("websocket");
        request.extensions_mut().insert(protocol);
        let (response, mut stream) = send.send_request(request, false).unwrap();
        let response = response.await.unwrap();
        stream.send_data("hello".into(), true).unwrap();
        assert_eq!(take_theirs(response.into_body()).await.0, b"hello");
        drop((send, stream));
        server.await.unwrap().unwrap();
    })
    .await;
    within(async {
        let (near, far) = duplex(64 * 1024);
        spawn_local(async move {
            let mut builder = h2::server::Builder::new();
            builder.enable_connect_protocol();
            let mut server = builder.handshake::<_, Bytes>(far).await.unwrap();
            while let Some(request) = server.accept().await {
                let (request, mut respond) = request.unwrap();
                let protocol = request.extensions().get::<h2::ext::Protocol>();
                assert_eq!(protocol.expect("it is there").as_str(), "websocket");
                let mut stream = respond.send_response(Response::new(()), false).unwrap();
                stream.send_data("hello".into(), true).unwrap();
            }
        });
        let connection = Connection::client(&Config::requests().share(), Timestamp::default());
        let (mut asked, mut got) = (false, Vec::new());
        let result = drive(near, connection, |connection, event| match event {
            Some(Event::Data { stream, bytes, end }) => {
                got.extend_from_slice(bytes);
                if end {
                    connection.release(stream);
                    connection.drain();
                }
            }
            None if !asked && connection.allows_extended_connect() => {
                asked = true;
                let mut fields = ordinary("CONNECT").to_vec();
                fields.push(Field::new(":protocol", "websocket"));
                fields.swap(4, 5);
                connection.request(None, &fields, false).unwrap();
            }
            _ => {}
        })
        .await;
        assert!(result.is_ok());
        assert_eq!(got, b"hello");
    })
    .await;
}
