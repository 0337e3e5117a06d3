//! Frames in the output of a client's HTTP/2 connection: heads of requests, content and trailers. No exchange is charged with them, for it
//! may end long before the peer reads them, and the peer may leave them unread for ever.
//!
//! Small frames are charged to nobody: RST_STREAM, and the empty frame at the end of content whose exchange is over. The connection takes no
//! request while 256 KiB wait, which bounds them.

use std::collections::VecDeque;

use lateen_h2::FrameNote;

use crate::account::{Account, Freed};

/// Spans, or payers, whose room stays in any case.
const KEPT: usize = 16;

/// Bytes that a span of frames takes beside the frames.
const SPAN: usize = size_of::<Span>();

/// Frames of one account that lie together in the output.
#[derive(Debug)]
struct Span {
    /// The position of their end, from the connection's first byte.
    end: u64,
    /// Bytes of them that were not written.
    bytes: u32,
    /// The place of their payer.
    payer: u32,
    /// They are header blocks.
    is_block: bool,
}

/// The charge of one account: the exact bytes of its frames, for many accounts may leave a few bytes each.
#[derive(Debug)]
pub(crate) struct Payer {
    account: Account,
    /// Bytes of frames, with what their spans take.
    bytes: usize,
    /// Bytes of header blocks among them.
    blocks: usize,
}

impl Payer {
    fn charge(&mut self, bytes: usize, blocks: usize) {
        self.bytes += bytes;
        self.blocks += blocks;
        self.account.charge_frames(bytes, blocks);
    }

    fn credit(&mut self, bytes: usize, blocks: usize) -> Option<Freed> {
        self.bytes -= bytes;
        self.blocks -= blocks;
        self.account.credit_frames(bytes, blocks)
    }
}

impl Drop for Payer {
    fn drop(&mut self) {
        if let Some(freed) = self.credit(self.bytes, self.blocks) {
            freed.tell();
        }
    }
}

/// Frames of all accounts. There are none while the peer reads, and then they take no memory.
#[derive(Debug, Default)]
pub(crate) struct Unwritten(Option<Box<Frames>>);

impl Unwritten {
    /// Charges an account for frames of which those up to a position are written.
    pub(crate) fn add(&mut self, account: &Account, note: FrameNote, written: u64) {
        let bytes = left(note.bytes, note.end, written);
        if bytes > 0 {
            self.0.get_or_insert_default().add(account, note, bytes);
        }
    }

    /// Bytes of header blocks of the account, and of those within the same one.
    pub(crate) fn blocks_beside(&self, account: &Account) -> usize {
        let payers = self.0.iter().flat_map(|frames| &frames.payers).flatten();
        let beside = payers.filter(|payer| payer.account.is_beside(account));
        beside.map(|payer| payer.blocks).sum()
    }

    /// Credits what was written up to a position. `over` gets payers without frames, which are dropped once no connection's state is
    /// borrowed.
    #[inline]
    pub(crate) fn settle(&mut self, written: u64, freed: &mut Vec<Freed>, over: &mut Vec<Payer>) {
        if let Some(frames) = &mut self.0 {
            frames.settle(written, freed, over);
            if frames.spans.is_empty() {
                self.0 = None;
            }
        }
    }
}

#[derive(Debug, Default)]
struct Frames {
    spans: VecDeque<Span>,
    /// Accounts of the spans, and places that are vacant.
    payers: Vec<Option<Payer>>,
}

impl Frames {
    /// Charges an account for frames of which so many bytes wait.
    fn add(&mut self, account: &Account, note: FrameNote, bytes: u32) {
        let place = self.place_of(account);
        let Some(payer) = &mut self.payers[place] else {
            return;
        };
        let mut held = bytes as usize;
        let blocks = if note.is_block { held } else { 0 };
        let last = self.spans.back_mut().filter(|last| {
            last.payer as usize == place
                && last.is_block == note.is_block
                && last.bytes.checked_add(bytes).is_some()
        });
        match last {
            Some(last) => {
                last.bytes += bytes;
                last.end = note.end;
            }
            None => {
                self.spans.push_back(Span {
                    end: note.end,
                    bytes,
                    payer: place as u32,
                    is_block: note.is_block,
                });
                held += SPAN;
            }
        }
        payer.charge(held, blocks);
    }

    /// The place of an account among those that pay.
    fn place_of(&mut self, account: &Account) -> usize {
        let mut vacant = None;
        for (place, payer) in self.payers.iter().enumerate() {
            match payer {
                Some(payer) if payer.account.is(account) => return place,
                Some(_) => {}
                None => vacant = vacant.or(Some(place)),
            }
        }
        let payer = Some(Payer {
            account: account.clone(),
            bytes: 0,
            blocks: 0,
        });
        match vacant {
            Some(place) => {
                self.payers[place] = payer;
                place
            }
            None => {
                self.payers.push(payer);
                self.payers.len() - 1
            }
        }
    }

    fn settle(&mut self, written: u64, freed: &mut Vec<Freed>, over: &mut Vec<Payer>) {
        while let Some(span) = self.spans.front_mut() {
            let left = left(span.bytes, span.end, written);
            let gone = (span.bytes - left) as usize;
            span.bytes = left;
            let (place, is_block) = (span.payer as usize, span.is_block);
            let blocks = if is_block { gone } else { 0 };
            let span = if left == 0 { SPAN } else { 0 };
            if let Some(payer) = &mut self.payers[place] {
                freed.extend(payer.credit(gone + span, blocks));
                if payer.bytes == 0 {
                    over.extend(self.payers[place].take());
                }
            }
            if left > 0 {
                break;
            }
            self.spans.pop_front();
        }
        self.shrink();
    }

    /// Gives memory back that many more spans and payers took.
    fn shrink(&mut self) {
        if self.spans.capacity() > KEPT.max(4 * self.spans.len()) {
            self.spans.shrink_to(2 * self.spans.len());
        }
        while self.payers.pop_if(|last| last.is_none()).is_some() {}
        if self.payers.capacity() > KEPT.max(4 * self.payers.len()) {
            self.payers.shrink_to(2 * self.payers.len());
        }
    }
}

/// Bytes of frames behind a position that end at another one.
fn left(bytes: u32, end: u64, written: u64) -> u32 {
    u64::from(bytes).min(end.saturating_sub(written)) as u32
}

#[cfg(test)]
mod tests {
    use lateen_h2::{Config, Connection, Field, Known, StreamId, Timestamp};
    use proptest::prelude::*;

    use super::*;

    fn settle(unwritten: &mut Unwritten, written: u64) -> usize {
        let (mut freed, mut over) = (Vec::new(), Vec::new());
        unwritten.settle(written, &mut freed, &mut over);
        freed.into_iter().for_each(Freed::tell);
        over.len()
    }

    /// The number of some stream.
    fn stream() -> StreamId {
        let mut client = Connection::client(&Config::requests().share(), Timestamp::default());
        let fields = [Field::known(Known::Method, b"GET")];
        client.request(None, &fields, true).expect("it is open")
    }

    fn framed(bytes: u32, end: u64, is_block: bool) -> FrameNote {
        FrameNote {
            stream: stream(),
            end,
            bytes,
            is_block,
        }
    }

    #[test]
    fn an_account_pays_for_its_own_frames_alone() {
        let process = Account::new(1 << 20);
        let [one, other] = [(), ()].map(|()| process.within(1 << 19));
        let mut unwritten = Unwritten::default();
        unwritten.add(&one, framed(100, 100, true), 0);
        unwritten.add(&one, framed(50, 150, true), 0);
        unwritten.add(&other, framed(1000, 1163, false), 0);
        assert_eq!((one.held(), other.held()), (150 + SPAN, 1000 + SPAN));
        assert_eq!(unwritten.blocks_beside(&other), 150);
        assert_eq!(unwritten.blocks_beside(&Account::new(1)), 0);
        assert_eq!(settle(&mut unwritten, 120), 0);
        assert_eq!((one.held(), other.held()), (30 + SPAN, 1000 + SPAN));
        assert_eq!(settle(&mut unwritten, 163), 1);
        assert_eq!((one.held(), other.held()), (0, 1000 + SPAN));
        assert_eq!(unwritten.blocks_beside(&one), 0);
        unwritten.add(&one, framed(10, 1173, true), 663);
        assert_eq!((one.held(), other.held()), (10 + SPAN, 1000 + SPAN));
        assert_eq!(settle(&mut unwritten, 663), 0);
        assert_eq!(other.held(), 500 + SPAN);
        drop(unwritten);
        assert_eq!(process.held(), 0);
    }

    #[test]
    fn what_is_left_of_many_frames_does_not_keep_their_room() {
        let process = Account::new(1 << 20);
        let mut unwritten = Unwritten::default();
        for number in 1..=1000 {
            unwritten.add(&process.within(1 << 19), framed(10, 10 * number, true), 0);
        }
        settle(&mut unwritten, 9999);
        let frames = unwritten.0.as_deref().expect("a byte is left");
        assert_eq!(frames.spans.len(), 1);
        assert!(frames.spans.capacity() <= KEPT);
        unwritten.add(&process.within(1 << 19), framed(10, 10_010, true), 9999);
        settle(&mut unwritten, 10_005);
        let frames = unwritten.0.as_deref().expect("bytes are left");
        assert!(frames.payers.len() == 1 && frames.payers.capacity() <= KEPT);
        settle(&mut unwritten, 10_010);
        assert!(unwritten.0.is_none());
        assert_eq!(process.held(), 0);
    }

    proptest! {
        #[test]
        fn what_is_charged_is_what_is_left(
            steps in prop::collection::vec((0usize..3, 1u32..500, any::<bool>(), 0u64..20, 0u64..800), 1..40),
        ) {
            let process = Account::new(1 << 20);
            let accounts = [(), (), ()].map(|()| process.within(1 << 19));
            let mut unwritten = Unwritten::default();
            let (mut end, mut written) = (0, 0);
            let mut made: Vec<(usize, u32, u64, bool)> = Vec::new();
            for (who, bytes, is_block, gap, taken) in steps {
                end += u64::from(bytes) + gap;
                unwritten.add(&accounts[who], framed(bytes, end, is_block), written);
                made.push((who, bytes, end, is_block));
                written = end.min(written + taken);
                settle(&mut unwritten, written);
                for (place, account) in accounts.iter().enumerate() {
                    let own = made.iter().filter(|(who, ..)| *who == place);
                    let least: u32 = own.clone().map(|(_, bytes, end, _)| left(*bytes, *end, written)).sum();
                    let frames = unwritten.0.as_deref();
                    let spans = frames.into_iter().flat_map(|frames| {
                        let payer = |span: &Span| frames.payers[span.payer as usize].as_ref();
                        frames.spans.iter().filter_map(payer)
                    });
                    let spans = spans.filter(|payer| payer.account.is(account)).count() * SPAN;
                    // Frames of one span are gone from its beginning, whatever lies between them.
                    prop_assert!(account.held() >= least as usize + spans);
                    prop_assert!(account.held() <= least as usize + spans + 20 * made.len());
                }
            }
            settle(&mut unwritten, end);
            prop_assert_eq!(process.held(), 0);
            prop_assert!(unwritten.0.is_none());
        }
    }
}
