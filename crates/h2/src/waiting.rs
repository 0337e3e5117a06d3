//! Queue of the streams whose callers wait for room to send.
//!
//! A stream whose own window or buffer is full leaves the queue, and returns when that changes. So one change does not look at
//! all waiting streams again.

use std::collections::VecDeque;

use crate::flags;
use crate::stream::Stream;
use crate::streams::{Streams, steps};

/// Places of streams that are gone which the line may always have.
const SLACK: usize = 32;

#[derive(Debug, Default)]
pub(crate) struct Waiting {
    line: VecDeque<u32>,
    /// Something changed since the line was looked at to its end.
    changed: bool,
}

impl Waiting {
    /// True if the line is to be looked at.
    pub(crate) fn has_changed(&self) -> bool {
        self.changed && !self.line.is_empty()
    }

    /// There is more room for all streams, or for some.
    #[inline]
    pub(crate) fn change(&mut self) {
        self.changed = true;
    }

    /// The line was looked at to its end, or as far as there is room.
    pub(crate) fn looked(&mut self) {
        self.changed = false;
    }

    /// A stream may have room, or its caller begins to wait.
    #[inline]
    pub(crate) fn may_have_room(&mut self, stream: &mut Stream) {
        if stream.is(flags::WAITING) && !stream.is(flags::LISTED) {
            stream.set(flags::LISTED);
            self.line.push_back(stream.id);
            self.changed = true;
        }
    }

    /// A stream is over in our direction: its caller is told before all others, whether there is room or not.
    pub(crate) fn over(&mut self, stream: &mut Stream) {
        if stream.is(flags::WAITING) {
            stream.set(flags::LISTED);
            self.line.push_front(stream.id);
            self.changed = true;
        }
    }

    /// The first stream of the line, which stays there.
    pub(crate) fn first<'a>(&mut self, streams: &'a mut Streams) -> Option<&'a mut Stream> {
        while let Some(id) = self.line.front() {
            steps::count(1);
            if streams.get(*id).is_some_and(|stream| is_here(stream)) {
                return streams.get(*id);
            }
            self.line.pop_front();
        }
        None
    }

    /// Takes the first stream out of the line.
    pub(crate) fn leave(&mut self, stream: &mut Stream) {
        stream.unset(flags::LISTED);
        self.line.pop_front();
    }

    /// Drops places of streams that are gone if they are too many.
    pub(crate) fn tidy(&mut self, streams: &mut Streams) {
        // A stream that is over may have two.
        if self.line.len() > 4 * streams.len() + SLACK {
            steps::count(self.line.len() as u64);
            self.line
                .retain(|id| streams.get(*id).is_some_and(|stream| is_here(stream)));
        }
    }

    /// Gives memory back that many more streams took.
    pub(crate) fn shrink(&mut self) {
        self.line.shrink_to(2 * self.line.len());
    }

    /// Gives memory back; no stream is here.
    pub(crate) fn rest(&mut self) {
        self.line = VecDeque::new();
    }
}

fn is_here(stream: &Stream) -> bool {
    stream.is(flags::WAITING) && stream.is(flags::LISTED)
}
