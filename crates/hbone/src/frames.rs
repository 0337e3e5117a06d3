//! Reads frame headers out of a byte stream, however it is cut (RFC 9113 §4.1); payloads pass by unread, but for the
//! few bytes that a judgement needs. It owns no bytes and knows no limits: those are [`crate::guard`]'s.

/// Frame types (RFC 9113 §6).
pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PUSH_PROMISE: u8 = 5;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
    pub(crate) const CONTINUATION: u8 = 9;
}

/// Frame flags; the same bit means END_STREAM on DATA and HEADERS and ACK on SETTINGS and PING.
pub(crate) mod flag {
    pub(crate) const END_STREAM: u8 = 0x1;
    pub(crate) const ACK: u8 = 0x1;
    pub(crate) const END_HEADERS: u8 = 0x4;
    pub(crate) const PADDED: u8 = 0x8;
}

/// The client's first bytes (RFC 9113 §3.4).
const PREFACE: u8 = 24;

/// A frame's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    /// Bytes of payload.
    pub(crate) length: u32,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
}

impl Head {
    fn parse(bytes: [u8; 9]) -> Self {
        let [a, b, c, kind, flags, stream @ ..] = bytes;
        Head {
            length: u32::from_be_bytes([0, a, b, c]),
            kind,
            flags,
            // The highest bit is reserved (RFC 9113 §4.1).
            stream: u32::from_be_bytes(stream) & 0x7fff_ffff,
        }
    }

    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// First bytes of the payload that come with the frame's announcement.
    fn prefix(&self) -> u8 {
        let wanted = match self.kind {
            kind::DATA if self.has(flag::PADDED) => 1,
            kind::RST_STREAM | kind::WINDOW_UPDATE => 4,
            _ => 0,
        };
        wanted.min(self.length) as u8
    }
}

/// What passes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// A frame begins. The number is the pad length of padded DATA, the error code of RST_STREAM, the
    /// increment of WINDOW_UPDATE, else 0.
    Frame(Head, u32),
    /// Payload of DATA, padding included.
    Data { stream: u32, bytes: u32 },
    /// One byte of GOAWAY's payload.
    Away(u8),
    /// A frame is over.
    End(Head),
}

/// Where in the stream we are.
#[derive(Debug)]
pub(crate) struct Frames {
    /// Bytes of the preface still to come.
    preface: u8,
    header: [u8; 9],
    filled: u8,
    /// The frame whose payload passes; `None` between frames.
    current: Option<Head>,
    left: u32,
    /// Prefix bytes still to come.
    wanted: u8,
    word: u32,
}

impl Frames {
    /// A stream that begins with the client's preface, or with a frame.
    pub(crate) fn new(preface: bool) -> Self {
        Frames {
            preface: if preface { PREFACE } else { 0 },
            header: [0; 9],
            filled: 0,
            current: None,
            left: 0,
            wanted: 0,
            word: 0,
        }
    }

    /// Passes the next bytes by; `see` stops it with `false`, and nothing after that means anything.
    pub(crate) fn feed(&mut self, mut bytes: &[u8], mut see: impl FnMut(Event) -> bool) {
        let skip = usize::from(self.preface).min(bytes.len());
        self.preface -= skip as u8;
        bytes = &bytes[skip..];
        while !bytes.is_empty() {
            let head = match self.current {
                Some(head) => head,
                None => {
                    let at = usize::from(self.filled);
                    let n = (9 - at).min(bytes.len());
                    self.header[at..at + n].copy_from_slice(&bytes[..n]);
                    self.filled += n as u8;
                    bytes = &bytes[n..];
                    if self.filled < 9 {
                        return;
                    }
                    self.filled = 0;
                    let head = Head::parse(self.header);
                    self.left = head.length;
                    self.wanted = head.prefix();
                    self.word = 0;
                    if self.wanted == 0 && !see(Event::Frame(head, 0)) {
                        return;
                    }
                    if self.left == 0 {
                        if !see(Event::End(head)) {
                            return;
                        }
                        continue;
                    }
                    self.current = Some(head);
                    head
                }
            };
            let n = (self.left as usize).min(bytes.len());
            let (payload, rest) = bytes.split_at(n);
            bytes = rest;
            self.left -= n as u32;
            for byte in payload.iter().take(usize::from(self.wanted)) {
                self.word = self.word << 8 | u32::from(*byte);
                self.wanted -= 1;
                if self.wanted == 0 && !see(Event::Frame(head, self.word)) {
                    return;
                }
            }
            if head.kind == kind::GOAWAY && !payload.iter().all(|byte| see(Event::Away(*byte))) {
                return;
            }
            if head.kind == kind::DATA && n > 0 {
                let data = Event::Data {
                    stream: head.stream,
                    bytes: n as u32,
                };
                if !see(data) {
                    return;
                }
            }
            if self.left == 0 {
                self.current = None;
                if !see(Event::End(head)) {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u32).to_be_bytes();
        let mut bytes = vec![length[1], length[2], length[3], kind, flags];
        bytes.extend(stream.to_be_bytes());
        bytes.extend(payload);
        bytes
    }

    /// The frames seen, with DATA's bytes summed into the frame's end.
    fn seen(pieces: &[&[u8]], preface: bool) -> Vec<(Head, u32, u32)> {
        let mut frames = Frames::new(preface);
        let (mut all, mut word, mut data) = (Vec::new(), None, 0);
        for piece in pieces {
            frames.feed(piece, |event| {
                match event {
                    Event::Frame(_, value) => assert_eq!(word.replace(value), None),
                    Event::Data { bytes, .. } => data += bytes,
                    Event::Away(_) => {}
                    Event::End(head) => {
                        let word = word.take().expect("announced before it ended");
                        all.push((head, word, std::mem::take(&mut data)));
                    }
                }
                true
            });
        }
        all
    }

    proptest! {
        #[test]
        fn frames_are_the_same_however_they_are_cut(
            parts in prop::collection::vec((0u8..12, any::<u8>(), any::<u32>(), prop::collection::vec(any::<u8>(), 0..40)), 0..12),
            cuts in prop::collection::vec(1usize..30, 1..60),
            preface: bool,
        ) {
            let mut bytes = if preface { b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec() } else { Vec::new() };
            for (kind, flags, stream, payload) in &parts {
                bytes.extend(frame(*kind, *flags, *stream, payload));
            }
            let mut pieces = Vec::new();
            let mut rest = &bytes[..];
            for cut in cuts.iter().cycle() {
                if rest.is_empty() { break; }
                let (piece, after) = rest.split_at((*cut).min(rest.len()));
                pieces.push(piece);
                rest = after;
            }
            let got = seen(&pieces, preface);
            prop_assert_eq!(got.len(), parts.len());
            for ((head, word, data), (kind, flags, stream, payload)) in got.iter().zip(&parts) {
                prop_assert_eq!(head.kind, *kind);
                prop_assert_eq!(head.flags, *flags);
                prop_assert_eq!(head.stream, *stream & 0x7fff_ffff);
                prop_assert_eq!(head.length as usize, payload.len());
                let expected = match *kind {
                    kind::DATA if flags & flag::PADDED != 0 => payload.first().map_or(0, |b| u32::from(*b)),
                    kind::RST_STREAM | kind::WINDOW_UPDATE => payload.iter().take(4).fold(0, |w, b| w << 8 | u32::from(*b)),
                    _ => 0,
                };
                prop_assert_eq!(*word, expected);
                prop_assert_eq!(*data as usize, if *kind == kind::DATA { payload.len() } else { 0 });
            }
        }
    }

    #[test]
    fn who_stops_is_not_asked_again() {
        let bytes = [frame(6, 0, 0, &[0; 8]), frame(6, 0, 0, &[0; 8])].concat();
        let mut count = 0;
        Frames::new(false).feed(&bytes, |_| {
            count += 1;
            false
        });
        assert_eq!(count, 1);
    }
}
