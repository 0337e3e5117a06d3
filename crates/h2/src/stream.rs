//! One stream's state, small: a connection may have hundreds.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::trailers::Trailers;

/// What holds for a stream, one bit each.
pub(crate) mod is {
    /// Nothing more of ours goes out: END_STREAM was framed, or the stream was reset.
    pub(crate) const SENT: u16 = 1 << 0;
    /// Nothing more comes: END_STREAM came, or the stream was reset.
    pub(crate) const HEARD: u16 = 1 << 1;
    /// END_STREAM is to follow what is queued.
    pub(crate) const ENDING: u16 = 1 << 2;
    /// It waits for its turn.
    pub(crate) const READY: u16 = 1 << 3;
    /// The caller waits for room.
    pub(crate) const WAITING: u16 = 1 << 4;
    /// The request's method is CONNECT.
    pub(crate) const CONNECT: u16 = 1 << 5;
    /// The response's header block was sent or came.
    pub(crate) const ANSWERED: u16 = 1 << 6;
    /// We opened it.
    pub(crate) const OURS: u16 = 1 << 7;
    /// We reset it: what still comes is no fault of the peer's.
    pub(crate) const RESET: u16 = 1 << 8;
    /// The caller has let it go, and what it said before is still to be sent.
    pub(crate) const LET_GO: u16 = 1 << 9;
    /// The length of the peer's content is known, see [`Stream::left`](super::Stream::left).
    pub(crate) const COUNTED: u16 = 1 << 10;
    /// The request's method is HEAD.
    pub(crate) const HEAD: u16 = 1 << 11;
    /// The request is an extended CONNECT (RFC 8441 §4).
    pub(crate) const EXTENDED: u16 = 1 << 12;
    /// Trailers are to follow what is queued.
    pub(crate) const TRAILERS: u16 = 1 << 13;
    /// It waits for room and is in the line of those that may have some.
    pub(crate) const LISTED: u16 = 1 << 14;
}

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
    trailers: Option<Trailers>,
}

impl Queue {
    pub(crate) fn push(&mut self, bytes: Bytes) {
        if self.front.is_empty() {
            self.front = bytes;
        } else {
            let rest = self.rest.get_or_insert_default();
            rest.pieces.push_back(bytes);
        }
    }

    /// Keeps trailers until all data was framed.
    pub(crate) fn set_trailers(&mut self, trailers: Trailers) {
        self.rest.get_or_insert_default().trailers = Some(trailers);
    }

    /// The trailers; no data is queued any more.
    pub(crate) fn take_trailers(&mut self) -> Option<Trailers> {
        self.rest.take()?.trailers
    }

    /// At most so many bytes from the front, in one piece; none if there are none.
    pub(crate) fn pop(&mut self, most: usize) -> Bytes {
        if self.front.len() > most {
            return self.front.split_to(most);
        }
        let next = match &mut self.rest {
            Some(rest) => rest.pieces.pop_front().unwrap_or_default(),
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

/// A stream from its opening until its caller lets it go.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) id: u32,
    /// See [`is`].
    pub(crate) state: u16,
    /// What the peer lets us send; below zero if it took some back (RFC 9113 §6.9.2).
    pub(crate) window: i32,
    /// What the peer may still send.
    pub(crate) credit: u32,
    /// What came and the caller has not consumed.
    pub(crate) held: u32,
    /// Bytes in `queue`.
    pub(crate) queued: u32,
    pub(crate) queue: Queue,
    /// Bytes of content that are still to come, if the stream is [`is::COUNTED`].
    pub(crate) left: u64,
}

// Two hundred of them on every tunnel. The length of the content is here and not in a list, which each DATA frame would search.
const _: () = assert!(size_of::<Stream>() <= 72);

impl Stream {
    pub(crate) fn new(id: u32, state: u16, window: i32, credit: u32) -> Self {
        Stream {
            id,
            state,
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
        let most = most.min(self.window.max(0) as u32);
        most.saturating_sub(self.queued)
    }

    /// True if nothing more travels in either direction.
    pub(crate) fn is_over(&self) -> bool {
        self.state & (is::SENT | is::HEARD) == is::SENT | is::HEARD
    }

    /// So many bytes of content come; the error is one of a stream whose length is known.
    #[inline]
    pub(crate) fn content(&mut self, bytes: u32, end: bool) -> Option<&'static str> {
        if !self.is(is::COUNTED) {
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
        !self.is(is::SENT)
            && (self.queued > 0 && self.window > 0 || self.queued == 0 && self.is(is::ENDING))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_queue_gives_back_what_it_got(steps in prop::collection::vec((1usize..50, 0usize..70), 1..30)) {
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
