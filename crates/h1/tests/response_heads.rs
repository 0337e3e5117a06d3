//! Response heads that a client accepts, the framing that they imply, and those that it refuses.

mod common;

use bytes::Bytes;
use common::*;
use lateen_h1::{ClientEvent, Error, Length};

#[test]
fn the_framing_of_a_response_follows_from_method_status_and_fields() {
    use Length::*;
    for (method, head, length, is_idle) in [
        (
            "GET",
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n",
            Known(5),
            false,
        ),
        (
            "GET",
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n",
            Known(0),
            true,
        ),
        (
            "GET",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n",
            Unknown,
            false,
        ),
        ("GET", "HTTP/1.1 200 OK\r\n", Unknown, false),
        (
            "GET",
            "HTTP/1.1 200\r\ncontent-length: 0\r\n",
            Known(0),
            true,
        ),
        (
            "GET",
            "HTTP/1.1 200 \r\ncontent-length: 0\r\n",
            Known(0),
            true,
        ),
        ("GET", "HTTP/1.1 204 No Content\r\n", None, true),
        (
            "GET",
            "HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n",
            None,
            true,
        ),
        (
            "GET",
            "HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n",
            None,
            true,
        ),
        (
            "HEAD",
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n",
            None,
            true,
        ),
        (
            "HEAD",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n",
            None,
            true,
        ),
        ("HEAD", "HTTP/1.1 200 OK\r\n", None, true),
        (
            "CONNECT",
            "HTTP/1.1 403 No\r\ncontent-length: 0\r\n",
            Known(0),
            true,
        ),
        (
            "GET",
            "HTTP/1.0 200 OK\r\ncontent-length: 0\r\n",
            Known(0),
            false,
        ),
        (
            "GET",
            "HTTP/1.0 200 OK\r\ncontent-length: 0\r\nconnection: Keep-Alive\r\n",
            Known(0),
            true,
        ),
        (
            "GET",
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nConnection: x, CLOSE\r\n",
            Known(0),
            false,
        ),
        (
            "GET",
            "HTTP/1.1 799 Odd\r\ncontent-length: 0\r\n",
            Known(0),
            true,
        ),
    ] {
        let mut client = asked(method);
        let mut input = Bytes::from(format!("{head}\r\n"));
        let Ok(Some(ClientEvent::Response { head: response, .. })) = client.receive(&mut input)
        else {
            panic!("{head:?}")
        };
        assert_eq!(
            (response.length(), client.is_idle()),
            (length, is_idle),
            "{method} {head:?}"
        );
    }
}

#[test]
fn malformed_responses_are_refused() {
    use Error::*;
    for (input, error) in [
        ("SSH-2.0-OpenSSH\r\n", StatusLine),
        ("\r\nHTTP/1.1 200 OK\r\n\r\n", StatusLine),
        ("HTTP/2.0 200 OK\r\n\r\n", Version),
        ("HTTP/1.2 200 OK\r\n\r\n", Version),
        ("HTTP/1.1 2000 OK\r\n\r\n", StatusLine),
        ("HTTP/1.1 099 OK\r\n\r\n", StatusLine),
        ("HTTP/1.1 20x OK\r\n\r\n", StatusLine),
        ("HTTP/1.1  200 OK\r\n\r\n", StatusLine),
        ("HTTP/1.1 20\r\n\r\n", StatusLine),
        // The line ends before the status, which the bytes behind it do not change.
        ("HTTP/0.1 \n\r;\nab", StatusLine),
        ("HTTP/2.0 \n", StatusLine),
        ("HTTP/1.1 200 O\0K\r\n\r\n", ControlCharacter),
        ("HTTP/1.1 200 OK\n\r\n", BareLineFeed),
        ("HTTP/1.1 200\n\r\n", BareLineFeed),
        ("HTTP/1.1 200 OK\r\r\n\r\n", BareCarriageReturn),
        ("HTTP/1.1 200 OK\r\n folded: 1\r\n\r\n", FoldedLine),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\n",
            ContentLengthRepeated,
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",
            ContentLength,
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
            LengthAndCoding,
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
            CodingUnknown,
        ),
        (
            "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
            CodingInHttp10,
        ),
        (
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
            UnaskedSwitch,
        ),
    ] {
        assert_eq!(
            responses("GET", &[input.as_bytes()], false).1,
            Some(error),
            "{input:?}"
        );
    }
}

#[test]
fn informational_responses_precede_the_final_one() {
    let input = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx";
    let (messages, error) = responses("GET", &[input], false);
    let statuses: Vec<_> = messages
        .iter()
        .map(|message| &message.start.0[..])
        .collect();
    assert_eq!((&statuses[..], error), (&["100", "103", "200"][..], None));
}

#[test]
fn informational_responses_are_bounded() {
    let input = "HTTP/1.1 102 Processing\r\n\r\n".repeat(10_001);
    let (messages, error) = responses("GET", &[input.as_bytes()], false);
    assert_eq!(
        (messages.len(), error),
        (10_000, Some(Error::Informational))
    );
}

#[test]
fn bytes_that_answer_no_request_are_refused() {
    let mut idle = client();
    assert_eq!(
        idle.receive(&mut Bytes::from_static(b"HTTP/1.1 408 x\r\n\r\n"))
            .unwrap_err(),
        Error::Unsolicited
    );
    assert!(!idle.is_idle());
    let (messages, error) = responses(
        "GET",
        &[b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nxHTTP/1.1 200 OK\r\n\r\n"],
        false,
    );
    assert_eq!((messages.len(), error), (1, Some(Error::Unsolicited)));
    let (_, error) = responses(
        "HEAD",
        &[b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx"],
        false,
    );
    assert_eq!(
        error,
        Some(Error::Unsolicited),
        "content of a response to HEAD"
    );
}
