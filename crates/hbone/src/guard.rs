//! Judges what a peer sends by its frame headers, before the HTTP/2 layer acts on them: each kind of frame that costs us
//! more than it costs the peer has an allowance. It reads no payload and no clock of its own.

use std::time::Duration;

use lateen_h2::Abuse;
use tokio::time::Instant;

use crate::frames::{Event, Frames, Head, flag, kind};
use crate::windows::Inflow;

/// So many at once, and so many a second in the long run.
#[derive(Debug, Clone, Copy)]
struct Allowance {
    burst: u32,
    per_second: u32,
}

/// Honest peers send a PING every few seconds, or one a round trip while they measure the path.
const PINGS: Allowance = allow(1_000, 200);
/// Honest peers send SETTINGS once, and again when their operator changes something.
const SETTINGS: Allowance = allow(100, 5);
/// Entries of one SETTINGS frame: RFC 9113 and its extensions define fewer than ten.
const SETTINGS_ENTRIES: u32 = 64;
/// PRIORITY is deprecated, unknown kinds are the grease of a few peers, and one GOAWAY or two are enough.
const USELESS: Allowance = allow(1_000, 100);
/// An end of stream travels in a frame that needs no data; others need none only by accident.
const EMPTY_DATA: Allowance = allow(1_000, 100);
/// Beyond those that what we sent explains.
const WINDOW_UPDATES: Allowance = allow(2_000, 100);
/// One for the stream and one for the connection for each DATA frame, of which the smallest has ten bytes.
const WINDOW_UPDATE_BYTES: u32 = 5;
/// Clients that give up while we dial: a pod's worth of them at once is an accident, and then they have gone.
const UNANSWERED: Allowance = allow(1_000, 200);
/// Honest peers break no stream's rules, but they may send to a stream that we have just closed.
const PROVOKED: Allowance = allow(200, 20);
/// A peer that has not read our SETTINGS yet may be wrong once, by what it assumes.
const REFUSED: Allowance = allow(1_000, 100);
/// Header blocks that a client gets beyond two for each of its requests: the answer and a trailer.
const UNASKED: Allowance = allow(100, 10);
/// Pieces of one header block: 64 KiB in frames of 16 KiB are four.
const FRAGMENTS: u32 = 8;

const fn allow(burst: u32, per_second: u32) -> Allowance {
    Allowance { burst, per_second }
}

/// What is left of an allowance. The clock is asked only when it is used up.
#[derive(Debug)]
struct Bucket {
    allowance: Allowance,
    left: u32,
    filled: Instant,
}

impl Bucket {
    fn new(allowance: Allowance, now: Instant) -> Self {
        Bucket {
            allowance,
            left: allowance.burst,
            filled: now,
        }
    }

    /// Takes one; `false` if there is none.
    fn take(&mut self, now: impl FnOnce() -> Instant) -> bool {
        if self.left == 0 {
            let now = now();
            let elapsed = now
                .saturating_duration_since(self.filled)
                .min(Duration::from_secs(3600));
            let more = elapsed.as_millis() as u64 * u64::from(self.allowance.per_second) / 1000;
            if more == 0 {
                return false;
            }
            self.left = more.min(u64::from(self.allowance.burst)) as u32;
            self.filled = now;
        }
        self.left -= 1;
        true
    }

    fn earn(&mut self, more: u32) {
        self.left = self.left.saturating_add(more).min(self.allowance.burst * 4);
    }
}

/// One tunnel's judge.
#[derive(Debug)]
pub(crate) struct Guard {
    server: bool,
    inward: Frames,
    outward: Frames,
    verdict: Option<Abuse>,
    inflow: Inflow,
    pings: Bucket,
    settings: Bucket,
    useless: Bucket,
    empty: Bucket,
    updates: Bucket,
    unanswered: Bucket,
    provoked: Bucket,
    refused: Bucket,
    unasked: Bucket,
    /// Most bytes of one header block.
    most_headers: u32,
    /// Bytes and pieces of the header block that is under way.
    block: (u32, u32),
    /// Sent bytes that have not earned a window update yet.
    unearned: u32,
    /// The payload of our GOAWAY: the HTTP/2 layer has limits of its own and says there which was reached.
    farewell: Vec<u8>,
    /// The last stream that the peer's GOAWAY names, as far as it has come.
    last: Vec<u8>,
}

/// Most bytes of our own GOAWAY that are looked at.
const FAREWELL: usize = 64;

/// What happens to a stream on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passing {
    /// So many bytes of its data went out.
    Sent(u32, u32),
    /// Nothing more of it will go out.
    Closed(u32),
    /// So many bytes more may go out, on all streams together.
    Granted(u32),
    /// Nothing more will go out of streams of ours beyond this one.
    Away(u32),
}

impl Guard {
    /// A judge over a server's or a client's tunnel whose header lists have at most `most_headers` bytes.
    pub(crate) fn new(server: bool, most_headers: u32, now: Instant) -> Self {
        let bucket = |allowance| Bucket::new(allowance, now);
        Guard {
            server,
            inward: Frames::new(server),
            outward: Frames::new(!server),
            verdict: None,
            inflow: Inflow::default(),
            pings: bucket(PINGS),
            settings: bucket(SETTINGS),
            useless: bucket(USELESS),
            empty: bucket(EMPTY_DATA),
            updates: bucket(WINDOW_UPDATES),
            unanswered: bucket(UNANSWERED),
            provoked: bucket(PROVOKED),
            refused: bucket(REFUSED),
            unasked: bucket(UNASKED),
            // Huffman can make a string longer, up to 30 bits a byte; nobody who means well lets it.
            most_headers: most_headers.saturating_mul(2),
            block: (0, 0),
            unearned: 0,
            farewell: Vec::new(),
            last: Vec::new(),
        }
    }

    /// What the peer is guilty of, if anything.
    pub(crate) fn verdict(&self) -> Option<Abuse> {
        self.verdict
    }

    /// What the peer may send on the connection and what it sent.
    pub(crate) fn inflow(&self) -> Inflow {
        crate::windows::Inflow {
            wanted: u32::MAX,
            ..self.inflow
        }
    }

    /// Judges bytes that came; `passing` hears what they mean for streams once the HTTP/2 layer has acted on them.
    pub(crate) fn received(
        &mut self,
        bytes: &[u8],
        now: impl Fn() -> Instant,
        mut passing: impl FnMut(Passing),
    ) {
        let mut inward = std::mem::replace(&mut self.inward, Frames::new(false));
        inward.feed(bytes, |event| {
            match event {
                Event::Frame(head, word) => {
                    match head.kind {
                        kind::DATA => self.inflow.came += u64::from(head.length),
                        kind::RST_STREAM => passing(Passing::Closed(head.stream)),
                        kind::GOAWAY => self.last.clear(),
                        kind::WINDOW_UPDATE if head.stream == 0 => {
                            // The first bit is reserved (RFC 9113 §6.9).
                            passing(Passing::Granted(word & 0x7fff_ffff));
                        }
                        _ => {}
                    }
                    self.verdict = self.verdict.or_else(|| self.judge(head, word, &now));
                }
                Event::Away(byte) if self.last.len() < 4 => self.last.push(byte),
                // It is said of the streams that its receiver opened (RFC 9113 §6.8): a server opens none.
                Event::End(head) if head.kind == kind::GOAWAY && !self.server => {
                    if let Ok(last) = <[u8; 4]>::try_from(&self.last[..]) {
                        // The highest bit is reserved.
                        passing(Passing::Away(u32::from_be_bytes(last) & 0x7fff_ffff));
                    }
                }
                _ => {}
            }
            self.verdict.is_none()
        });
        self.inward = inward;
    }

    /// Takes note of bytes that go out.
    pub(crate) fn sent(
        &mut self,
        bytes: &[u8],
        now: impl Fn() -> Instant,
        mut passing: impl FnMut(Passing),
    ) {
        let mut outward = std::mem::replace(&mut self.outward, Frames::new(false));
        outward.feed(bytes, |event| {
            match event {
                Event::Frame(head, code) if head.kind == kind::RST_STREAM => {
                    passing(Passing::Closed(head.stream));
                    let fine = match code {
                        // NO_ERROR, CANCEL and CONNECT_ERROR are our own doing (RFC 9113 §7).
                        0x0 | 0x8 | 0xa => true,
                        0x7 => self.refused.take(&now),
                        _ => self.provoked.take(&now),
                    };
                    if !fine {
                        self.verdict.get_or_insert(match code {
                            0x7 => Abuse::TooManyStreams,
                            _ => Abuse::ProvokedResets,
                        });
                    }
                }
                Event::Frame(head, _) if head.kind == kind::GOAWAY => self.farewell.clear(),
                Event::Frame(head, increment)
                    if head.kind == kind::WINDOW_UPDATE && head.stream == 0 =>
                {
                    self.inflow.granted += u64::from(increment);
                }
                Event::Away(byte) if self.farewell.len() < FAREWELL => self.farewell.push(byte),
                // Each request may be answered by headers and trailers.
                Event::Frame(head, _) if head.kind == kind::HEADERS => self.unasked.earn(2),
                Event::Data { stream, bytes } => {
                    passing(Passing::Sent(stream, bytes));
                    self.unearned = self.unearned.saturating_add(bytes);
                }
                Event::End(head) if head.kind == kind::DATA => {
                    // With the frame's header.
                    self.unearned = self.unearned.saturating_add(9);
                    self.updates.earn(self.unearned / WINDOW_UPDATE_BYTES);
                    self.unearned %= WINDOW_UPDATE_BYTES;
                    if head.has(flag::END_STREAM) {
                        passing(Passing::Closed(head.stream));
                    }
                }
                _ => {}
            }
            true
        });
        self.outward = outward;
    }

    /// The abuse that the HTTP/2 layer saw before we did, once it has told the peer.
    pub(crate) fn found_below(&self) -> Option<Abuse> {
        let text = self.farewell.get(8..)?;
        [
            (&b"too_many_resets"[..], Abuse::RapidReset),
            (b"too_many_internal_resets", Abuse::ProvokedResets),
            (b"too_many_continuations", Abuse::HeaderFlood),
            (b"header_list_way_too_large", Abuse::HeaderFlood),
            (b"too_many_data_frames", Abuse::EmptyData),
        ]
        .into_iter()
        .find_map(|(word, abuse)| (text == word).then_some(abuse))
    }

    /// A request was reset before it was answered.
    pub(crate) fn unanswered(&mut self, now: impl Fn() -> Instant) {
        if !self.unanswered.take(now) {
            self.verdict.get_or_insert(Abuse::RapidReset);
        }
    }

    fn judge(&mut self, head: Head, word: u32, now: impl Fn() -> Instant) -> Option<Abuse> {
        let (bucket, abuse) = match head.kind {
            kind::DATA => {
                // Padding is no data (RFC 9113 §6.1).
                let padding = if head.has(flag::PADDED) { word + 1 } else { 0 };
                if head.length > padding || head.has(flag::END_STREAM) {
                    return None;
                }
                (&mut self.empty, Abuse::EmptyData)
            }
            kind::HEADERS | kind::PUSH_PROMISE | kind::CONTINUATION => {
                return self.headers(head, now);
            }
            // The HTTP/2 layer refuses acknowledgements of what it never sent.
            kind::SETTINGS if head.has(flag::ACK) => return None,
            kind::SETTINGS => {
                if head.length > SETTINGS_ENTRIES * 6 {
                    return Some(Abuse::SettingsFlood);
                }
                (&mut self.settings, Abuse::SettingsFlood)
            }
            kind::PING => (&mut self.pings, Abuse::PingFlood),
            kind::WINDOW_UPDATE => (&mut self.updates, Abuse::WindowUpdateFlood),
            // Judged where it is known what the reset is for.
            kind::RST_STREAM => return None,
            _ => (&mut self.useless, Abuse::UselessFrames),
        };
        (!bucket.take(now)).then_some(abuse)
    }

    fn headers(&mut self, head: Head, now: impl Fn() -> Instant) -> Option<Abuse> {
        if head.kind != kind::CONTINUATION {
            self.block = (0, 0);
            if !self.server && !self.unasked.take(now) {
                return Some(Abuse::HeaderFlood);
            }
        }
        let (bytes, pieces) = (self.block.0.saturating_add(head.length), self.block.1 + 1);
        self.block = if head.has(flag::END_HEADERS) {
            (0, 0)
        } else {
            (bytes, pieces)
        };
        (bytes > self.most_headers || pieces > FRAGMENTS).then_some(Abuse::HeaderFlood)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u32).to_be_bytes();
        let mut bytes = vec![length[1], length[2], length[3], kind, flags];
        bytes.extend(stream.to_be_bytes());
        bytes.extend(payload);
        bytes
    }

    /// How many of these frames a guard lets pass at one moment, and what it says then.
    fn until_judged(server: bool, frame: &[u8]) -> (u32, Option<Abuse>) {
        let now = Instant::now();
        let mut guard = Guard::new(server, 16 * 1024, now);
        // The preface is a client's.
        guard.inward = Frames::new(false);
        for count in 0..100_000 {
            guard.received(frame, || now, |_| {});
            if guard.verdict().is_some() {
                return (count, guard.verdict());
            }
        }
        (100_000, None)
    }

    #[test]
    fn every_kind_has_its_allowance() {
        for (bytes, passed, abuse) in [
            (frame(6, 0, 0, &[0; 8]), 1_000, Abuse::PingFlood),
            (frame(6, 1, 0, &[0; 8]), 1_000, Abuse::PingFlood),
            (frame(4, 0, 0, &[]), 100, Abuse::SettingsFlood),
            (frame(4, 0, 0, &[0; 65 * 6]), 0, Abuse::SettingsFlood),
            (frame(2, 0, 1, &[0; 5]), 1_000, Abuse::UselessFrames),
            (frame(0xbe, 0, 1, &[1]), 1_000, Abuse::UselessFrames),
            (frame(7, 0, 0, &[0; 8]), 1_000, Abuse::UselessFrames),
            (frame(0, 0, 1, &[]), 1_000, Abuse::EmptyData),
            (frame(0, 8, 1, &[3, 0, 0, 0]), 1_000, Abuse::EmptyData),
            (
                frame(8, 0, 1, &[0, 0, 0, 1]),
                2_000,
                Abuse::WindowUpdateFlood,
            ),
            (frame(9, 0, 1, &[]), 8, Abuse::HeaderFlood),
            (frame(9, 0, 1, &[0; 20_000]), 1, Abuse::HeaderFlood),
        ] {
            assert_eq!(until_judged(true, &bytes), (passed, Some(abuse)));
        }
        assert_eq!(
            until_judged(false, &frame(1, 4, 1, &[0x88])),
            (100, Some(Abuse::HeaderFlood))
        );
    }

    #[test]
    fn what_carries_something_has_no_limit() {
        for bytes in [
            frame(0, 0, 1, b"x"),
            frame(0, 8, 1, &[2, b'x', 0, 0]),
            frame(0, 1, 1, &[]),
            frame(1, 4, 1, &[0x88]),
            frame(4, 1, 0, &[]),
        ] {
            assert_eq!(until_judged(true, &bytes).1, None);
        }
    }

    #[test]
    fn allowances_come_back_with_time() {
        let start = Instant::now();
        let now = Cell::new(start);
        let mut guard = Guard::new(false, 16 * 1024, start);
        // A PING every ten milliseconds for five minutes.
        for _ in 0..30_000 {
            now.set(now.get() + Duration::from_millis(10));
            guard.received(&frame(6, 0, 0, &[0; 8]), || now.get(), |_| {});
        }
        assert_eq!(guard.verdict(), None);
        // A second's worth of them at once is too much when the burst is spent.
        for _ in 0..1_500 {
            guard.received(&frame(6, 0, 0, &[0; 8]), || now.get(), |_| {});
        }
        assert_eq!(guard.verdict(), Some(Abuse::PingFlood));
    }

    #[test]
    fn data_that_was_sent_explains_window_updates() {
        let now = Instant::now();
        let mut guard = Guard::new(true, 16 * 1024, now);
        guard.inward = Frames::new(false);
        let update = [frame(8, 0, 0, &[0, 0, 0, 1]), frame(8, 0, 1, &[0, 0, 0, 1])].concat();
        for _ in 0..100_000 {
            guard.sent(&frame(0, 0, 1, b"x"), || now, |_| {});
            guard.received(&update, || now, |_| {});
        }
        assert_eq!(guard.verdict(), None);
    }

    #[test]
    fn resets_that_we_were_made_to_send_count_and_our_own_do_not() {
        let now = Instant::now();
        for (code, judged) in [
            (0u32, None),
            (8, None),
            (0xa, None),
            (1, Some(Abuse::ProvokedResets)),
            (3, Some(Abuse::ProvokedResets)),
            (7, Some(Abuse::TooManyStreams)),
        ] {
            let mut guard = Guard::new(true, 16 * 1024, now);
            for _ in 0..2_000 {
                guard.sent(&frame(3, 0, 1, &code.to_be_bytes()), || now, |_| {});
            }
            assert_eq!(guard.verdict(), judged, "{code}");
        }
    }

    #[test]
    fn ends_of_streams_are_heard_when_their_frames_are_whole() {
        let now = Instant::now();
        let away = frame(7, 0, 0, &[0x80, 0, 0, 5, 0, 0, 0, 0, b'x']);
        let bytes = [frame(3, 0, 7, &[0, 0, 0, 8]), away].concat();
        for (server, expected) in [
            (
                false,
                vec![(13, Passing::Closed(7)), (31, Passing::Away(5))],
            ),
            (true, vec![(13, Passing::Closed(7))]),
        ] {
            let mut guard = Guard::new(server, 16 * 1024, now);
            guard.inward = Frames::new(false);
            let mut heard = Vec::new();
            for (at, byte) in bytes.iter().enumerate() {
                guard.received(&[*byte], || now, |passing| heard.push((at + 1, passing)));
            }
            assert_eq!(heard, expected);
        }
    }
}
