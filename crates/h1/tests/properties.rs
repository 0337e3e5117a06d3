//! Properties: no input panics, cuts change nothing, and what one role writes the other reads.

mod common;

use bytes::Bytes;
use common::*;
use lateen_h1::{ClientConnection, Config, Field, Length, ServerConnection, ServerEvent};
use proptest::collection::vec;
use proptest::prelude::*;

/// Small limits, so that random inputs reach them.
fn small() -> Config {
    Config {
        max_head: 200,
        max_fields: 4,
        max_empty_lines: 2,
        max_informational: 2,
        chunk_overhead: 40,
        drain: 30,
    }
}

/// Text that resembles requests, with faults.
fn requests_like() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        4 => Just("GET / HTTP/1.1\r\n".to_owned()),
        2 => Just("POST /a HTTP/1.1\r\n".to_owned()),
        1 => Just("GET / HTTP/1.0\r\n".to_owned()),
        1 => "[A-Z]{0,4} {0,2}/?[a-z#]{0,4} {0,2}HTTP/[12]\\.[0129]\r?\n".prop_map(String::from),
        1 => Just("CONNECT a:80 HTTP/1.1\r\n".to_owned()),
        1 => Just("\r\n".to_owned()),
    ];
    let field = prop_oneof![
        4 => Just("host: a\r\n".to_owned()),
        2 => "content-length: [0-9]{1,2}\r\n",
        2 => Just("transfer-encoding: chunked\r\n".to_owned()),
        1 => "transfer-encoding: (chunked|gzip|,){0,3}\r\n",
        1 => "connection: (close|keep-alive|upgrade)\r\n",
        1 => "(upgrade|expect): (x|100-continue)\r\n",
        1 => "[a-z :\t]{0,8}\r?\n?",
    ];
    let body = prop_oneof![
        2 => "[a-z]{0,20}",
        2 => "([0-9a-f]{1,2}(;[a-z]{0,9})?\r\n[a-z]{0,12}\r\n){0,3}0\r\n([a-z]{1,3}: [a-z]\r\n){0,2}\r\n",
        1 => "[0-9a-f;\r\n]{0,20}",
    ];
    let message = (line, vec(field, 0..5), body).prop_map(|(line, fields, body)| {
        format!("{line}{}\r\n{body}", fields.concat()).into_bytes()
    });
    vec(message, 1..4).prop_map(|messages| messages.concat())
}

fn responses_like() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        4 => Just("HTTP/1.1 200 OK\r\n".to_owned()),
        1 => Just("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200\r\n".to_owned()),
        1 => "HTTP/1\\.[01] [0-9]{2,4} ?[a-z]{0,3}\r?\n",
    ];
    let field = prop_oneof![
        2 => "content-length: [0-9]{1,2}\r\n",
        2 => Just("transfer-encoding: chunked\r\n".to_owned()),
        1 => "connection: (close|keep-alive)\r\n",
        1 => " ?[a-z:]{0,5}\r?\n",
    ];
    (
        line,
        vec(field, 0..4),
        "([0-9a-f]{1,2}\r\n[a-z]{0,9}\r?\n?){0,4}(0\r\n\r\n)?",
    )
        .prop_map(|(line, fields, body)| {
            format!("{line}{}\r\n{body}", fields.concat()).into_bytes()
        })
}

fn pieces(input: &[u8], cuts: &[usize]) -> Vec<Vec<u8>> {
    let mut cuts: Vec<_> = cuts.iter().map(|cut| cut % (input.len() + 1)).collect();
    cuts.sort_unstable();
    let mut from = 0;
    let mut pieces: Vec<_> = cuts
        .iter()
        .map(|&cut| input[std::mem::replace(&mut from, cut)..cut].to_vec())
        .collect();
    pieces.push(input[from..].to_vec());
    pieces
}

fn slices(pieces: &[Vec<u8>]) -> Vec<&[u8]> {
    pieces.iter().map(|piece| &piece[..]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn cuts_do_not_change_requests(input in requests_like(), cuts in vec(any::<usize>(), 0..6), is_small in any::<bool>()) {
        let config = if is_small { small() } else { Config::default() };
        let (whole, error, _) = requests(config, &[&input]);
        let (parts, cut_error, _) = requests(config, &slices(&pieces(&input, &cuts)));
        prop_assert_eq!(&whole, &parts);
        prop_assert_eq!(error, cut_error);
        let single: Vec<_> = input.chunks(1).collect();
        let (bytes, byte_error, _) = requests(config, &single);
        prop_assert_eq!(whole, bytes);
        prop_assert_eq!(error, byte_error);
    }

    #[test]
    fn cuts_do_not_change_responses(input in responses_like(), cuts in vec(any::<usize>(), 0..6), method in "GET|HEAD|CONNECT") {
        let (whole, error) = responses(&method, &[&input], true);
        let (parts, cut_error) = responses(&method, &slices(&pieces(&input, &cuts)), true);
        prop_assert_eq!(whole, parts);
        prop_assert_eq!(error, cut_error);
    }

    #[test]
    fn no_bytes_make_a_server_panic(input in vec(any::<u8>(), 0..300), step in 1usize..40) {
        let _ = requests(small(), &input.chunks(step).collect::<Vec<_>>());
    }

    #[test]
    fn no_bytes_make_a_client_panic(input in vec(any::<u8>(), 0..300), step in 1usize..40) {
        let mut input = input;
        let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        let _ = responses("GET", &input.chunks(step).collect::<Vec<_>>(), true);
        input.splice(0..0, head.iter().copied());
        let _ = responses("GET", &input.chunks(step).collect::<Vec<_>>(), true);
    }

    #[test]
    fn a_server_reads_what_a_client_writes(
        method in "[A-Z]{1,7}",
        target in "/[!-\"$-~]{0,30}",
        fields in vec(("x-[a-zA-Z0-9!#$_.]{0,12}", "[!-~\u{80}-\u{ff}]([ -~\t]{0,30}[!-~])?"), 0..8),
        content in vec(vec(any::<u8>(), 0..400), 0..4),
        trailers in vec(("x-[a-z]{1,9}", "[!-~]{0,9}"), 0..3),
        is_chunked in any::<bool>(),
        step in 1usize..500,
    ) {
        prop_assume!(method != "CONNECT");
        let mut client = ClientConnection::new(Config::default());
        let total: usize = content.iter().map(Vec::len).sum();
        let length = if is_chunked { Length::Unknown } else { Length::Known(total as u64) };
        let given = || fields.iter().map(|(name, value)| Field::new(name, value.as_bytes()).unwrap());
        let host = field("host", "a");
        client.request(method.as_bytes(), target.as_bytes(), std::iter::once(host).chain(given()), length).unwrap();
        for part in &content {
            client.send(Bytes::from(part.clone())).unwrap();
        }
        if is_chunked {
            client.trailers(trailers.iter().map(|(name, value)| Field::new(name, value).unwrap())).unwrap();
        } else {
            client.finish().unwrap();
        }
        let wire = written(client.output());
        let (messages, error, rest) = requests(Config::default(), &wire.chunks(step).collect::<Vec<_>>());
        prop_assert_eq!((messages.len(), error, rest.len()), (1, None, 0));
        let message = &messages[0];
        prop_assert_eq!(&message.start, &(method, target));
        let expected: Vec<_> = given().map(|field| (text(field.name()), text(field.value()))).collect();
        prop_assert_eq!(&message.fields[1..1 + fields.len()], &expected[..]);
        prop_assert_eq!(&message.content, &content.concat());
        let expected: Vec<_> = trailers.iter().filter(|_| is_chunked).cloned().collect();
        prop_assert_eq!(&message.trailers, &expected);
        prop_assert!(message.is_complete);
    }

    #[test]
    fn a_client_reads_what_a_server_writes(
        status in 200u16..1000,
        method in "GET|HEAD|POST",
        is_old in any::<bool>(),
        content in vec(vec(any::<u8>(), 0..300), 0..4),
        is_counted in any::<bool>(),
        step in 1usize..500,
    ) {
        let version = if is_old { "HTTP/1.0\r\nconnection: keep-alive" } else { "HTTP/1.1" };
        let mut server = ServerConnection::new(Config::default());
        let mut input = Bytes::from(format!("{method} / {version}\r\nhost: a\r\n\r\n"));
        let is_read = matches!(server.receive(&mut input), Ok(Some(ServerEvent::Request { end: true, .. })));
        prop_assert!(is_read);
        let is_bodiless = method == "HEAD" || matches!(status, 204 | 304);
        let content = if is_bodiless { vec![] } else { content };
        let total: usize = content.iter().map(Vec::len).sum();
        let length = if status == 204 { Length::None } else if is_counted { Length::Known(total as u64) } else { Length::Unknown };
        server.respond(status, [field("x", "y")], length).unwrap();
        for part in content.iter().filter(|part| !part.is_empty()) {
            server.send(Bytes::from(part.clone())).unwrap();
        }
        server.finish().unwrap();
        let wire = written(server.output());
        let (messages, error) = responses(&method, &wire.chunks(step).collect::<Vec<_>>(), true);
        prop_assert_eq!((messages.len(), error), (1, None));
        prop_assert_eq!(&messages[0].start.0, &status.to_string());
        prop_assert_eq!(&messages[0].content, &content.concat());
        prop_assert!(messages[0].is_complete);
        server.advance(wire.len());
        prop_assert!(server.is_idle() || server.is_done());
    }
}
