//! Frames (RFC 9113 §4 and §6): cut out of a stream of bytes, and written.

use crate::client::Malformed;

/// What a client sends first (RFC 9113 §3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The longest payload, unless a peer allows more.
pub const MAX_PAYLOAD: usize = 16 * 1024;

/// The longest payloads that a peer may allow (RFC 9113 §6.5.2).
pub const ALLOWED_PAYLOADS: std::ops::RangeInclusive<u32> = MAX_PAYLOAD as u32..=(1 << 24) - 1;

/// Types of frames.
pub mod kind {
    /// Content.
    pub const DATA: u8 = 0;
    /// Fields.
    pub const HEADERS: u8 = 1;
    /// The end of a stream before its time.
    pub const RST_STREAM: u8 = 3;
    /// What a peer allows.
    pub const SETTINGS: u8 = 4;
    /// A request of the server's own.
    pub const PUSH_PROMISE: u8 = 5;
    /// Something that comes back.
    pub const PING: u8 = 6;
    /// The end of the connection, announced.
    pub const GOAWAY: u8 = 7;
    /// Room for more content.
    pub const WINDOW_UPDATE: u8 = 8;
    /// More of the fields.
    pub const CONTINUATION: u8 = 9;
}

/// Flags of frames; the first means that the stream ends, or that the frame answers another.
pub mod flag {
    /// On SETTINGS and PING.
    pub const ACK: u8 = 0x1;
    /// On DATA and HEADERS.
    pub const END_STREAM: u8 = 0x1;
    /// On HEADERS and CONTINUATION.
    pub const END_HEADERS: u8 = 0x4;
    /// On DATA and HEADERS.
    pub const PADDED: u8 = 0x8;
    /// On HEADERS.
    pub const PRIORITY: u8 = 0x20;
}

/// Settings (RFC 9113 §6.5.2).
pub mod setting {
    /// The size of the table of fields.
    pub const HEADER_TABLE_SIZE: u16 = 1;
    /// Whether the server may send requests of its own.
    pub const ENABLE_PUSH: u16 = 2;
    /// How many streams may be open at once.
    pub const MAX_CONCURRENT_STREAMS: u16 = 3;
    /// How much content may be sent on a stream before room is made for more.
    pub const INITIAL_WINDOW_SIZE: u16 = 4;
    /// The longest payload.
    pub const MAX_FRAME_SIZE: u16 = 5;
}

/// A frame that has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// One of [`kind`], or another that is to be ignored.
    pub kind: u8,
    /// Flags.
    pub flags: u8,
    /// The stream; 0 is the connection.
    pub stream: u32,
    /// What it carries.
    pub payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Cuts the first frame off `input`; `None` if it is not all there.
    pub fn cut(input: &mut &'a [u8]) -> Result<Option<Frame<'a>>, Malformed> {
        let Some((&[a, b, c, kind, flags, w, x, y, z], rest)) = input.split_first_chunk() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        if length > MAX_PAYLOAD {
            return Err(Malformed::Rule(
                "a frame of HTTP/2 that is longer than 16 KiB",
            ));
        }
        let Some((payload, rest)) = rest.split_at_checked(length) else {
            return Ok(None);
        };
        *input = rest;
        Ok(Some(Frame {
            kind,
            flags,
            stream: u32::from_be_bytes([w & 0x7f, x, y, z]),
            payload,
        }))
    }

    /// Whether a flag is set.
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The payload without padding and priority.
    pub fn content(&self) -> Result<&'a [u8], Malformed> {
        let mut payload = self.payload;
        let bad = Malformed::Rule("the padding of a frame is longer than the frame");
        let mut padding = 0;
        if self.has(flag::PADDED) {
            let (length, rest) = payload.split_first().ok_or(bad)?;
            (padding, payload) = (usize::from(*length), rest);
        }
        if self.kind == kind::HEADERS && self.has(flag::PRIORITY) {
            payload = payload.get(5..).ok_or(bad)?;
        }
        payload
            .len()
            .checked_sub(padding)
            .map(|length| &payload[..length])
            .ok_or(bad)
    }

    /// The payload as one number, as WINDOW_UPDATE and RST_STREAM have it.
    pub fn number(&self) -> Result<u32, Malformed> {
        let bytes = self.payload.try_into();
        bytes
            .map(u32::from_be_bytes)
            .map_err(|_| Malformed::Rule("a frame of four bytes that has not four bytes"))
    }

    /// The settings in the payload.
    pub fn settings(&self) -> Result<impl Iterator<Item = (u16, u32)> + use<'a>, Malformed> {
        if !self.payload.len().is_multiple_of(6) {
            return Err(Malformed::Rule("settings that are cut short"));
        }
        Ok(self.payload.chunks_exact(6).map(|setting| {
            (
                u16::from_be_bytes([setting[0], setting[1]]),
                u32::from_be_bytes([setting[2], setting[3], setting[4], setting[5]]),
            )
        }))
    }
}

/// Writes a frame. The payload is at most 16 MiB long.
pub fn write(kind: u8, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    let length = (payload.len() as u32).to_be_bytes();
    out.extend_from_slice(&[length[1], length[2], length[3], kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Writes a SETTINGS frame.
pub fn write_settings(settings: &[(u16, u32)], out: &mut Vec<u8>) {
    let mut payload = Vec::with_capacity(6 * settings.len());
    for (name, value) in settings {
        payload.extend_from_slice(&name.to_be_bytes());
        payload.extend_from_slice(&value.to_be_bytes());
    }
    write(kind::SETTINGS, 0, 0, &payload, out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn padding_and_priority_are_taken_off() {
        let frame = |flags, payload| Frame {
            kind: kind::HEADERS,
            flags,
            stream: 1,
            payload,
        };
        let both = flag::PADDED | flag::PRIORITY;
        assert_eq!(frame(0, b"abc").content(), Ok(&b"abc"[..]));
        assert_eq!(frame(both, b"\x0212345abc..").content(), Ok(&b"abc"[..]));
        for bad in [&b""[..], b"\x01", b"\x0112345", b"\x001234"] {
            assert!(frame(both, bad).content().is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn frames_come_back(
            frames in prop::collection::vec((any::<u8>(), any::<u8>(), 0u32..1 << 31, prop::collection::vec(any::<u8>(), 0..40)), 0..6),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut bytes = Vec::new();
            for (kind, flags, stream, payload) in &frames {
                write(*kind, *flags, *stream, payload, &mut bytes);
            }
            let mut rest = &bytes[..];
            for (kind, flags, stream, payload) in &frames {
                let frame = Frame { kind: *kind, flags: *flags, stream: *stream, payload };
                prop_assert_eq!(Frame::cut(&mut rest), Ok(Some(frame)));
            }
            prop_assert!(rest.is_empty());
            if !bytes.is_empty() {
                // A piece has no more frames than the whole, and none that the whole has not.
                let mut piece = &bytes[..cut.index(bytes.len())];
                let mut count = 0;
                while let Ok(Some(_)) = Frame::cut(&mut piece) { count += 1; }
                prop_assert!(count < frames.len());
            }
        }

        #[test]
        fn no_bytes_make_it_panic(input in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut rest = &input[..];
            while let Ok(Some(frame)) = Frame::cut(&mut rest) {
                let _ = (frame.content(), frame.number(), frame.settings().map(Iterator::count));
            }
        }
    }
}
