//! Bytes of one read.

use bytes::Bytes;

/// Bytes that were read: borrowed for the call, or owned without a copy.
#[derive(Debug)]
pub enum Chunk<'a> {
    /// In the thread's read buffer; copy what must be kept.
    Borrowed(&'a [u8]),
    /// Reference-counted; keeping it costs nothing more.
    Owned(Bytes),
    /// The peer finished this direction.
    End,
}
