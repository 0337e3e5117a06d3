//! Frame headers (RFC 9113 §4.1), and writers of the small frames.

use crate::code::Code;

/// Bytes of a frame's header.
pub(crate) const HEAD: usize = 9;

/// The client's first bytes (RFC 9113 §3.4).
pub(crate) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Frame types (RFC 9113 §6).
pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const PRIORITY: u8 = 2;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PUSH_PROMISE: u8 = 5;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
    pub(crate) const CONTINUATION: u8 = 9;
}

/// Frame flags.
pub(crate) mod flag {
    pub(crate) const END_STREAM: u8 = 0x1;
    pub(crate) const ACK: u8 = 0x1;
    pub(crate) const END_HEADERS: u8 = 0x4;
    pub(crate) const PADDED: u8 = 0x8;
    pub(crate) const PRIORITY: u8 = 0x20;
}

/// Settings (RFC 9113 §6.5.2).
pub(crate) mod setting {
    pub(crate) const HEADER_TABLE_SIZE: u16 = 1;
    pub(crate) const ENABLE_PUSH: u16 = 2;
    pub(crate) const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;
    pub(crate) const MAX_FRAME_SIZE: u16 = 5;
    pub(crate) const MAX_HEADER_LIST_SIZE: u16 = 6;
    /// RFC 8441 §3.
    pub(crate) const ENABLE_CONNECT_PROTOCOL: u16 = 8;
}

/// A frame's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Head {
    /// Bytes of payload.
    pub(crate) length: u32,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
}

impl Head {
    #[inline]
    pub(crate) fn parse(bytes: [u8; HEAD]) -> Self {
        let [a, b, c, kind, flags, stream @ ..] = bytes;
        Head {
            length: u32::from_be_bytes([0, a, b, c]),
            kind,
            flags,
            // The highest bit is reserved.
            stream: u32::from_be_bytes(stream) & 0x7fff_ffff,
        }
    }

    #[inline]
    pub(crate) fn bytes(self) -> [u8; HEAD] {
        let [_, a, b, c] = self.length.to_be_bytes();
        let [d, e, f, g] = self.stream.to_be_bytes();
        [a, b, c, self.kind, self.flags, d, e, f, g]
    }

    #[inline]
    pub(crate) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// A frame whose payload is 4 bytes: RST_STREAM or WINDOW_UPDATE.
pub(crate) fn word(kind: u8, stream: u32, word: u32) -> [u8; HEAD + 4] {
    let head = Head {
        length: 4,
        kind,
        flags: 0,
        stream,
    };
    let mut frame = [0; HEAD + 4];
    frame[..HEAD].copy_from_slice(&head.bytes());
    frame[HEAD..].copy_from_slice(&word.to_be_bytes());
    frame
}

/// A frame of the connection whose payload is 8 bytes: PING or GOAWAY.
fn eight(kind: u8, flags: u8, payload: [u8; 8]) -> [u8; HEAD + 8] {
    let head = Head {
        length: 8,
        kind,
        flags,
        stream: 0,
    };
    let mut frame = [0; HEAD + 8];
    frame[..HEAD].copy_from_slice(&head.bytes());
    frame[HEAD..].copy_from_slice(&payload);
    frame
}

pub(crate) fn ping(ack: bool, payload: [u8; 8]) -> [u8; HEAD + 8] {
    eight(kind::PING, if ack { flag::ACK } else { 0 }, payload)
}

pub(crate) fn go_away(last: u32, code: Code) -> [u8; HEAD + 8] {
    let payload = u64::from(last) << 32 | u64::from(code.0);
    eight(kind::GOAWAY, 0, payload.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back() {
        let head = Head {
            length: 0x12_3456,
            kind: kind::DATA,
            flags: flag::END_STREAM,
            stream: 0x7fff_fff1,
        };
        assert_eq!(Head::parse(head.bytes()), head);
    }

    #[test]
    fn go_away_says_the_last_stream_and_the_code() {
        let frame = go_away(7, Code::ENHANCE_YOUR_CALM);
        assert_eq!(frame, [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0xb]);
    }
}
