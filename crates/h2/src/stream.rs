//! State of one stream. It is small: a connection may have hundreds of streams.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use crate::flags;
use crate::pieces;
use crate::trailers::Trailers;

/// Pieces below this many bytes are gathered where they wait. Each would take some sixty bytes beside its own.
const SMALL: usize = 1024;

/// Small pieces are gathered up to this many bytes.
const GATHERED: usize = 8 * 1024;

/// What waits to be framed.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    front: Bytes,
    /// Most streams never have two pieces waiting, or trailers: they have a pointer here and not a list.
    rest: Option<Box<Rest>>,
}

/// What waits behind the first piece of a stream's data.
#[derive(Debug, Default)]
struct Rest {
    pieces: VecDeque<Bytes>,
    /// Small pieces behind them.
    gathered: BytesMut,
    trailers: Option<Trailers>,
}

impl Rest {
    fn push(&mut self, bytes: Bytes) {
        let is_small = bytes.len() < SMALL;
        if !is_small || self.gathered.len() + bytes.len() > GATHERED {
            self.seal();
        }
        match is_small {
            true => self.gathered.extend_from_slice(&bytes),
            false => self.pieces.push_back(bytes),
        }
    }

    fn seal(&mut self) {
        if !self.gathered.is_empty() {
            let gathered = std::mem::take(&mut self.gathered);
            self.pieces.push_back(gathered.freeze());
        }
    }

    /// The next piece; empty if there is none.
    fn pop(&mut self) -> Bytes {
        if self.pieces.is_empty() {
            self.seal();
        }
        self.pieces.pop_front().unwrap_or_default()
    }
}

impl Queue {
    pub(crate) fn push(&mut self, bytes: Bytes) {
        if self.front.is_empty() {
            self.front = bytes;
        } else {
            self.rest.get_or_insert_default().push(bytes);
        }
    }

    /// Keeps trailers until all data was framed.
    pub(crate) fn set_trailers(&mut self, trailers: Trailers) {
        self.rest.get_or_insert_default().trailers = Some(trailers);
    }

    /// Bytes of the trailers that are kept.
    pub(crate) fn trailers_size(&self) -> usize {
        let trailers = self.rest.as_ref().and_then(|rest| rest.trailers.as_ref());
        trailers.map_or(0, Trailers::size)
    }

    /// The trailers; no data is queued any more.
    pub(crate) fn take_trailers(&mut self) -> Option<Trailers> {
        self.rest.take()?.trailers
    }

    /// At most so many bytes from the front, in one piece; none if there are none.
    pub(crate) fn pop(&mut self, most: usize) -> Bytes {
        if self.front.len() > most {
            return pieces::take(&mut self.front, most);
        }
        let next = match &mut self.rest {
            Some(rest) => rest.pop(),
            None => Bytes::new(),
        };
        if next.is_empty()
            && self
                .rest
                .as_ref()
                .is_some_and(|rest| rest.trailers.is_none())
        {
            self.rest = None;
        }
        std::mem::replace(&mut self.front, next)
    }
}

/// The binary logarithm of the most bytes that a stream's own limit can be.
pub(crate) const MOST: u8 = 31;

/// A stream from its opening until its caller lets it go.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) id: u32,
    /// See [`flags`].
    pub(crate) state: u16,
    /// The binary logarithm of the bytes that may wait in `queue`.
    pub(crate) most: u8,
    /// What the peer lets us send; below zero if it took some back (RFC 9113 §6.9.2).
    pub(crate) window: i32,
    /// What the peer may still send.
    pub(crate) credit: u32,
    /// What came and the caller has not consumed.
    pub(crate) held: u32,
    /// Bytes in `queue`.
    pub(crate) queued: u32,
    pub(crate) queue: Queue,
    /// Bytes of content that are still to come, if the stream is [`flags::COUNTED`].
    pub(crate) left: u64,
}

// Two hundred of them on every tunnel. The length of the content is here and not in a list, which each DATA frame would search.
const _: () = assert!(size_of::<Stream>() <= 72);

impl Stream {
    pub(crate) fn new(id: u32, state: u16, window: i32, credit: u32) -> Self {
        Stream {
            id,
            state,
            most: MOST,
            window,
            credit,
            held: 0,
            queued: 0,
            queue: Queue::default(),
            left: 0,
        }
    }

    #[inline]
    pub(crate) fn is(&self, what: u16) -> bool {
        self.state & what != 0
    }

    #[inline]
    pub(crate) fn set(&mut self, what: u16) {
        self.state |= what;
    }

    #[inline]
    pub(crate) fn unset(&mut self, what: u16) {
        self.state &= !what;
    }

    /// What it may queue more, where no more than `most` may wait and nothing that its window does not allow.
    #[inline]
    pub(crate) fn room(&self, most: u32) -> u32 {
        let most = most.min(1 << self.most).min(self.window.max(0) as u32);
        most.saturating_sub(self.queued)
    }

    /// True if nothing more travels in either direction.
    pub(crate) fn is_over(&self) -> bool {
        self.state & (flags::SENT | flags::HEARD) == flags::SENT | flags::HEARD
    }

    /// So many bytes of content come; the error is one of a stream whose length is known.
    #[inline]
    pub(crate) fn content(&mut self, bytes: u32, end: bool) -> Option<&'static str> {
        if !self.is(flags::COUNTED) {
            return None;
        }
        match self.left.checked_sub(u64::from(bytes)) {
            Some(rest) if rest == 0 || !end => {
                self.left = rest;
                None
            }
            _ => Some("content of another length than it says"),
        }
    }

    /// True if it could send something now, were it for its own window.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        !self.is(flags::SENT)
            && (self.queued > 0 && self.window > 0 || self.queued == 0 && self.is(flags::ENDING))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn small_pieces_take_about_their_bytes() {
        let mut queue = Queue::default();
        let large = Bytes::from(vec![b'x'; SMALL]);
        let mut put = Vec::new();
        for number in 0..100_000 {
            let piece = match number {
                50_000 => large.clone(),
                _ => Bytes::from(vec![number as u8]),
            };
            put.extend_from_slice(&piece);
            queue.push(piece);
        }
        let rest = queue.rest.as_ref().expect("some wait");
        assert!(rest.pieces.len() <= 100_000 / GATHERED + 3);
        assert!(rest.gathered.capacity() <= 2 * GATHERED);
        let mut got = Vec::new();
        while let piece @ [_, ..] = &queue.pop(1 << 14)[..] {
            got.extend_from_slice(piece);
        }
        assert!(got == put, "all of it comes out in order");
    }

    proptest! {
        #[test]
        fn a_queue_gives_back_what_it_got(steps in prop::collection::vec((1usize..2 * SMALL, 0usize..3 * SMALL), 1..30)) {
            let mut queue = Queue::default();
            let (mut put, mut got) = (Vec::new(), Vec::new());
            for (number, (length, most)) in steps.into_iter().enumerate() {
                let bytes = vec![number as u8; length];
                put.extend_from_slice(&bytes);
                queue.push(bytes.into());
                if most > 0 {
                    let piece = queue.pop(most);
                    prop_assert!(!piece.is_empty() && piece.len() <= most);
                    got.extend_from_slice(&piece);
                }
            }
            while let piece @ [_, ..] = &queue.pop(1000)[..] {
                got.extend_from_slice(piece);
            }
            prop_assert_eq!(got, put);
        }
    }
}
