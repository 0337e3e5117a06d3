//! One stream's state, small: a connection may have hundreds.

use std::collections::VecDeque;

use bytes::Bytes;

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
    /// The peer said how long its content is.
    pub(crate) const COUNTED: u16 = 1 << 10;
}

/// What waits to be framed.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    front: Bytes,
    /// Most streams never have two pieces waiting: they have a pointer here and not a list.
    #[expect(clippy::box_collection, reason = "a quarter of the size")]
    rest: Option<Box<VecDeque<Bytes>>>,
}

impl Queue {
    pub(crate) fn push(&mut self, bytes: Bytes) {
        if self.front.is_empty() {
            self.front = bytes;
        } else {
            self.rest.get_or_insert_default().push_back(bytes);
        }
    }

    /// At most so many bytes from the front, in one piece; none if there are none.
    pub(crate) fn pop(&mut self, most: usize) -> Bytes {
        if self.front.len() > most {
            return self.front.split_to(most);
        }
        let next = match &mut self.rest {
            Some(rest) => rest.pop_front().unwrap_or_default(),
            None => Bytes::new(),
        };
        if next.is_empty() {
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
}

// Two hundred of them on every tunnel.
const _: () = assert!(size_of::<Stream>() <= 64);

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

    /// True if nothing more travels in either direction.
    pub(crate) fn is_over(&self) -> bool {
        self.state & (is::SENT | is::HEARD) == is::SENT | is::HEARD
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
