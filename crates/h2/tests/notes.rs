//! Frames of messages that are noted until they are written.

mod common;

use bytes::Bytes;
use common::{client, connect, frame, small};
use lateen_h2::{Field, FrameNote, Timestamp};

const NOW: Timestamp = Timestamp::from_micros(1_000_000);

/// The notes of `connection`, which end within so many bytes.
fn noted(client: &mut common::End, within: usize) -> (u64, Vec<FrameNote>) {
    let (written, framed) = client.connection.take_notes();
    let framed: Vec<_> = framed.collect();
    let last = framed.last().map_or(0, |framed| framed.end);
    assert!(last <= written + within as u64);
    (written, framed)
}

#[test]
fn blocks_and_data_are_noted_where_they_lie_in_the_output() {
    let mut client = client(small(), 0);
    client.connection.note_frames();
    let large = "x".repeat(20_000);
    let fields = [connect("a:1").as_slice(), &[Field::new("x-large", &large)]].concat();
    let first = client
        .connection
        .request(None, &connect("b:1"), false)
        .unwrap();
    // Frames that concern no message lie between.
    client.receive(&frame(6, 0, 0, &[1; 8]), NOW).unwrap();
    let content = Bytes::from(vec![7; 1000]);
    client.connection.send(first, content).unwrap();
    client.connection.finish(first).unwrap();
    // Data is framed while little waits.
    assert!(client.connection.has_output());
    let second = client.connection.request(None, &fields, false).unwrap();
    let output = client.connection.output().collect::<Vec<_>>().concat();
    let (written, framed) = noted(&mut client, output.len());
    assert_eq!(written, 0);
    let kinds: Vec<_> = framed
        .iter()
        .map(|framed| {
            let end = framed.end as usize;
            let bytes = &output[end - framed.bytes as usize..end];
            let id = u32::from_be_bytes(bytes[5..9].try_into().unwrap());
            assert_eq!(id, framed.stream.get());
            assert_eq!(bytes[3] == 1, framed.is_block, "HEADERS have type 1");
            (framed.stream, bytes[3])
        })
        .collect();
    assert_eq!(kinds, [(first, 1), (first, 0), (second, 1)]);
    assert_eq!(framed[1].bytes, 9 + 1000);
    // A block in two frames is one.
    assert!(framed[2].bytes > 1 << 14);
    assert_eq!(noted(&mut client, output.len()), (0, Vec::new()));
}

#[test]
fn frames_that_are_written_are_forgotten() {
    let mut client = client(small(), 0);
    client.connection.note_frames();
    let ask = |client: &mut common::End| {
        let request = client.connection.request(None, &connect("a:1"), false);
        request.unwrap()
    };
    ask(&mut client);
    let first = client.connection.unsent();
    let second = ask(&mut client);
    client.connection.advance(first + 1);
    let (written, framed) = noted(&mut client, usize::MAX >> 1);
    assert_eq!(written, first as u64 + 1);
    let [framed] = framed[..] else {
        panic!("{framed:?}");
    };
    assert_eq!(framed.stream, second);
    assert_eq!(u64::from(framed.bytes), framed.end - first as u64);
    ask(&mut client);
    client.connection.advance(usize::MAX);
    let written = client.connection.written();
    assert_eq!(noted(&mut client, 0), (written, Vec::new()));
    client.connection.rest();
    assert_eq!(client.connection.written(), written);
    let third = ask(&mut client);
    let (_, framed) = noted(&mut client, 1000);
    assert_eq!(framed[0].stream, third);
    assert_eq!(framed[0].end, written + client.connection.unsent() as u64);
}

#[test]
fn nothing_is_noted_unless_it_is_wanted() {
    let mut client = client(small(), 0);
    let request = client.connection.request(None, &connect("a:1"), false);
    request.unwrap();
    assert_eq!(noted(&mut client, 0), (0, Vec::new()));
}

#[test]
fn what_waits_is_dropped_for_good() {
    let mut client = client(small(), 0);
    client.connection.note_frames();
    let request = client.connection.request(None, &connect("a:1"), false);
    let stream = request.unwrap();
    let content = Bytes::from(vec![7; 200_000]);
    client.connection.send(stream, content).unwrap();
    client.connection.drop_output();
    let connection = &mut client.connection;
    assert_eq!((connection.queued(), connection.queued_of(stream)), (0, 0));
    assert!(!connection.has_output());
}

#[test]
fn data_is_framed_while_little_waits() {
    let mut client = client(small(), 0);
    client.connection.note_frames();
    let stream = client.connection.request(None, &connect("a:1"), false);
    let stream = stream.unwrap();
    let send = |client: &mut common::End| {
        let content = Bytes::from(vec![7; 3000]);
        client.connection.send(stream, content).unwrap();
        assert!(client.connection.has_output());
        client.connection.unsent()
    };
    let first = send(&mut client);
    assert!(first > 3000);
    let second = send(&mut client);
    assert_eq!(second, first + 9 + 3000);
    assert_eq!(send(&mut client), second);
    client.connection.advance(second - 4096);
    assert!(client.connection.has_output());
    assert_eq!(client.connection.unsent(), 4096);
    client.connection.advance(1);
    assert!(client.connection.has_output());
    assert_eq!(client.connection.unsent(), 4095 + 9 + 3000);
}
