//! A response of the echo service on its way out: the head, then a body that is either held or made
//! up as it goes, in as many writes as were asked for.

use std::io::{self, ErrorKind, IoSlice, Write};

use http::StatusCode;

use super::reply::{Body, Reply};

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

impl Outgoing {
    /// A reply on its way out in so many writes. `close` says that nothing follows it.
    pub fn new(reply: Reply, writes: u32, close: bool, date: &str) -> Outgoing {
        let mut head = Vec::with_capacity(256);
        if let Some(status) = reply.interim {
            status_line(&mut head, status);
            head.extend_from_slice(b"\r\n");
        }
        status_line(&mut head, reply.status);
        let mut field = |name: &str, value: &str| {
            for part in [name, ": ", value, "\r\n"] {
                head.extend_from_slice(part.as_bytes());
            }
        };
        for (name, value) in &reply.fields {
            field(name, value);
        }
        if !reply
            .fields
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case("date"))
        {
            field("Date", date);
        }
        // A status without content has no length either; an answer to HEAD has that of a GET.
        if !matches!(reply.status, 101 | 204 | 304) {
            field("Content-Length", &reply.body.len().to_string());
        }
        if close {
            field("Connection", "close");
        }
        head.extend_from_slice(b"\r\n");
        let length = if reply.has_content {
            reply.body.len()
        } else {
            0
        };
        Outgoing {
            head,
            body: reply.body,
            length,
            position: 0,
            writes: u64::from(writes),
            close,
        }
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
        let body = self.body.at(from - head_length);
        [
            IoSlice::new(head),
            IoSlice::new(&body[..body.len().min(wanted)]),
        ]
    }
}

fn status_line(head: &mut Vec<u8>, status: u16) {
    let known = StatusCode::from_u16(status).ok();
    let line = match known.and_then(|code| code.canonical_reason()) {
        Some(reason) => format!("HTTP/1.1 {status} {reason}\r\n"),
        None => format!("HTTP/1.1 {status} status code {status}\r\n"),
    };
    head.extend_from_slice(line.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::ResponseParser;
    use crate::serve::params::{Params, Status};
    use crate::serve::reply::{Asked, PATTERN, PATTERN_SIZE};
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
        let asked = Asked {
            body: echoed.to_vec().into(),
            ..Asked::default()
        };
        let reply = Reply::new(params, asked).unwrap();
        let mut outgoing = Outgoing::new(reply, params.writes, false, "now");
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
    fn a_status_without_content_has_no_length() {
        let slow = written(
            &Params {
                status: Status::Final(204),
                size: Some(5),
                ..Params::default()
            },
            b"",
            usize::MAX,
        );
        assert_eq!(
            String::from_utf8_lossy(&slow.taken),
            "HTTP/1.1 204 No Content\r\nContent-Type: application/octet-stream\r\nDate: now\r\n\r\n"
        );
    }

    #[test]
    fn an_interim_status_goes_ahead_and_a_date_of_ones_own_counts() {
        let slow = written(
            &Params {
                status: Status::Interim(150),
                headers: vec![("date".to_owned(), "then".to_owned())],
                ..Params::default()
            },
            b"",
            usize::MAX,
        );
        assert_eq!(
            String::from_utf8_lossy(&slow.taken),
            "HTTP/1.1 150 status code 150\r\n\r\nHTTP/1.1 200 OK\r\ndate: then\r\nContent-Length: 0\r\n\r\n"
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
