//! Requests that leave as HTTP/1.1: parsers of others read exactly those that the message model has, whatever a client sends.

mod passage;

use std::path::Path;

use lateen_exchange::Protocol;
use passage::{Course, check, written};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

/// The number of requests of a text of frames that have left.
fn check_text(how: u8, text: &[u8]) -> usize {
    let frames = written::frames(text);
    check(
        Course::of(how, Protocol::Http2),
        &[written::PREFACE, &frames].concat(),
    )
}

/// Committed inputs of the fuzz targets. One whose name begins with `refused` has no request that leaves as a whole, and all others
/// have one. Inputs that a fuzzer found are in it by a digest, and only pass.
#[test]
fn nothing_leaves_of_requests_that_parsers_may_read_differently() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let mut refused = 0;
    for (target, protocol) in [("h2_to_h1", Protocol::Http2), ("h1_to_h1", Protocol::Http1)] {
        for file in std::fs::read_dir(corpus.join(target)).expect("there is a corpus") {
            let file = file.expect("it can be listed").path();
            let name = file.file_name().expect("it has a name").to_string_lossy();
            let input = std::fs::read(&file).expect("it can be read");
            let (how, rest) = input.split_first().expect("it is not empty");
            let left = match protocol {
                Protocol::Http2 if how & 64 == 0 => check_text(*how, rest),
                Protocol::Http2 => check(
                    Course::of(*how, protocol),
                    &[written::PREFACE, rest].concat(),
                ),
                Protocol::Http1 => check(Course::of(*how, protocol), rest),
            };
            match name.split_once('_') {
                Some(("refused", _)) => {
                    refused += 1;
                    assert_eq!(left, 0, "{target}/{name}");
                }
                Some(_) => assert!(left > 0, "{target}/{name}"),
                None => {}
            }
        }
    }
    assert!(refused > 0);
}

#[test]
fn a_request_leaves_with_its_content_and_trailers() {
    for how in [b'0', b'1', b'4', b'5'] {
        let text = ">1\n:method: POST\n:scheme: http\n:authority: a\n:path: /b?c\nte: trailers\n\
            =1 hello\n>1.\nx-sum: 7\n\
            >3.\n:method: GET\n:scheme: http\n:authority: a\n:path: /\n";
        assert_eq!(check_text(how, text.as_bytes()), 2, "{how}");
    }
}

#[test]
fn an_early_answer_leaves_a_request_incomplete_and_its_connection_unused() {
    let text = ">1\n:method: POST\n:scheme: http\n:authority: a\n:path: /\ncontent-length: 9\n=1 hell\n\
        >3.\n:method: GET\n:scheme: http\n:authority: a\n:path: /\n";
    assert_eq!(check_text(b'2', text.as_bytes()), 1);
}

/// A name or a value as the text of frames has it.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        20 => select(vec![
            "x-a", "x-b", "accept", "cookie", "expect", "user-agent", "traceparent",
            "x-forwarded-for", "x-envoy-original-path", "content-type", "sec-websocket-key",
        ]).prop_map(str::to_owned),
        2 => select(vec![
            "content-length", "content_length", "te", "transfer-encoding", "transfer_encoding", "connection", "host",
            "upgrade", "keep-alive", "proxy-connection", "trailer", "http2-settings", "Host", "a b", "a\\cb",
            "a\\r\\nb", "a\\0", ":path", ":authority", ":protocol", ":status", "", "\u{e9}",
        ]).prop_map(str::to_owned),
        1 => "[!#$%&'*+.^_`|~0-9a-z-]{1,10}",
    ]
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        20 => "[!-~]([ -~\u{e9}]{0,16}[!-~])?".prop_map(|value| value.replace('\\', "/")),
        6 => select(vec![
            "", "0", "4", "5", "chunked", "trailers", "100-continue", "close", "websocket", "a", "a:80", "a=b; c=d",
            "a\\tb", "dGhlIHNhbXBsZSBub25jZQ==", "gzip, chunked", "identity", "+4", "4, 4", "18446744073709551616",
        ]).prop_map(str::to_owned),
        1 => select(vec![
            "a\\r\\nx-b: c", "a\\r\\n\\r\\nGET / HTTP/1.1\\r\\n", "a\\nb", "a\\rb", "a\\0b", " a", "a ", "\\t",
        ]).prop_map(str::to_owned),
    ]
}

/// Pseudo-header fields, mostly good.
fn pseudo() -> impl Strategy<Value = String> {
    let method = prop_oneof![
        8 => select(vec!["GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE"]).prop_map(str::to_owned),
        1 => select(vec!["CONNECT", "get", "Post", "GET / HTTP/1.1\\r\\nx: ", "A B", "PRI", "M-SEARCH"]).prop_map(str::to_owned),
    ];
    let authority = prop_oneof![
        8 => select(vec!["a", "a:80", "A.example.", "[::1]:8080", "10.0.0.7"]).prop_map(str::to_owned),
        1 => select(vec!["", "a,b", "u@a", "a\\r\\nx: b", "a/b", "a:0", "a b", "[::1"]).prop_map(str::to_owned),
    ];
    let path = prop_oneof![
        12 => "/[a-z0-9/.;=&?+~:@!$'()*,_-]{0,16}",
        2 => select(vec!["/", "/a?b", "*", "//a//b", "/a/%2e%2e/b", "/..;/a", "/a\\\\b", "/a?\"{}<>"]).prop_map(str::to_owned),
        1 => select(vec![
            "", "a", "http://b/", "/ HTTP/1.1\\r\\nx: y", "/a#b", "/%00", "/a b", "/\u{e9}", "/../..",
        ]).prop_map(str::to_owned),
    ];
    (method, authority, path, 0..30u8).prop_map(|(method, authority, path, odd)| {
        let mut text = format!(":method: {method}\n");
        let scheme = match odd {
            0 => ":scheme: https\n",
            1 => "",
            2 => ":scheme: ftp\\r\\n\n",
            _ => ":scheme: http\n",
        };
        if method != "CONNECT" || odd == 3 {
            text += scheme;
            text += &format!(":path: {path}\n");
        }
        if odd != 4 {
            text += &format!(":authority: {authority}\n");
        }
        if odd == 5 {
            text += ":protocol: websocket\n";
        }
        text
    })
}

/// One request of HTTP/2 as lines: its frames are told apart by lines that begin with `>` or `=`.
fn request(stream: u32) -> impl Strategy<Value = String> {
    let fields = vec((name(), value()), 0..5);
    let content = vec("[a-z\\r\\n]{0,9}", 0..3);
    let trailers = prop::option::weighted(0.3, vec((name(), value()), 0..3));
    (pseudo(), fields, content, trailers, 0..10u8).prop_map(
        move |(pseudo, fields, content, trailers, how)| {
            let lines = |fields: &[(String, String)]| -> String {
                let lines = fields.iter();
                lines
                    .map(|(name, value)| format!("{name}: {value}\n"))
                    .collect()
            };
            let length: usize = content.iter().map(String::len).sum();
            let ends = content.is_empty() && trailers.is_none() && how != 0;
            let stop = if ends { "." } else { "" };
            let mut text = format!(">{stream}{stop}\n{pseudo}");
            match how {
                1..=4 => text += &format!("content-length: {length}\n"),
                5 => text += &format!("content-length: {}\n", length + 1),
                _ => {}
            }
            text += &lines(&fields);
            for (n, piece) in content.iter().enumerate() {
                let is_last = n + 1 == content.len() && trailers.is_none() && how != 0;
                let stop = if is_last { "." } else { "" };
                let piece = piece.replace('\r', "\\r").replace('\n', "\\n");
                text += &format!("={stream}{stop} {piece}\n");
            }
            if let Some(trailers) = trailers {
                text += &format!(">{stream}.\n{}", lines(&trailers));
            }
            text
        },
    )
}

/// A request of HTTP/1, mostly good, and what stands behind it.
fn request1() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        8 => "(GET|POST|HEAD|OPTIONS) /[a-z/.;%?-]{0,9} HTTP/1\\.1\r\n",
        1 => "(GET http://a/b|OPTIONS \\*|CONNECT a:80|get /|GET  /|GET /a#b) HTTP/1\\.[01]\r\n",
    ];
    let fields = vec((name(), value()), 0..4);
    let framing = prop_oneof![
        4 => "[a-z]{0,9}".prop_map(|text| format!("content-length: {}\r\n\r\n{text}", text.len())),
        4 => vec("[a-z]{1,9}", 0..3).prop_map(|pieces| {
            let pieces = pieces.iter().map(|piece| format!("{:x}\r\n{piece}\r\n", piece.len()));
            format!("transfer-encoding: chunked\r\n\r\n{}0\r\n\r\n", pieces.collect::<String>())
        }),
        3 => Just("\r\n".to_owned()),
        1 => "content-length: [0-9+]{1,2}\r\n(content-length: 4|transfer-encoding: (chunked|x)|)\r\n\r\n[a-z0-9\r\n]{0,9}",
        1 => "transfer-encoding: chunked\r\n\r\n[0-9a-f]{1,2}(;a=b)?\r?\n[a-z]{0,9}\r\n0\r\n(a: b\r\n|host: b\r\n)?\r\n",
    ];
    (line, fields, framing, 0..9u8).prop_map(|(line, fields, framing, host)| {
        let mut text = line;
        if host != 0 {
            text += "Host: a\r\n";
        }
        for (name, value) in fields {
            if !name.is_empty() && !name.starts_with(':') {
                text += &format!("{name}: {value}\r\n")
                    .replace("\\r", "\r")
                    .replace("\\n", "\n");
            }
        }
        text + &framing
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn requests_of_http2_leave_as_the_model_has_them(how in any::<u8>(), one in request(1), two in request(3), three in request(5)) {
        check_text(how, [one, two, three].concat().as_bytes());
    }

    #[test]
    fn requests_of_http1_leave_as_the_model_has_them(how in any::<u8>(), requests in vec(request1(), 1..4)) {
        check(Course::of(how, Protocol::Http1), requests.concat().as_bytes());
    }
}

/// Requests that are hardly ever accepted would show nothing.
#[test]
fn many_of_the_drawn_requests_leave() {
    let mut runner = TestRunner::deterministic();
    let mut left = [0, 0];
    for _ in 0..200 {
        let text = request(1).new_tree(&mut runner).expect("it can be drawn");
        left[0] += check_text(b'0', text.current().as_bytes());
        let text = request1().new_tree(&mut runner).expect("it can be drawn");
        let how = Course::of(b'0', Protocol::Http1);
        left[1] += check(how, text.current().as_bytes());
    }
    assert!(left.iter().all(|left| *left > 50), "{left:?} of 200");
}
