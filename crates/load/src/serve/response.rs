//! A response of the echo service on its way out: the head, then a body that is either held or made
//! up as it goes, in as many writes as were asked for.

use std::io::{self, ErrorKind, IoSlice, Write};

use super::params::Params;

/// What made-up bodies consist of; a power of two, so that positions wrap cheaply.
const PATTERN_SIZE: usize = 64 * 1024;

static PATTERN: [u8; PATTERN_SIZE] = pattern();

const fn pattern() -> [u8; PATTERN_SIZE] {
    let mut bytes = [b'\n'; PATTERN_SIZE];
    let mut at = 0;
    while at < PATTERN_SIZE {
        // Lines of 64 that end in a line feed, so that a person can look at it.
        if at % 64 != 63 {
            bytes[at] = b'a' + (at % 26) as u8;
        }
        at += 1;
    }
    bytes
}

/// A response that is being written.
#[derive(Debug)]
pub struct Outgoing {
    head: Vec<u8>,
    body: Body,
    length: u64,
    /// How many bytes have left, head and body together.
    position: u64,
    writes: u64,
    /// Whether the connection ends after it.
    pub close: bool,
}

#[derive(Debug)]
enum Body {
    Held(Vec<u8>),
    MadeUp,
}

impl Outgoing {
    /// The answer to a request with these parameters and this body. `headless` is for HEAD: the
    /// head says what a GET would have got.
    pub fn new(params: &Params, echoed: Vec<u8>, close: bool, headless: bool) -> Outgoing {
        let bodyless = matches!(params.status, 204 | 304);
        let (body, length) = match params.size {
            Some(size) => (Body::MadeUp, size),
            None => {
                let length = echoed.len() as u64;
                (Body::Held(echoed), length)
            }
        };
        let close = close || params.close;
        let mut head = Vec::with_capacity(128);
        head.extend_from_slice(
            format!("HTTP/1.1 {} {}\r\n", params.status, reason(params.status)).as_bytes(),
        );
        head.extend_from_slice(b"Content-Type: text/plain\r\n");
        if !bodyless {
            head.extend_from_slice(format!("Content-Length: {length}\r\n").as_bytes());
        }
        for (name, value) in &params.headers {
            head.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        if close {
            head.extend_from_slice(b"Connection: close\r\n");
        }
        head.extend_from_slice(b"\r\n");
        let length = if bodyless || headless { 0 } else { length };
        Outgoing {
            head,
            body,
            length,
            position: 0,
            writes: u64::from(params.writes),
            close,
        }
    }

    /// A plain answer with a text.
    pub fn text(status: u16, text: &str, close: bool, headless: bool) -> Outgoing {
        let params = Params {
            status,
            ..Params::default()
        };
        Outgoing::new(&params, format!("{text}\n").into_bytes(), close, headless)
    }

    /// Writes as much as `socket` takes. Returns whether everything has left.
    pub fn write_to(&mut self, socket: &mut impl Write) -> io::Result<bool> {
        let total = self.head.len() as u64 + self.length;
        while self.position < total {
            let until = self.end_of_write();
            let written = match socket.write_vectored(&self.pieces(until)) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.position += written as u64;
        }
        Ok(true)
    }

    /// Where the write that `position` lies in ends.
    fn end_of_write(&self) -> u64 {
        let head = self.head.len() as u64;
        if self.writes == 1 {
            return head + self.length;
        }
        if self.position < head {
            return head;
        }
        let pieces = self.writes - 1;
        let piece = self.length.div_ceil(pieces).max(1);
        let done = (self.position - head) / piece;
        head + ((done + 1) * piece).min(self.length)
    }

    /// The bytes from `position` up to `until`, or as many of them as lie at hand.
    fn pieces(&self, until: u64) -> [IoSlice<'_>; 2] {
        let head_length = self.head.len() as u64;
        let head = self
            .head
            .get(usize::try_from(self.position).unwrap_or(usize::MAX)..)
            .unwrap_or_default();
        let from = self.position.max(head_length);
        let wanted = usize::try_from(until.saturating_sub(from)).unwrap_or(usize::MAX);
        let from = from - head_length;
        let body: &[u8] = match &self.body {
            Body::Held(bytes) => bytes
                .get(usize::try_from(from).unwrap_or(usize::MAX)..)
                .unwrap_or_default(),
            Body::MadeUp => &PATTERN[(from % PATTERN_SIZE as u64) as usize..],
        };
        [
            IoSlice::new(head),
            IoSlice::new(&body[..body.len().min(wanted)]),
        ]
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        204 => "No Content",
        304 => "Not Modified",
        400 => "Bad Request",
        404 => "Not Found",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "Status",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::ResponseParser;
    use proptest::prelude::*;

    /// Takes up to `room` bytes per write and refuses every other write.
    #[derive(Default)]
    struct Slow {
        taken: Vec<u8>,
        writes: Vec<usize>,
        room: usize,
        refuse: bool,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.room < usize::MAX {
                self.refuse = !self.refuse;
                if self.refuse {
                    return Err(ErrorKind::WouldBlock.into());
                }
            }
            let count = bytes.len().min(self.room);
            self.taken.extend_from_slice(&bytes[..count]);
            self.writes.push(count);
            Ok(count)
        }

        fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
            let all: Vec<u8> = pieces
                .iter()
                .flat_map(|piece| piece.iter().copied())
                .collect();
            self.write(&all)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn written(params: &Params, echoed: &[u8], room: usize) -> Slow {
        let mut outgoing = Outgoing::new(params, echoed.to_vec(), false, false);
        let mut slow = Slow {
            room,
            ..Slow::default()
        };
        while !outgoing.write_to(&mut slow).unwrap() {}
        slow
    }

    #[test]
    fn the_number_of_writes_is_what_was_asked_for() {
        for (writes, expected) in [
            (1, vec![1000]),
            (2, vec![1000]),
            (3, vec![500, 500]),
            (5, vec![250; 4]),
        ] {
            let params = Params {
                size: Some(1000),
                writes,
                ..Params::default()
            };
            let slow = written(&params, b"", usize::MAX);
            let head = slow.taken.len() - 1000;
            let expected: Vec<usize> = if writes == 1 {
                vec![head + 1000]
            } else {
                std::iter::once(head).chain(expected).collect()
            };
            assert_eq!(slow.writes, expected, "writes={writes}");
        }
    }

    #[test]
    fn no_content_has_no_body_and_no_length() {
        let slow = written(
            &Params {
                status: 204,
                size: Some(5),
                ..Params::default()
            },
            b"",
            usize::MAX,
        );
        assert_eq!(
            slow.taken,
            b"HTTP/1.1 204 No Content\r\nContent-Type: text/plain\r\n\r\n"
        );
    }

    proptest! {
        #[test]
        fn every_byte_leaves_once_and_in_order(
            size in prop::option::of(0u64..200_000),
            echoed in prop::collection::vec(any::<u8>(), 0..300),
            writes in 1u32..9,
            room in 1000usize..70_000,
        ) {
            let params = Params { size, writes, ..Params::default() };
            let slow = written(&params, &echoed, room);
            let (response, used) = ResponseParser::default().feed(&slow.taken).unwrap().unwrap();
            prop_assert_eq!(used, slow.taken.len());
            prop_assert_eq!(response.content, size.unwrap_or(echoed.len() as u64));
            let body = &slow.taken[slow.taken.len() - response.content as usize..];
            match size {
                None => prop_assert_eq!(body, echoed),
                Some(_) => prop_assert!(body.iter().enumerate().all(|(at, byte)| *byte == PATTERN[at % PATTERN_SIZE])),
            }
        }
    }
}
