//! Any bytes as what a peer sends to our own HTTP/2 core, as a server and as a client: nothing panics, what waits and what
//! is granted stays within its bounds, no stream is told of again behind its end, and how the bytes are cut changes no event.
//! The first byte says to whom, with a tunnel's or a request's configuration, and how the bytes are cut.
//!
//! Parsers: HTTP/2, HPACK
#![no_main]

use std::collections::HashMap;

use bytes::Bytes;
use lateen_h2::{Code, Config, Connection, Event, FLOOR, Field, Known, Prebuilt, StreamId, Timestamp};
use libfuzzer_sys::fuzz_target;

const START: Timestamp = Timestamp::from_micros(1_000_000);

/// Little is enough to reach every limit.
fn config(requests: bool) -> Config {
    Config {
        max_frame: 1 << 14,
        max_header_list: 4096,
        max_fields: 20,
        tell_large: requests,
        extended_connect: requests,
        huffman: requests,
        max_streams: 4,
        allowance: 8 * FLOOR,
        send_buffer: 4096,
        send_total: 16 * 1024,
        unread_replies: 4096,
        ..Config::tunnel()
    }
}

fn begin(server: bool, requests: bool) -> Connection {
    let config = config(requests).share();
    if server {
        let mut connection = Connection::server(&config, START);
        let mut preface = &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"[..];
        while let Ok(Some(_)) = connection.receive(&mut preface, START) {}
        return connection;
    }
    let mut connection = Connection::client(&config, START);
    for method in ["GET", "HEAD", "POST"].into_iter().filter(|_| requests) {
        let head = [
            Field::known(Known::Method, method),
            Field::known(Known::Scheme, "http"),
            Field::known(Known::Path, "/"),
            Field::known(Known::Host, "a").kept(),
        ];
        let stream = connection.request(None, &head, false).expect("there is room");
        connection.send(stream, Bytes::from_static(&[7; 3000])).expect("it is open");
        connection.trailers(stream, &[Field::new("x-sum", "1").kept()]).expect("it is open");
    }
    for _ in 0..if requests { 0 } else { 3 } {
        let head = [Field::new(":method", "CONNECT").kept(), Field::new(":authority", "10.0.0.7:80")];
        let stream = connection.request(None, &head, false).expect("there is room");
        connection.send(stream, Bytes::from_static(&[7; 3000])).expect("it is open");
    }
    connection
}

/// What the caller is told, with data joined, and the error if it ends so.
fn run<'a>(server: bool, requests: bool, pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<String>, HashMap<u32, Vec<u8>>, String) {
    let mut connection = begin(server, requests);
    let ok = Prebuilt::new([Field::new(":status", "200")]);
    let (mut told, mut data, mut ended) = (Vec::new(), HashMap::<u32, Vec<u8>>::new(), Vec::new());
    let mut written = 0usize;
    for mut piece in pieces {
        loop {
            let event = match connection.receive(&mut piece, START) {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(error) => {
                    written += connection.output().map(<[u8]>::len).sum::<usize>();
                    assert!(written > 0, "it says why");
                    return (told, data, error.to_string());
                }
            };
            match event {
                Event::Data { stream, bytes, end } => {
                    assert!(!ended.contains(&stream));
                    data.entry(stream.get()).or_default().extend_from_slice(bytes);
                    connection.consumed(stream, bytes.len());
                    if end {
                        ended.push(stream);
                        told.push(format!("end {stream}"));
                        finish(&mut connection, stream);
                    }
                }
                Event::Request { stream, end, .. } => {
                    let fields = connection.take_fields();
                    fields.lines().for_each(|line| assert_eq!(line.known, Known::of(line.name)));
                    assert!(fields.lines().filter(|line| line.name[0] != b':').count() <= 20);
                    told.push(format!("{event:?} {:?}", fields.iter().collect::<Vec<_>>()));
                    if stream.get() % 4 == 1 {
                        let _ = connection.inform(stream, 103, &[Field::new("link", "</a>").kept()]);
                    }
                    match stream.get() % 6 {
                        1 => connection.reset(stream, Code::CANCEL),
                        3 => connection.release(stream),
                        _ => {
                            connection.respond(stream, Some(&ok), &[], false).expect("it is open");
                            connection.send(stream, Bytes::from_static(&[5; 2000])).expect("it is open");
                            if end {
                                finish(&mut connection, stream);
                            }
                        }
                    }
                }
                Event::TooLarge { stream, .. } => {
                    told.push(format!("{event:?}"));
                    let fields = [Field::known(Known::Status, "431")];
                    let _ = connection.respond(stream, None, &fields, true);
                    connection.release(stream);
                }
                Event::Response { .. } | Event::Trailers { .. } => {
                    told.push(format!("{event:?} {:?}", connection.fields().iter().collect::<Vec<_>>()));
                    if let Event::Trailers { stream } = event {
                        finish(&mut connection, stream);
                    }
                }
                Event::Reset { stream, .. } => {
                    told.push(format!("{event:?}"));
                    connection.release(stream);
                }
                _ => told.push(format!("{event:?}")),
            }
            // The peer reads when it is told something, and else not: what it does not read is bounded.
            while connection.has_output() {
                let n: usize = connection.output().map(<[u8]>::len).sum();
                written += n;
                connection.advance(n);
            }
        }
        let credit = connection.credit();
        assert!(credit.credit + credit.held <= credit.allowance);
        assert!(connection.active() <= 4);
        assert!(connection.queued() < 1 << 20);
    }
    (told, data, String::new())
}

/// Ends our direction, on some streams with trailers.
fn finish(connection: &mut Connection, stream: StreamId) {
    if stream.get() % 4 == 1 {
        let _ = connection.trailers(stream, &[Field::new("grpc-status", "0").kept()]);
    } else {
        let _ = connection.finish(stream);
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&how, bytes)) = data.split_first() else { return };
    let (server, requests) = (how & 1 == 0, how & 0x80 != 0);
    let (whole, data, error) = run(server, requests, std::iter::once(bytes));
    let step = usize::from((how & 0x7f) >> 1).max(1);
    let (parts, cut, cut_error) = run(server, requests, bytes.chunks(step));
    assert_eq!(whole, parts);
    assert_eq!(error, cut_error);
    if error.is_empty() {
        assert_eq!(data, cut);
    }
});
