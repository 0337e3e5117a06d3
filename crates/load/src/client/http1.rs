//! HTTP/1.1: one request after the other, each answered before the next is sent.

use std::sync::Arc;

use bytes::Bytes;
use lateen_h1::{ClientConnection, ClientEvent, Config};

use super::interface::{Answer, Client, Completion, Malformed, Output, Request, Start, USER_AGENT};

/// A request in bytes.
#[derive(Debug)]
pub struct Message {
    /// With the connection kept.
    keep: Vec<u8>,
    /// The last on its connection.
    last: Vec<u8>,
    head: bool,
}

impl Message {
    /// Encodes a request. Fields of the user's take the place of those with the same name.
    pub fn new(request: &Request) -> Message {
        let encode = |last: bool| {
            let mut out = format!("{} {} HTTP/1.1\r\n", request.method, request.path);
            let given = |name: &str| {
                let mut names = request.headers.iter().map(|(given, _)| given);
                names.any(|given| given.eq_ignore_ascii_case(name))
            };
            let mut field = |name: &str, value: &str| {
                out.push_str(&format!("{name}: {value}\r\n"));
            };
            if !given("Host") {
                field("Host", &request.authority);
            }
            if !given("User-Agent") {
                field("User-Agent", USER_AGENT);
            }
            for (name, value) in &request.headers {
                field(name, value);
            }
            // A server must be told that a POST has no content (RFC 9110 §8.6).
            let expected = matches!(&*request.method, "POST" | "PUT" | "PATCH");
            if expected || !request.body.is_empty() {
                field("Content-Length", &request.body.len().to_string());
            }
            if last {
                field("Connection", "close");
            }
            out.push_str("\r\n");
            let mut out = out.into_bytes();
            out.extend_from_slice(&request.body);
            out
        };
        Message {
            keep: encode(false),
            last: encode(true),
            head: request.method == "HEAD",
        }
    }
}

/// The limits of answers: a load generator takes what there is.
const LIMITS: Config = Config {
    max_head: u16::MAX,
    max_fields: u16::MAX,
    max_empty_lines: 0,
    max_informational: u16::MAX,
    chunk_overhead: 16 * 1024,
    drain: 0,
};

/// A client of HTTP/1.1.
#[derive(Debug)]
pub struct Http1 {
    messages: Arc<[Message]>,
    connection: ClientConnection,
    slot: Option<usize>,
    /// The answer as far as it has come.
    answer: Answer,
    over: bool,
}

impl Http1 {
    /// A client that has said nothing.
    pub fn new(messages: Arc<[Message]>) -> Http1 {
        Http1 {
            messages,
            connection: ClientConnection::new(LIMITS),
            slot: None,
            answer: Answer::default(),
            over: false,
        }
    }

    /// Takes an event. True if it completes the answer.
    fn take(&mut self, event: &ClientEvent) -> Result<bool, Malformed> {
        match event {
            ClientEvent::Informational(_) => Ok(false),
            ClientEvent::Response { head, end } => {
                self.answer.status = head.status();
                match head.status() {
                    ..600 => Ok(*end),
                    _ => Err(Malformed::Rule("status is not between 100 and 599")),
                }
            }
            ClientEvent::Data { bytes, end } => {
                self.answer.content += bytes.len() as u64;
                Ok(*end)
            }
            ClientEvent::Trailers(_) | ClientEvent::End => Ok(true),
            ClientEvent::Tunnel(_) => Err(lateen_h1::Error::UnaskedSwitch.into()),
        }
    }

    fn complete(&mut self, out: &mut Output) {
        self.over |= self.connection.is_done();
        let outcome = Ok(std::mem::take(&mut self.answer));
        let done = &mut out.done;
        done.extend(self.slot.take().map(|slot| Completion { slot, outcome }));
    }
}

impl Client for Http1 {
    fn room(&self) -> usize {
        usize::from(self.slot.is_none() && !self.over)
    }

    fn start(&mut self, start: Start, out: &mut Output) {
        let message = &self.messages[start.request];
        // There is room, so the exchange before is over.
        self.over = self.connection.expect(message.head).is_err() || start.last;
        self.slot = Some(start.slot);
        let bytes = if start.last {
            &message.last
        } else {
            &message.keep
        };
        out.bytes.extend_from_slice(bytes);
    }

    fn receive(&mut self, input: &Bytes, _now: u64, out: &mut Output) -> Result<(), Malformed> {
        if self.slot.is_none() {
            return Err(lateen_h1::Error::Unsolicited.into());
        }
        let mut input = input.clone();
        while let Some(event) = self.connection.receive(&mut input)? {
            if self.take(&event)? {
                if !input.is_empty() {
                    return Err(Malformed::Rule("more came than one response"));
                }
                self.complete(out);
                return Ok(());
            }
        }
        Ok(())
    }

    fn end(&mut self, out: &mut Output) {
        self.over = true;
        if let Ok(Some(_)) = self.connection.end_of_input() {
            self.complete(out);
        }
    }

    fn is_over(&self) -> bool {
        self.over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, body: &str, headers: &[(&str, &str)]) -> Request {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Request {
            method: method.to_owned(),
            authority: "a:1".to_owned(),
            path: "/x?y".to_owned(),
            headers: headers.iter().map(owned).collect(),
            body: body.as_bytes().into(),
        }
    }

    #[test]
    fn requests_say_what_they_must_and_no_more() {
        let agent = format!("Host: a:1\r\nUser-Agent: {USER_AGENT}\r\n");
        let own = [("host", "b"), ("user-agent", "c")];
        let get = Message::new(&request("GET", "", &[])).keep;
        let post = Message::new(&request("POST", "", &[])).last;
        let put = Message::new(&request("PUT", "abc", &own)).keep;
        let closes = "Content-Length: 0\r\nConnection: close\r\n";
        let fields = "host: b\r\nuser-agent: c\r\nContent-Length: 3\r\n";
        for (message, expected) in [
            (get, format!("GET /x?y HTTP/1.1\r\n{agent}\r\n")),
            (post, format!("POST /x?y HTTP/1.1\r\n{agent}{closes}\r\n")),
            (put, format!("PUT /x?y HTTP/1.1\r\n{fields}\r\nabc")),
        ] {
            assert_eq!(String::from_utf8(message).unwrap(), expected);
        }
    }

    fn client(method: &str) -> Http1 {
        Http1::new([Message::new(&request(method, "", &[]))].into())
    }

    fn start(client: &mut Http1, last: bool) {
        let (slot, request) = (3, 0);
        let start = Start {
            slot,
            request,
            last,
        };
        client.start(start, &mut Output::default());
    }

    fn answer(content: u64) -> Completion {
        let status = 200;
        let outcome = Ok(Answer { status, content });
        Completion { slot: 3, outcome }
    }

    /// The completions that bytes bring, and whether the bytes are of the protocol.
    fn hear(client: &mut Http1, bytes: &[u8]) -> (Vec<Completion>, bool) {
        let mut out = Output::default();
        let heard = client.receive(&Bytes::copy_from_slice(bytes), 0, &mut out);
        (out.done, heard.is_ok())
    }

    #[test]
    fn one_request_at_a_time() {
        let mut client = client("GET");
        for _ in 0..2 {
            assert_eq!(client.room(), 1);
            start(&mut client, false);
            assert_eq!(client.room(), 0);
            let mut done = Vec::new();
            for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi" {
                assert!(done.is_empty());
                done = hear(&mut client, &[*byte]).0;
            }
            assert_eq!(done, [answer(2)]);
        }
        assert!(!client.is_over());
    }

    #[test]
    fn the_last_request_and_a_closing_answer_end_the_connection() {
        let started = |method, last| {
            let mut client = client(method);
            start(&mut client, last);
            client
        };
        let last = started("GET", true);
        assert!(last.is_over() && last.room() == 0);
        let mut closing = started("HEAD", false);
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n";
        assert_eq!(hear(&mut closing, head), (vec![answer(0)], true));
        assert!(closing.is_over() && closing.room() == 0);
        let mut until = started("GET", false);
        let begun = hear(&mut until, b"HTTP/1.1 200 OK\r\n\r\nabc");
        assert_eq!(begun, (vec![], true));
        let mut out = Output::default();
        until.end(&mut out);
        assert_eq!(out.done, [answer(3)]);
    }

    #[test]
    fn what_was_not_asked_for_is_malformed() {
        assert_eq!(hear(&mut client("GET"), b"x"), (vec![], false));
        let mut talkative = client("GET");
        start(&mut talkative, false);
        let two = b"HTTP/1.1 204 \r\n\r\nHTTP/1.1 204 \r\n\r\n";
        assert_eq!(hear(&mut talkative, two), (vec![], false));
    }
}
