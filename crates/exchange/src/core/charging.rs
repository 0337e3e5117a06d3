//! Charges of accounts for what a connection and its exchanges hold, and the limits that follow from them.

use super::{Codec, Core, LEAST_SEND, Leaving, Shared};
use crate::account::{Charge, Freed, Held, Part};
use crate::entry::Key;
use crate::unwritten::Payer;

/// A connection's output takes one in so many bytes of what is free in its account.
const SEND_PART: usize = 8;

/// Credits of the end of a turn, kept for the time when no connection's state is borrowed.
#[derive(Default)]
struct Settled {
    freed: Vec<Freed>,
    /// They are empty, and dropped.
    charges: Vec<Charge>,
    payers: Vec<Payer>,
}

impl Shared {
    /// Brings accounts up to date at the end of a turn. True if there is a reason for another one: the socket may be read again, or
    /// more may be written.
    pub(crate) fn settle(&self) -> bool {
        let (settled, goes_on) = {
            let core = &mut *self.borrow();
            let settled = core.settle_all();
            core.note_window();
            // A stream that takes nothing will wake the task.
            let writes = core.limit_buffers() && !core.driver.is_stuck();
            // A connection that failed reads no more.
            let reads = core.ended.is_none() && core.is_starved && core.has_room();
            (settled, writes || reads)
        };
        drop((settled.charges, settled.payers));
        settled.freed.into_iter().for_each(Freed::tell);
        goes_on
    }
}

impl Core {
    /// Bytes that count for the peer's account.
    pub(crate) fn weight(&self) -> Held {
        let (incomplete, answers) = match &self.codec {
            Codec::Server1(http1) => (http1.incomplete(), http1.queued()),
            Codec::Http2(http2) => (http2.incomplete(), http2.queued()),
            _ => (0, self.queued()),
        };
        Held {
            requests: self.held + self.input.len() + incomplete,
            answers,
        }
    }

    /// Charges accounts for what the connection, or a client's exchange, holds now.
    #[inline]
    pub(crate) fn settle(&mut self, key: Key) -> Option<Freed> {
        if self.charge.is_some() {
            let (weight, open) = (self.weight(), self.streams.len());
            let is_http2 = self.is_http2();
            let charge = self.charge.as_mut()?;
            if is_http2 {
                charge.set_open(open);
            }
            return charge.set(weight);
        }
        let entry = self.streams.get_mut(key)?;
        let mut held = entry.weight();
        let charge = entry.charge.as_mut()?;
        held.answers += self.codec.incomplete1();
        charge.set(held)
    }

    /// Charges accounts for frames at once if the peer is known to read nothing: the end of the turn may be far.
    #[inline]
    pub(crate) fn charge_unread(&mut self) {
        if self.is_unread() {
            self.charge_framed();
        }
    }

    /// Charges accounts for frames of their exchanges that wait to be written, and were made since the last call.
    pub(super) fn charge_framed(&mut self) {
        let Codec::Http2(http2) = &mut self.codec else {
            return;
        };
        if !http2.has_framed() {
            return;
        }
        let (written, notes) = http2.take_notes();
        for note in notes {
            let open = self.streams.get(note.stream.get());
            let open = open.and_then(|entry| entry.charge.as_ref());
            let charge = open.or_else(|| {
                let mut leaving = self.leaving.iter();
                let leaving = leaving.find(|leaving| leaving.id == note.stream)?;
                Some(&leaving.charge)
            });
            if let Some(charge) = charge {
                self.unwritten.add(charge.account(), note, written);
            }
        }
    }

    /// The same as [`Core::settle`] at the end of a turn, with what exchanges have sent.
    fn settle_all(&mut self) -> Settled {
        self.charge_framed();
        self.turn = self.turn.wrapping_add(1);
        let Settled {
            mut freed,
            mut charges,
            mut payers,
        } = Settled::default();
        if self.charge.is_some() {
            let weight = self.weight();
            freed.extend(self.charge.as_mut().and_then(|charge| charge.set(weight)));
        }
        let mut sending = std::mem::take(&mut self.sending);
        sending.retain(|&key| {
            let queued = self.queued_of(key);
            let Some(entry) = self.streams.get_mut(key) else {
                return false;
            };
            entry.queued = queued;
            entry.is_sending = queued > 0;
            let mut held = entry.weight();
            if let Some(charge) = &mut entry.charge {
                held.answers += self.codec.incomplete1();
                freed.extend(charge.set(held));
            }
            entry.is_sending
        });
        self.sending = sending;
        if let Codec::Http2(http2) = &mut self.codec {
            let gone = |leaving: &mut Leaving| {
                let queued = http2.queued_of(leaving.id);
                freed.extend(leaving.charge.set_left(queued));
                queued == 0
            };
            let gone = self.leaving.extract_if(.., gone);
            charges.extend(gone.map(|leaving| leaving.charge));
            self.unwritten
                .settle(http2.written(), &mut freed, &mut payers);
        }
        Settled {
            freed,
            charges,
            payers,
        }
    }

    /// Bytes of an exchange that wait for the wire.
    fn queued_of(&mut self, key: Key) -> usize {
        let id = self.streams.get(key).and_then(|entry| entry.id);
        match (&mut self.codec, id) {
            (Codec::Http2(http2), Some(id)) => http2.queued_of(id),
            _ => self.queued(),
        }
    }

    /// Has a connection of HTTP/2 take no more of the account than others leave. True if there is credit to write, or room to tell
    /// of, that was not there before.
    fn limit_buffers(&mut self) -> bool {
        let (Codec::Http2(http2), Some(charge)) = (&mut self.codec, &self.charge) else {
            return false;
        };
        let had_news = http2.worth_telling() > 0;
        let mut grants = false;
        // Rounded down to a power of two, so that it seldom changes.
        let free = charge.room(Part::Requests) / 2;
        let allowance = free.checked_ilog2().map_or(0, |bits| 1 << bits.min(31));
        if allowance != self.allowance {
            self.allowance = allowance;
            http2.set_most(allowance.max(lateen_h2::FLOOR));
            http2.set_allowance(allowance.max(lateen_h2::FLOOR));
            grants = http2.has_framed();
        }
        http2.set_send_total(send_limit(charge, Part::Answers));
        grants || !had_news && http2.worth_telling() > 0
    }

    /// Bytes that may wait for the wire on a connection of HTTP/1.
    pub(crate) fn send_buffer(&self) -> usize {
        let most = self.config.send_buffer;
        if let Some(charge) = &self.charge {
            return most.min(send_limit(charge, Part::Answers));
        }
        let open = self.streams.get(self.open);
        let charge = open.and_then(|entry| entry.charge.as_ref());
        charge.map_or(most, |charge| most.min(send_limit(charge, Part::Requests)))
    }

    /// Has content of a client's exchange of HTTP/2 wait as far as its account has room.
    #[inline]
    pub(crate) fn limit_content(&mut self, key: Key) {
        if let (Codec::Http2(http2), Some(entry)) = (&mut self.codec, self.streams.get(key))
            && let (Some(id), Some(charge)) = (entry.id, &entry.charge)
        {
            http2.set_send_buffer(id, send_limit(charge, Part::Requests));
        }
    }
}

/// Bytes that may wait for a peer that does not read: the less is free, the fewer.
fn send_limit(charge: &Charge, part: Part) -> usize {
    (charge.room(part) / SEND_PART).max(LEAST_SEND)
}
