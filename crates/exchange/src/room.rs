//! Room in the accounts of a connection: for input of HTTP/1, and for heads and trailers that join the output.

use std::task::{Context, Waker};

use crate::account::{Charge, FREE, Part};
use crate::core::{Codec, Core, LEAST_SEND};

/// Bytes of a head or of trailers that hardly any message goes beyond: the usual limit of a field section.
const SECTION: usize = 64 * 1024;

/// The input of HTTP/1 that may be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// As much as there is.
    Any,
    /// So many bytes: the account is full, and these are not charged.
    Spare(usize),
    None,
}

impl Core {
    /// The charge that input of HTTP/1 counts for, its limit, and the bytes that it is for.
    fn reading(&mut self) -> Option<(&mut Charge, Part, usize)> {
        if self.charge.is_some() {
            let weight = self.weight();
            let charge = self.charge.as_mut()?;
            charge.raise(weight);
            return Some((charge, Part::Requests, weight.all()));
        }
        let entry = self.streams.get_mut(self.open)?;
        let mut held = entry.weight();
        let charge = entry.charge.as_mut()?;
        held.answers += self.codec.incomplete1();
        charge.raise(held);
        // Content that waits for the endpoint must not stop the answer that would drop it.
        Some((charge, Part::Answers, held.answers))
    }

    /// True if input of HTTP/1 may be read.
    pub(crate) fn has_room(&mut self) -> bool {
        let reading = self.reading();
        reading.is_none_or(|(charge, part, held)| held < FREE || charge.has_room(part))
    }

    /// The input of HTTP/1 that may be read. If there is none, the task is woken when there is more room. `before` gets wakers
    /// that are needed no more, which are dropped once the state is not borrowed.
    pub(crate) fn poll_room(&mut self, cx: &Context<'_>, before: &mut Vec<Waker>) -> Room {
        let room = match self.reading() {
            None => Room::Any,
            Some((charge, part, held)) if held < FREE => {
                charge.leave(before);
                match charge.has_room(part) {
                    true => Room::Any,
                    false => Room::Spare(FREE - held),
                }
            }
            Some((charge, part, _)) => match charge.poll_room(part, cx, before) {
                true => Room::Any,
                false => Room::None,
            },
        };
        self.is_starved = room == Room::None;
        room
    }

    /// True if a head or trailers may join the output. `length` counts their bytes. 4 KiB of output may always wait,
    /// so that answers leave memory. Beyond them the account must have room.
    pub(crate) fn admits_section(&self, length: impl FnOnce() -> usize) -> bool {
        let Some(charge) = &self.charge else {
            return true;
        };
        let held = self.weight();
        // Nearly always there is room for the largest one, and counting takes longer.
        if charge.admits(held.all() + SECTION) {
            return true;
        }
        let length = length();
        held.answers + length <= LEAST_SEND || charge.admits(held.all() + length)
    }

    /// Charges for such a section, so that the next one finds it in the account.
    pub(crate) fn charge_section(&mut self) {
        let weight = self.weight();
        if let Some(charge) = &mut self.charge {
            charge.raise(weight);
        }
    }

    /// True if a byte of HTTP/1 may be read though the account has no room: the request is complete, and what the client has to say is
    /// that it leaves.
    pub(crate) fn listens(&self) -> bool {
        let Codec::Server1(http1) = &self.codec else {
            return false;
        };
        let is_heard = self.streams.get(self.open).is_some_and(|entry| entry.heard);
        is_heard && self.input.is_empty() && !http1.wants_input()
    }

    /// True if a client of HTTP/1 may leave without being noticed, while bytes of its wait for others to free room.
    pub(crate) fn is_deaf(&self) -> bool {
        let open = self.streams.get(self.open);
        let content = self.held - open.map_or(0, |entry| entry.head);
        let waits = content + self.codec.incomplete1() + self.input.len() > 0;
        self.is_starved && !self.listens() && waits
    }
}
