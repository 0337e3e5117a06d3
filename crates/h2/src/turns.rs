//! Order in which streams send: one queue of streams with data, and one of streams that have only their end to send.
//!
//! A stream is in one queue at most, and has [`flags::READY`] while it is. A stream that is over keeps its place until its
//! turn, or until such places outnumber the streams. So no reset searches the queues.

use std::collections::VecDeque;

use crate::flags;
use crate::stream::Stream;
use crate::streams::{Streams, steps};

/// Places of streams that are over which a line may always have.
const SLACK: usize = 32;

#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// Streams that need a window of the connection.
    data: VecDeque<u32>,
    /// Streams that need none: END_STREAM or trailers are all that they send.
    ends: VecDeque<u32>,
}

impl Turns {
    /// Lines a stream up if it has something to send and a window for it.
    #[inline]
    pub(crate) fn add(&mut self, stream: &mut Stream) {
        if stream.is(flags::READY) || !stream.has_work() {
            return;
        }
        stream.set(flags::READY);
        match stream.queued {
            0 => self.ends.push_back(stream.id),
            _ => self.data.push_back(stream.id),
        }
    }

    /// Whose turn it is, among those with data only where `window` says that the connection takes some.
    #[inline]
    pub(crate) fn next(&mut self, window: bool) -> Option<u32> {
        steps::count(1);
        if let Some(id) = self.ends.pop_front() {
            return Some(id);
        }
        if window { self.data.pop_front() } else { None }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.data.is_empty() && self.ends.is_empty()
    }

    /// True if more streams have data.
    #[inline]
    pub(crate) fn has_data(&self) -> bool {
        !self.data.is_empty()
    }

    /// A stream that is in a line may be over: drops such places if they are too many.
    #[inline]
    pub(crate) fn tidy(&mut self, streams: &mut Streams) {
        if self.data.len() + self.ends.len() <= 2 * streams.len() + SLACK {
            return;
        }
        for line in [&mut self.data, &mut self.ends] {
            steps::count(line.len() as u64);
            line.retain(|id| {
                let stream = streams.get(*id);
                stream.is_some_and(|stream| stream.is(flags::READY) && !stream.is(flags::SENT))
            });
        }
    }

    /// Gives memory back that many more streams took.
    pub(crate) fn shrink(&mut self) {
        self.data.shrink_to(2 * self.data.len());
        self.ends.shrink_to(2 * self.ends.len());
    }

    pub(crate) fn clear(&mut self) {
        self.data.clear();
        self.ends.clear();
    }

    /// Gives memory back; no stream is here.
    pub(crate) fn rest(&mut self) {
        *self = Turns::default();
    }
}
