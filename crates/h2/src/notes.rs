//! Frames of messages in the output, for a caller that accounts for what the peer leaves unread.

use crate::error::StreamId;

/// Frames of one header block, or one frame of data, that wait to be written. Positions count from the connection's first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameNote {
    /// The stream that they belong to.
    pub stream: StreamId,
    /// The position behind their last byte.
    pub end: u64,
    /// Bytes of them, with the heads of the frames.
    pub bytes: u32,
    /// True if they are a header block: that of a request, of an answer, or trailers.
    pub is_block: bool,
}

/// Notes that the caller has not taken.
#[derive(Debug, Default)]
pub(crate) struct FrameNotes {
    notes: Vec<FrameNote>,
    /// Bytes that were written so far.
    written: u64,
}

impl FrameNotes {
    /// Notes frames that end where an output of so many bytes does.
    #[inline]
    pub(crate) fn add(&mut self, id: u32, bytes: usize, is_block: bool, output: usize) {
        self.notes.push(FrameNote {
            stream: StreamId::of(id),
            end: self.written + output as u64,
            bytes: bytes as u32,
            is_block,
        });
    }

    /// Says that so many bytes were written, and that so many are left.
    #[inline]
    pub(crate) fn advance(&mut self, bytes: usize, left: usize) {
        self.written += bytes as u64;
        if left == 0 {
            self.notes.clear();
        }
    }

    /// Gives memory back.
    pub(crate) fn rest(&mut self) {
        if self.notes.is_empty() {
            self.notes = Vec::new();
        }
    }

    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    pub(crate) fn take(&mut self) -> std::vec::Drain<'_, FrameNote> {
        self.notes.drain(..)
    }
}
