//! Output in order: heads and chunk lines in one buffer, payloads by reference.

use std::collections::VecDeque;

use bytes::{Buf, Bytes};

/// Capacity that an empty buffer keeps, in bytes.
const KEPT: usize = 4096;

/// Payloads below this many bytes are copied: a piece by reference takes 32 bytes, and its own allocation.
const COPIED: usize = 128;

/// Segments whose room an output keeps in any case.
const SEGMENTS: usize = 64;

/// A payload of this length may keep the read buffer that it lies in, which has four times as many bytes.
const LARGE: usize = 8 * 1024;

#[derive(Debug)]
enum Segment {
    /// So many bytes of the buffer.
    Small(u32),
    Payload(Bytes),
}

/// Bytes that wait to be written.
#[derive(Debug, Default)]
pub(crate) struct Output {
    segments: VecDeque<Segment>,
    small: Vec<u8>,
    /// Bytes of `small` that were written.
    written: usize,
    /// All bytes that wait.
    len: usize,
}

impl Output {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds the bytes that `write` appends, or none if it fails.
    #[inline]
    pub(crate) fn small<E>(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let before = self.small.len();
        if let Err(error) = write(&mut self.small) {
            self.small.truncate(before);
            return Err(error);
        }
        let bytes = self.small.len() - before;
        if bytes == 0 {
            return Ok(());
        }
        self.len += bytes;
        match self.segments.back_mut() {
            Some(Segment::Small(length)) => *length += bytes as u32,
            _ => self.segments.push_back(Segment::Small(bytes as u32)),
        }
        Ok(())
    }

    /// Gives memory back if nothing waits.
    pub(crate) fn rest(&mut self) {
        if self.len == 0 {
            *self = Output::default();
        }
    }

    #[inline]
    pub(crate) fn copy(&mut self, bytes: &[u8]) {
        let Ok(()) = self.small(|out| -> Result<(), std::convert::Infallible> {
            out.extend_from_slice(bytes);
            Ok(())
        });
    }

    #[inline]
    pub(crate) fn payload(&mut self, bytes: Bytes) {
        if bytes.len() < COPIED {
            return self.copy(&bytes);
        }
        self.len += bytes.len();
        self.segments.push_back(Segment::Payload(bytes));
    }

    /// The pieces in order.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let mut at = self.written;
        self.segments.iter().map(move |segment| match segment {
            Segment::Small(length) => {
                let piece = &self.small[at..at + *length as usize];
                at += piece.len();
                piece
            }
            Segment::Payload(bytes) => &bytes[..],
        })
    }

    /// Drops so many bytes, which were written.
    pub(crate) fn advance(&mut self, bytes: usize) {
        let mut left = bytes.min(self.len);
        self.len -= left;
        while let Some(segment) = self.segments.front_mut() {
            let size = match segment {
                Segment::Small(length) => *length as usize,
                Segment::Payload(payload) => payload.len(),
            };
            let n = left.min(size);
            match segment {
                Segment::Small(length) => {
                    self.written += n;
                    *length -= n as u32;
                }
                Segment::Payload(payload) => {
                    payload.advance(n);
                    if !payload.is_empty() && is_much_less(payload.len(), size) {
                        *payload = Bytes::copy_from_slice(payload);
                    }
                }
            }
            left -= n;
            if n < size {
                break;
            }
            self.segments.pop_front();
        }
        if self.segments.capacity() > SEGMENTS.max(4 * self.segments.len()) {
            self.segments.shrink_to(2 * self.segments.len());
        }
        if self.len == 0 {
            self.small.clear();
            self.small.shrink_to(KEPT);
            self.written = 0;
        } else if self.written > KEPT.max(self.small.len() / 2) {
            // The rest is smaller than the written part, so moving it costs no more than writing did.
            self.small.drain(..self.written);
            self.written = 0;
            // A peer that leaves a little unread would keep the room of all that it has read.
            let needed = self.small.len().max(KEPT);
            if self.small.capacity() > 4 * needed {
                self.small.shrink_to(2 * needed);
            }
        }
    }
}

/// True if so many bytes that are left should not keep the buffer of so many alive. Copies of ever less are a third of all bytes.
#[inline]
fn is_much_less(left: usize, before: usize) -> bool {
    let class = |length: usize| length.min(LARGE).ilog2().div_ceil(2);
    class(left) < class(before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;
    use proptest::prelude::*;

    #[test]
    fn the_rest_of_a_payload_does_not_keep_its_buffer() {
        let mut output = Output::default();
        let mut buffer = BytesMut::from(&[7; 32 * 1024][..]);
        output.payload(buffer.split().freeze());
        output.advance(24 * 1024);
        assert!(!buffer.try_reclaim(1), "a quarter is no copy");
        output.advance(8 * 1024 - 1);
        assert!(buffer.try_reclaim(32 * 1024));
        assert_eq!(output.pieces().collect::<Vec<_>>(), [[7]]);
    }

    #[test]
    fn what_is_left_of_a_burst_does_not_keep_its_room() {
        let mut output = Output::default();
        for _ in 0..1000 {
            output.copy(&[1; 100]);
            output.payload(Bytes::from(vec![2; COPIED]));
        }
        output.advance(output.len() - 1);
        assert!(output.small.capacity() <= 4 * KEPT && output.segments.capacity() <= SEGMENTS);
        output.advance(1);
        assert!(output.small.capacity() <= KEPT);
    }

    proptest! {
        #[test]
        fn everything_is_written_once_and_in_order(
            pieces in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 1..900)), 1..30),
            steps in prop::collection::vec(1usize..3000, 1..9),
        ) {
            let mut output = Output::default();
            let (mut expected, mut got) = (Vec::new(), Vec::new());
            let mut steps = steps.into_iter().cycle();
            let mut write = |output: &mut Output, got: &mut Vec<u8>| {
                let n = steps.next().unwrap().min(output.len());
                got.extend(output.pieces().flatten().take(n));
                output.advance(n);
            };
            for (is_small, piece) in pieces {
                expected.extend_from_slice(&piece);
                if is_small { output.copy(&piece) } else { output.payload(piece.into()) }
                write(&mut output, &mut got);
            }
            while output.len() > 0 {
                write(&mut output, &mut got);
            }
            prop_assert_eq!(got, expected);
            prop_assert!(output.small.capacity() <= KEPT && output.segments.is_empty());
            output.rest();
            prop_assert_eq!((output.small.capacity(), output.segments.capacity()), (0, 0));
        }
    }
}
