//! Messages of a gRPC call, counted in its content: each has a flag and a length of four bytes before it.

use std::time::Duration;

/// The bytes before a message.
const PREFIX: u8 = 5;

/// Counts the messages of one direction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MessageCounter {
    messages: u64,
    /// Bytes of the prefix that have come.
    prefix: u8,
    /// The length as far as it has come.
    length: u32,
    /// Bytes of the message that are still to come.
    left: u32,
}

impl MessageCounter {
    /// Messages that have begun.
    pub(super) fn messages(self) -> u64 {
        self.messages
    }

    /// Takes the next bytes of the content.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) {
        while let Some((&first, rest)) = bytes.split_first() {
            if self.left > 0 {
                let skipped = bytes.len().min(self.left as usize);
                self.left -= skipped as u32;
                bytes = &bytes[skipped..];
                continue;
            }
            if self.prefix > 0 {
                self.length = self.length << 8 | u32::from(first);
            }
            self.prefix += 1;
            bytes = rest;
            if self.prefix == PREFIX {
                self.messages += 1;
                (self.left, self.length, self.prefix) = (self.length, 0, 0);
            }
        }
    }
}

/// True for the content type of gRPC, with any encoding of messages behind it. gRPC-Web is another protocol.
pub(super) fn is_grpc(content_type: &[u8]) -> bool {
    content_type
        .strip_prefix(b"application/grpc")
        .is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';' | b' ')))
}

/// The status that an answer has which does not give one (gRPC's http-grpc-status-mapping).
pub(super) fn status_of_http(status: u16) -> u32 {
    match status {
        400 => 13,
        401 => 16,
        403 => 7,
        404 => 12,
        429 | 502 | 503 | 504 => 14,
        _ => 2,
    }
}

/// The number of a status, as it stands in `grpc-status`.
pub(super) fn status(value: &[u8]) -> Option<u32> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// The time in `grpc-timeout`: one to eight digits and a unit (gRPC's PROTOCOL-HTTP2, "Timeout").
pub(super) fn timeout(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if !(1..=8).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let count = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(match unit {
        b'H' => Duration::from_secs(count * 3600),
        b'M' => Duration::from_secs(count * 60),
        b'S' => Duration::from_secs(count),
        b'm' => Duration::from_millis(count),
        b'u' => Duration::from_micros(count),
        b'n' => Duration::from_nanos(count),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn content_types_of_grpc_alone_count() {
        for (text, is) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc; charset=x", true),
            ("application/grpc-web", false),
            ("application/json", false),
        ] {
            assert_eq!(is_grpc(text.as_bytes()), is, "{text}");
        }
    }

    #[test]
    fn timeouts_have_up_to_eight_digits_and_a_unit() {
        for (text, is) in [
            ("2H", Some(Duration::from_secs(7200))),
            ("99999999H", Some(Duration::from_secs(359_999_996_400))),
            ("3M", Some(Duration::from_secs(180))),
            ("05S", Some(Duration::from_secs(5))),
            ("200m", Some(Duration::from_millis(200))),
            ("7u", Some(Duration::from_micros(7))),
            ("0n", Some(Duration::ZERO)),
            ("100000000n", None),
            ("S", None),
            ("1", None),
            ("", None),
            ("-1S", None),
            ("+1S", None),
            ("1 S", None),
            ("1s", None),
        ] {
            assert_eq!(timeout(text.as_bytes()), is, "{text}");
        }
    }

    proptest! {
        #[test]
        fn messages_are_counted_however_the_bytes_are_cut(
            lengths in prop::collection::vec(0usize..300, 0..20),
            step in 1usize..50,
        ) {
            let mut content = Vec::new();
            for length in &lengths {
                content.push(0);
                content.extend((*length as u32).to_be_bytes());
                content.extend(vec![7; *length]);
            }
            let mut counter = MessageCounter::default();
            content.chunks(step).for_each(|piece| counter.feed(piece));
            prop_assert_eq!(counter.messages(), lengths.len() as u64);
            prop_assert_eq!(counter.left, 0);
        }

        #[test]
        fn any_bytes_are_taken(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut counter = MessageCounter::default();
            counter.feed(&bytes);
            prop_assert!(counter.messages() <= bytes.len() as u64);
        }
    }
}
