//! The exchanges that hold a connection's window: the peer keeps the window for content that they have sent.

use lateen_h2::StreamId;

use crate::account::{Account, Charge};
use crate::core::{Codec, Core};
use crate::entry::Entry;

/// Exchanges of a namespace hold a window if one in so many of its bytes is theirs.
const PART: u64 = 4;

impl Core {
    /// True if much of the content that the peer has not given window back for was sent by exchanges charged to this account, or to its
    /// neighbours.
    pub(crate) fn is_held_by(&mut self, account: &Account) -> bool {
        let Codec::Http2(http2) = &mut self.codec else {
            return false;
        };
        let of_entry = |entry: &mut Entry| {
            let is_its = is_beside(entry.charge.as_ref(), account);
            entry.id.map(|id| (id, is_its))
        };
        let of_leaving =
            |(id, charge): &mut (StreamId, Charge)| (*id, is_beside(Some(charge), account));
        let open = self.streams.iter_mut().filter_map(of_entry);
        let leaving = self.leaving.iter_mut().map(of_leaving);
        let (mut all, mut its) = (0, 0);
        for (id, is_its) in open.chain(leaving) {
            let bytes = u64::from(http2.unreturned(id));
            all += bytes;
            if is_its {
                its += bytes;
            }
        }
        its > 0 && its * PART >= all
    }
}

fn is_beside(charge: Option<&Charge>, account: &Account) -> bool {
    charge.is_some_and(|charge| charge.account().is_beside(account))
}
