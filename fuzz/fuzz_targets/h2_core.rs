//! Any bytes as what a peer sends to our own HTTP/2 core, as a server and as a client: nothing panics, what waits and what
//! is lent stays within its bounds, no stream is told of again behind its end, and how the bytes are cut changes no event.
//! The first byte says to whom, and how the bytes are cut.
#![no_main]

use std::collections::HashMap;

use bytes::Bytes;
use lateen_h2::{Code, Config, Connection, Event, FLOOR, Field, Moment, Prebuilt, StreamId};
use libfuzzer_sys::fuzz_target;

const START: Moment = Moment::from_micros(1_000_000);

/// Little is enough to reach every limit.
fn config() -> Config {
    Config {
        max_frame: 1 << 14,
        max_header_list: 4096,
        max_streams: 4,
        allowance: 8 * FLOOR,
        send_buffer: 4096,
        send_total: 16 * 1024,
        unread_replies: 4096,
        ..Config::tunnel()
    }
}

fn begin(server: bool) -> Connection {
    let config = config().share();
    if server {
        let mut connection = Connection::server(&config, START);
        let mut preface = &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"[..];
        while let Ok(Some(_)) = connection.receive(&mut preface, START) {}
        return connection;
    }
    let mut connection = Connection::client(&config, START);
    for _ in 0..3 {
        let head = [Field::new(":method", "CONNECT").kept(), Field::new(":authority", "10.0.0.7:80")];
        let stream = connection.request(None, &head, false).expect("there is room");
        connection.send(stream, Bytes::from_static(&[7; 3000])).expect("it is open");
    }
    connection
}

/// What the caller is told, with data joined, and the error if it ends so.
fn run<'a>(server: bool, pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<String>, HashMap<u32, Vec<u8>>, String) {
    let mut connection = begin(server);
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
                    told.push(format!("{event:?} {:?}", connection.fields().iter().collect::<Vec<_>>()));
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

fn finish(connection: &mut Connection, stream: StreamId) {
    let _ = connection.finish(stream);
}

fuzz_target!(|data: &[u8]| {
    let Some((&how, bytes)) = data.split_first() else { return };
    let server = how & 1 == 0;
    let (whole, data, error) = run(server, std::iter::once(bytes));
    let step = usize::from(how >> 1).max(1);
    let (parts, cut, cut_error) = run(server, bytes.chunks(step));
    assert_eq!(whole, parts);
    assert_eq!(error, cut_error);
    if error.is_empty() {
        assert_eq!(data, cut);
    }
});
