//! Exchanges on one connection: order, persistence, expectations, and answers before the request is complete.

mod common;

use bytes::Bytes;
use common::*;
use lateen_h1::{
    ClientConnection, ClientEvent, Config, Error, Length, ServerConnection, ServerEvent, WriteError,
};

const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

/// Reads a request without content and leaves the rest in `input`.
fn read(server: &mut ServerConnection, input: &mut Bytes) -> bool {
    matches!(
        server.receive(input),
        Ok(Some(ServerEvent::Request { end: true, .. }))
    )
}

#[test]
fn a_pipelined_request_stays_unread_until_the_answer_is_complete() {
    let mut server = server();
    let mut input = Bytes::from(GET.repeat(2));
    assert!(read(&mut server, &mut input));
    assert!(server.receive(&mut input).unwrap().is_none() && !server.wants_input());
    server.respond(200, [], Length::Known(2)).unwrap();
    server.send(Bytes::from_static(b"a")).unwrap();
    assert!(
        server.receive(&mut input).unwrap().is_none(),
        "the answer is not complete"
    );
    assert_eq!(&input[..], GET.as_bytes());
    server.send(Bytes::from_static(b"b")).unwrap();
    assert!(server.wants_input() && read(&mut server, &mut input));
}

#[test]
fn persistence_follows_version_and_connection_field() {
    for (line, persists, told) in [
        ("HTTP/1.1", true, ""),
        (
            "HTTP/1.1\r\nconnection: close",
            false,
            "connection: close\r\n",
        ),
        (
            "HTTP/1.1\r\nconnection: x ,Close",
            false,
            "connection: close\r\n",
        ),
        (
            "HTTP/1.1\r\nconnection: keep-alive\r\nconnection: close",
            false,
            "connection: close\r\n",
        ),
        ("HTTP/1.0", false, "connection: close\r\n"),
        (
            "HTTP/1.0\r\nconnection: keep-alive",
            true,
            "connection: keep-alive\r\n",
        ),
        (
            "HTTP/1.0\r\nconnection: keep-alive, close",
            false,
            "connection: close\r\n",
        ),
    ] {
        let (mut server, _, _) = opened(&format!("GET / {line}\r\nhost: a\r\n\r\n"));
        server.respond(200, [], Length::None).unwrap();
        assert_eq!(
            flush(&mut server),
            format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n{told}\r\n"),
            "{line:?}"
        );
        assert_eq!(
            (server.is_idle(), server.is_done()),
            (persists, !persists),
            "{line:?}"
        );
    }
}

#[test]
fn nothing_behind_the_last_request_is_read() {
    let mut server = server();
    let mut input = Bytes::from(format!(
        "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n{GET}"
    ));
    assert!(read(&mut server, &mut input));
    server.respond(200, [], Length::None).unwrap();
    assert!(server.receive(&mut input).unwrap().is_none() && input.is_empty());
    assert_eq!(
        server.respond(200, [], Length::None),
        Err(WriteError::State)
    );
}

#[test]
fn an_http_1_0_client_gets_no_chunks_and_no_informational_responses() {
    let (mut server, _, _) = opened("GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n");
    server.inform(103, []).unwrap();
    server.respond(200, [], Length::Unknown).unwrap();
    assert!(!server.takes_trailers());
    server.send(Bytes::from_static(b"abc")).unwrap();
    server.finish().unwrap();
    assert_eq!(
        flush(&mut server),
        "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nabc"
    );
    assert!(server.is_done());
}

#[test]
fn an_expectation_is_met_by_status_100() {
    let (mut server, head, _) =
        opened("POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-Continue\r\ncontent-length: 1\r\n\r\n");
    assert!(head.expects_continue() && server.awaits_continue());
    server.inform(102, []).unwrap();
    assert!(server.awaits_continue());
    server.inform(100, []).unwrap();
    assert!(!server.awaits_continue());
    assert_eq!(
        flush(&mut server),
        "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"
    );
    assert!(matches!(
        server.receive(&mut Bytes::from_static(b"x")),
        Ok(Some(ServerEvent::Data { end: true, .. }))
    ));
    server.respond(200, [], Length::None).unwrap();
    assert!(server.is_idle());
}

#[test]
fn an_expectation_needs_content_and_http_1_1() {
    let (server, _, _) =
        opened("POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 0\r\n\r\n");
    assert!(!server.awaits_continue());
    let (server, head, _) =
        opened("POST / HTTP/1.0\r\nexpect: 100-continue\r\ncontent-length: 1\r\n\r\n");
    assert!(!server.awaits_continue() && !head.expects_continue());
}

#[test]
fn a_final_answer_to_an_expectation_closes() {
    let (mut server, _, _) =
        opened("POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 1\r\n\r\n");
    server.respond(417, [], Length::None).unwrap();
    assert!(flush(&mut server).ends_with("connection: close\r\n\r\n"));
    assert!(server.is_done());
}

#[test]
fn content_behind_an_early_answer_is_dropped_up_to_a_bound() {
    let post =
        |length: usize| format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n");
    for (length, persists) in [(1, true), (64 * 1024, true), (64 * 1024 + 1, false)] {
        let (mut server, _, _) = opened(&post(length));
        server.respond(403, [], Length::None).unwrap();
        let is_told = flush(&mut server).contains("connection: close\r\n");
        assert_eq!(is_told, !persists, "{length}");
        assert_eq!(server.wants_input(), persists, "{length}");
        let mut input = Bytes::from(format!("{}{GET}", "x".repeat(length)));
        assert_eq!(read(&mut server, &mut input), persists, "{length}");
    }
    let chunked = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
    for (chunks, persists) in [(64, true), (65, false)] {
        let (mut server, _, _) = opened(chunked);
        server.respond(403, [], Length::None).unwrap();
        flush(&mut server);
        let mut input = Bytes::from(format!(
            "{}0\r\n\r\n{GET}",
            format!("400\r\n{}\r\n", "x".repeat(1024)).repeat(chunks)
        ));
        assert_eq!(read(&mut server, &mut input), persists, "{chunks}");
        assert_eq!(server.is_done(), !persists, "{chunks}");
    }
}

#[test]
fn an_error_with_content_says_that_the_rest_of_a_long_request_is_not_read() {
    for content in [Length::Known(2), Length::Unknown] {
        let post = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 200000\r\n\r\n";
        let (mut server, _, _) = opened(post);
        server.respond(403, [], content).unwrap();
        server.send(Bytes::from_static(b"no")).unwrap();
        server.finish().unwrap();
        let answer = flush(&mut server);
        assert!(answer.contains("connection: close\r\n"), "{answer}");
        assert!(server.is_done());
    }
}

#[test]
fn an_answer_may_begin_while_the_request_goes_on() {
    let (mut server, _, _) = opened("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 200000\r\n\r\n");
    server.respond(200, [], Length::Unknown).unwrap();
    assert!(!flush(&mut server).contains("close"));
    let mut input = Bytes::from(vec![b'x'; 200_000]);
    assert!(matches!(
        server.receive(&mut input),
        Ok(Some(ServerEvent::Data { end: true, .. }))
    ));
    assert!(!server.wants_input());
    server.finish().unwrap();
    assert!(server.is_idle());
}

#[test]
fn a_client_that_ends_its_direction_still_gets_its_answer() {
    let (mut server, _, _) = opened(GET);
    server.end_of_input().unwrap();
    server.respond(200, [], Length::None).unwrap();
    assert!(flush(&mut server).contains("connection: close"));
    assert!(server.is_done());
}

#[test]
fn the_end_of_input_between_requests_is_no_fault() {
    for before in ["", "\r\n", GET] {
        let mut server = server();
        let mut input = Bytes::copy_from_slice(before.as_bytes());
        if server.receive(&mut input).unwrap().is_some() {
            server.respond(200, [], Length::None).unwrap();
            flush(&mut server);
        }
        assert!(server.is_idle() || before == "\r\n");
        assert_eq!(server.end_of_input(), Ok(()), "{before:?}");
        assert!(server.is_done());
    }
}

#[test]
fn a_connection_that_drains_closes_behind_its_exchange() {
    let mut idle = server();
    idle.close_after_exchange();
    assert!(idle.is_done());
    let (mut server, _, _) = opened(GET);
    server.close_after_exchange();
    server.respond(200, [], Length::None).unwrap();
    assert!(flush(&mut server).contains("connection: close") && server.is_done());
    let mut client = client();
    client
        .request(b"GET", b"/", [field("host", "a")], Length::None)
        .unwrap();
    client.close_after_exchange();
    let mut input = Bytes::from_static(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    client.receive(&mut input).unwrap();
    assert!(client.is_done());
    assert_eq!(
        client.request(b"GET", b"/", [field("host", "a")], Length::None),
        Err(WriteError::Closed)
    );
}

#[test]
fn a_client_sends_one_request_at_a_time() {
    let mut client = asked("GET");
    assert_eq!(
        client.request(b"GET", b"/", [field("host", "a")], Length::None),
        Err(WriteError::State)
    );
    let mut input = Bytes::from_static(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx");
    client.receive(&mut input).unwrap();
    assert!(!client.is_idle());
    client.receive(&mut input).unwrap();
    assert!(client.is_idle());
    client
        .request(b"GET", b"/", [field("host", "a")], Length::None)
        .unwrap();
}

#[test]
fn a_response_before_the_request_is_complete_does_not_free_the_connection() {
    let mut client = client();
    client
        .request(b"POST", b"/", [field("host", "a")], Length::Known(2))
        .unwrap();
    client.send(Bytes::from_static(b"a")).unwrap();
    let mut input = Bytes::from_static(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    assert!(matches!(
        client.receive(&mut input),
        Ok(Some(ClientEvent::Response { end: true, .. }))
    ));
    assert!(!client.is_idle() && !client.is_done());
    client.send(Bytes::from_static(b"b")).unwrap();
    assert!(client.is_idle());
}

#[test]
fn a_lost_answer_is_told_apart_from_one_that_began() {
    let mut unanswered = asked("GET");
    assert_eq!(
        unanswered.end_of_input().unwrap_err(),
        Error::ClosedUnanswered
    );
    let (_, error) = responses("GET", &[b"HTTP/1.1 100 Continue\r\n\r\n"], true);
    assert_eq!(error, Some(Error::Truncated));
}

#[test]
fn memory_of_a_head_is_bounded() {
    let mut server = ServerConnection::new(Config {
        max_head: 1024,
        ..Config::default()
    });
    let mut taken = 0;
    let error = loop {
        let mut input = Bytes::from_static(b"GET /aaaaaaaaaa");
        match server.receive(&mut input) {
            Ok(_) => taken += 15,
            Err(error) => break error,
        }
    };
    assert_eq!((taken, error), (1020, Error::TargetTooLong));
}

#[test]
fn a_response_is_read_to_a_request_that_the_caller_wrote() {
    let mut client = ClientConnection::new(Config::default());
    for is_head in [false, true] {
        client.expect(is_head).unwrap();
        assert_eq!(client.expect(is_head), Err(WriteError::State));
        assert_eq!(client.queued(), 0);
        let mut input = Bytes::from_static(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n");
        let event = client.receive(&mut input).unwrap();
        assert!(matches!(event, Some(ClientEvent::Response { end, .. }) if end == is_head));
        let mut input = Bytes::from_static(if is_head { b"" } else { b"hi" });
        let event = client.receive(&mut input).unwrap();
        assert_eq!(event.is_none(), is_head);
        assert!(client.is_idle());
    }
    client.close_after_exchange();
    assert_eq!(client.expect(false), Err(WriteError::Closed));
}

#[test]
fn a_section_is_incomplete_until_its_last_byte_came_or_it_failed() {
    let mut server = ServerConnection::new(Config::default());
    let mut read = |bytes: &'static [u8]| {
        let mut input = Bytes::from_static(bytes);
        while let Ok(Some(_)) = server.receive(&mut input) {}
        server.incomplete()
    };
    assert_eq!(read(b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-"), 35);
    assert_eq!(read(b"encoding: chunked\r\n\r\n1\r\na\r\n0\r\n"), 0);
    assert_eq!(read(b"x: v\r\ny"), 7);
    assert_eq!(read(b": w\r\n\r\n"), 0);

    let mut client = asked("GET");
    let mut read = |bytes: &'static [u8]| {
        let mut input = Bytes::from_static(bytes);
        while let Ok(Some(_)) = client.receive(&mut input) {}
        client.incomplete()
    };
    assert_eq!(read(b"HTTP/1.1 200 OK\r\n"), 17);
    assert_eq!(read(b"transfer-encoding: chunked\r\n\r\n0\r\nx"), 1);
    // A line without a colon is a fault.
    assert_eq!(read(b"\r\n"), 0);
}
