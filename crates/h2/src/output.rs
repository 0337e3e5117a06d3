//! Output in order: frame heads and small frames in one buffer, payloads by reference.

use std::collections::VecDeque;

use bytes::{Buf, Bytes};

use crate::notes::{FrameNote, FrameNotes};
use crate::pieces;

/// What an empty buffer keeps at most: the heads of a few hundred frames. A burst of requests or answers takes several times as
/// much, and what it took would stay with each of the tunnels that it came over.
const KEPT: usize = 4096;

/// Payloads below this many bytes are copied: a piece by reference takes 32 bytes, and its own allocation.
const COPIED: usize = 128;

/// Segments whose room an output keeps in any case.
const SEGMENTS: usize = 64;

#[derive(Debug)]
enum Segment {
    /// So many bytes of the buffer.
    Small(u32),
    Payload(Bytes),
}

// A payload's own size: nothing is added for the other kind.
const _: () = assert!(size_of::<Segment>() <= size_of::<Bytes>());

#[derive(Debug, Default)]
pub(crate) struct Output {
    segments: VecDeque<Segment>,
    small: Vec<u8>,
    /// What of `small` has been written.
    gone: usize,
    /// Bytes in all.
    len: usize,
    /// Of them, answers to what the peer sent that need no credit of it. Counted down as anything is written.
    replies: usize,
    /// Notes of frames, if they are wanted.
    notes: Option<Box<FrameNotes>>,
}

impl Output {
    /// Notes frames from now on, for [`Output::take_notes`].
    pub(crate) fn note_frames(&mut self) {
        self.notes.get_or_insert_default();
    }

    /// True if frames are noted.
    #[inline]
    pub(crate) fn notes_frames(&self) -> bool {
        self.notes.is_some()
    }

    /// Notes that the last bytes, so many, are frames of a stream.
    #[inline]
    pub(crate) fn note(&mut self, id: u32, bytes: usize, is_block: bool) {
        if let Some(notes) = &mut self.notes {
            notes.add(id, bytes, is_block, self.len);
        }
    }

    /// The bytes that were written so far, if frames are noted.
    pub(crate) fn written(&self) -> u64 {
        let notes = self.notes.as_ref();
        notes.map_or(0, |notes| notes.written())
    }

    /// The bytes that were written so far, and the notes since the last call of frames that were not.
    pub(crate) fn take_notes(&mut self) -> (u64, impl Iterator<Item = FrameNote>) {
        let written = self.written();
        let notes = self.notes.as_deref_mut().map(FrameNotes::take);
        let notes = notes.into_iter().flatten();
        (written, notes.filter(move |note| note.end > written))
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds a frame, or a head whose payload follows.
    #[inline]
    pub(crate) fn small(&mut self, bytes: &[u8]) {
        self.small.extend_from_slice(bytes);
        self.added(bytes.len());
    }

    /// Adds an answer to what the peer sent, which it can demand without end.
    pub(crate) fn reply(&mut self, bytes: &[u8]) {
        self.small(bytes);
        self.replies += bytes.len();
    }

    /// Answers that wait, in bytes, or less.
    pub(crate) fn replies(&self) -> usize {
        self.replies
    }

    /// Adds what `write` appends to the buffer, as an answer if it is one; or nothing, if it fails.
    #[inline]
    pub(crate) fn small_with<T, E>(
        &mut self,
        is_reply: bool,
        write: impl FnOnce(&mut Vec<u8>) -> Result<T, E>,
    ) -> Result<T, E> {
        let before = self.small.len();
        let written = write(&mut self.small);
        if written.is_err() {
            self.small.truncate(before);
            return written;
        }
        let bytes = self.small.len() - before;
        self.added(bytes);
        if is_reply {
            self.replies += bytes;
        }
        written
    }

    #[inline]
    fn added(&mut self, bytes: usize) {
        self.len += bytes;
        match self.segments.back_mut() {
            Some(Segment::Small(length)) => *length += bytes as u32,
            _ => self.segments.push_back(Segment::Small(bytes as u32)),
        }
    }

    #[inline]
    pub(crate) fn payload(&mut self, bytes: Bytes) {
        if bytes.len() < COPIED {
            return self.small(&bytes);
        }
        self.len += bytes.len();
        self.segments.push_back(Segment::Payload(bytes));
    }

    /// The pieces in order.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let mut at = self.gone;
        self.segments.iter().map(move |segment| match segment {
            Segment::Small(length) => {
                let piece = &self.small[at..at + *length as usize];
                at += piece.len();
                piece
            }
            Segment::Payload(bytes) => &bytes[..],
        })
    }

    /// So many bytes were written.
    pub(crate) fn advance(&mut self, bytes: usize) {
        let mut left = bytes.min(self.len);
        self.len -= left;
        self.replies = self.replies.saturating_sub(left).min(self.len);
        if let Some(notes) = &mut self.notes {
            notes.advance(left, self.len);
        }
        while let Some(segment) = self.segments.front_mut() {
            match segment {
                Segment::Small(length) => {
                    let n = left.min(*length as usize);
                    self.gone += n;
                    *length -= n as u32;
                    left -= n;
                    if *length > 0 {
                        break;
                    }
                }
                Segment::Payload(payload) => {
                    let before = payload.len();
                    if left < before {
                        payload.advance(left);
                        pieces::own(payload, before);
                        break;
                    }
                    left -= payload.len();
                }
            }
            self.segments.pop_front();
        }
        if self.segments.capacity() > SEGMENTS.max(4 * self.segments.len()) {
            self.segments.shrink_to(2 * self.segments.len());
        }
        if self.len == 0 {
            match self.small.capacity() > KEPT {
                true => self.small = Vec::new(),
                false => self.small.clear(),
            }
            self.gone = 0;
        } else if self.gone >= KEPT.max(self.small.len() / 2) {
            // The rest is no longer than the written part, so moving it costs no more than writing did.
            self.small.drain(..self.gone);
            self.gone = 0;
            // A peer that leaves a little unread would keep the room of all that it has read.
            let needed = self.small.len().max(KEPT);
            if self.small.capacity() > 4 * needed {
                self.small.shrink_to(2 * needed);
            }
        }
    }

    /// Gives memory back if nothing waits.
    pub(crate) fn rest(&mut self) {
        if self.len == 0 {
            let mut notes = self.notes.take();
            if let Some(notes) = &mut notes {
                notes.rest();
            }
            *self = Output {
                notes,
                ..Output::default()
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_a_burst_took_goes_with_its_last_byte() {
        let mut output = Output::default();
        for _ in 0..100 {
            output.small(&[0; 250]);
        }
        output.advance(output.len() - 1);
        assert!(output.small.capacity() > 0);
        output.advance(1);
        assert_eq!(output.small.capacity(), 0);
        output.small(&[0; 9]);
        output.advance(9);
        assert!(output.small.capacity() > 0, "the next frame allocates");
    }

    #[test]
    fn small_payloads_take_no_segments_and_those_of_a_burst_go_with_its_last_byte() {
        let mut output = Output::default();
        for _ in 0..10_000 {
            output.payload(Bytes::from_static(b"x"));
        }
        assert_eq!(output.segments.len(), 1);
        for _ in 0..1000 {
            output.payload(Bytes::from_static(&[7; COPIED]));
        }
        output.advance(output.len() - 1);
        assert!(output.segments.capacity() <= SEGMENTS);
    }

    #[test]
    fn the_rest_of_a_payload_does_not_keep_its_buffer() {
        let mut output = Output::default();
        let mut buffer = bytes::BytesMut::from(&[7; 16 * 1024][..]);
        output.payload(buffer.split().freeze());
        output.advance(16 * 1024 - 1);
        assert!(buffer.try_reclaim(16 * 1024));
        assert_eq!(output.pieces().collect::<Vec<_>>(), [[7]]);
    }

    #[test]
    fn what_a_burst_took_goes_though_a_little_is_left() {
        let mut output = Output::default();
        output.small(&[7; 256 * 1024]);
        output.advance(output.len() - 100);
        assert_eq!(output.pieces().collect::<Vec<_>>(), [[7; 100]]);
        assert!(output.small.capacity() <= 4 * KEPT);
    }

    proptest! {
        #[test]
        fn gives_out_what_it_got_however_it_is_taken(
            steps in prop::collection::vec((any::<bool>(), 1usize..3000, 0usize..5000), 1..60),
        ) {
            let mut output = Output::default();
            let (mut put, mut got) = (Vec::new(), Vec::new());
            for (number, (small, length, taken)) in steps.into_iter().enumerate() {
                let bytes = vec![number as u8; length];
                put.extend_from_slice(&bytes);
                if small { output.small(&bytes) } else { output.payload(bytes.into()) }
                prop_assert_eq!(output.pieces().map(<[u8]>::len).sum::<usize>(), output.len());
                let all: Vec<u8> = output.pieces().flatten().copied().collect();
                let taken = taken.min(all.len());
                got.extend_from_slice(&all[..taken]);
                output.advance(taken);
            }
            got.extend(output.pieces().flatten());
            prop_assert_eq!(got, put);
            output.advance(usize::MAX);
            prop_assert_eq!((output.len(), output.pieces().count()), (0, 0));
        }
    }

    #[test]
    fn what_is_left_moves_only_when_it_is_no_longer_than_what_was_written() {
        let mut output = Output::default();
        output.small(&[7; 64 * 1024]);
        output.advance(KEPT + 1);
        assert_eq!((output.gone, output.small.len()), (KEPT + 1, 64 * 1024));
        output.advance(28 * 1024);
        assert_eq!((output.gone, output.small.len()), (0, output.len));
    }
}
