//! Frames in the output of a client's HTTP/2 connection that no exchange is charged with: content that has left its exchange's queue, and
//! heads of requests that were dropped. The peer may leave them unread for ever.

use crate::account::{Account, Charge, FREE, Freed, Held};

/// The frames of one account.
#[derive(Debug)]
struct Frames {
    charge: Charge,
    bytes: usize,
    /// Those of heads among them.
    heads: usize,
    /// All of them are among so many bytes at the beginning of the output.
    within: usize,
}

/// Frames of all accounts. There are none while the peer reads.
#[derive(Debug, Default)]
pub(crate) struct Unwritten {
    frames: Vec<Frames>,
    /// Bytes of the connection that were written so far.
    past: u64,
}

impl Unwritten {
    /// Charges an account for a dropped request's head, of which this is left at the end of the first `within` bytes of the output.
    pub(crate) fn add_head(&mut self, account: &Account, bytes: usize, within: usize) {
        if let Some(frames) = self.add(account, bytes, within) {
            frames.heads = (frames.heads + bytes).min(frames.bytes);
        }
    }

    /// Charges an account for content and trailers that are anywhere in an output of so many bytes.
    pub(crate) fn add_content(&mut self, account: &Account, bytes: usize, output: usize) {
        self.add(account, bytes, output);
    }

    fn add(&mut self, account: &Account, bytes: usize, within: usize) -> Option<&mut Frames> {
        let bytes = bytes.min(within);
        if bytes == 0 {
            return None;
        }
        let known = self
            .frames
            .iter()
            .position(|frames| frames.charge.account().is(account));
        let place = known.unwrap_or(self.frames.len());
        if known.is_none() {
            self.frames.push(Frames {
                charge: Charge::new(account.clone()),
                bytes: 0,
                heads: 0,
                within: 0,
            });
        }
        let frames = &mut self.frames[place];
        frames.within = frames.within.max(within);
        frames.bytes = (frames.bytes + bytes).min(frames.within);
        frames.charge.raise(held(frames.bytes));
        Some(frames)
    }

    /// Bytes of heads of the account, and of those within the same one.
    pub(crate) fn heads_beside(&self, account: &Account) -> usize {
        let all = self.frames.iter();
        let beside = all.filter(|frames| frames.charge.account().is_beside(account));
        beside.map(|frames| frames.heads.min(frames.within)).sum()
    }

    /// The end of an output of so many bytes, counted from the connection's first byte.
    #[inline]
    pub(crate) fn end(&self, output: usize) -> u64 {
        self.past + output as u64
    }

    /// Bytes of the output in front of such an end.
    #[inline]
    pub(crate) fn before(&self, end: u64) -> usize {
        end.saturating_sub(self.past) as usize
    }

    /// Says that so many bytes of the output were written.
    #[inline]
    pub(crate) fn written(&mut self, bytes: usize) {
        self.past += bytes as u64;
        for frames in &mut self.frames {
            frames.within = frames.within.saturating_sub(bytes);
        }
    }

    /// Credits what was written. `over` gets charges that are empty, which are dropped once no connection's state is borrowed.
    #[inline]
    pub(crate) fn settle(&mut self, freed: &mut Vec<Freed>, over: &mut Vec<Charge>) {
        if self.frames.is_empty() {
            return;
        }
        let gone = |frames: &mut Frames| {
            frames.bytes = frames.bytes.min(frames.within);
            frames.heads = frames.heads.min(frames.bytes);
            freed.extend(frames.charge.set(held(frames.bytes)));
            frames.bytes == 0
        };
        over.extend(self.frames.extract_if(.., gone).map(|frames| frames.charge));
        if self.frames.is_empty() {
            self.frames = Vec::new();
        }
    }
}

/// Frames of requests. None of them are free: many accounts could leave a little each.
fn held(bytes: usize) -> Held {
    Held {
        requests: match bytes {
            0 => 0,
            bytes => bytes.max(FREE + 1),
        },
        answers: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settle(unwritten: &mut Unwritten) -> usize {
        let (mut freed, mut over) = (Vec::new(), Vec::new());
        unwritten.settle(&mut freed, &mut over);
        freed.into_iter().for_each(Freed::tell);
        over.len()
    }

    #[test]
    fn an_account_is_credited_when_all_that_was_before_its_frames_is_written() {
        let (one, other) = (Account::new(1 << 20), Account::new(1 << 20));
        let mut unwritten = Unwritten::default();
        unwritten.add_content(&one, 20_000, 30_000);
        unwritten.add_content(&other, 10_000, 40_000);
        assert_eq!((one.held(), other.held()), (20_480, 12_288));
        unwritten.written(5000);
        assert_eq!(settle(&mut unwritten), 0);
        assert_eq!((one.held(), other.held()), (20_480, 12_288));
        unwritten.written(15_000);
        assert_eq!(settle(&mut unwritten), 0);
        assert_eq!((one.held(), other.held()), (12_288, 12_288));
        unwritten.written(10_000);
        assert_eq!(settle(&mut unwritten), 1);
        assert_eq!((one.held(), other.held()), (0, 12_288));
        unwritten.written(10_000);
        assert_eq!(settle(&mut unwritten), 1);
        assert_eq!(other.held(), 0);
    }

    #[test]
    fn a_little_of_many_accounts_is_charged() {
        let namespace = Account::new(1 << 20);
        let mut unwritten = Unwritten::default();
        let identities = [(), (), ()].map(|()| namespace.within(1 << 19));
        for (place, identity) in identities.iter().enumerate() {
            unwritten.add_head(identity, 100, 100 * (place + 1));
        }
        assert_eq!(namespace.held(), 3 * 8192);
        assert_eq!(unwritten.heads_beside(&identities[0]), 300);
        assert_eq!(unwritten.heads_beside(&Account::new(1)), 0);
        unwritten.add_content(&identities[0], 5000, 5300);
        assert_eq!(unwritten.heads_beside(&identities[1]), 300);
        unwritten.written(300);
        assert_eq!(settle(&mut unwritten), 2);
        assert_eq!(namespace.held(), 8192);
    }

    #[test]
    fn frames_of_an_account_are_never_more_than_the_output() {
        let account = Account::new(1 << 20);
        let mut unwritten = Unwritten::default();
        for _ in 0..10 {
            unwritten.add_content(&account, 20_000, 40_960);
        }
        assert_eq!(account.held(), 40_960);
        unwritten.add_content(&account, 20_000, 0);
        assert_eq!(account.held(), 40_960);
        drop(unwritten);
        assert_eq!(account.held(), 0);
    }
}
