//! The exchanges that hold a connection's window: the peer has given no window back for content that they have sent.

use std::collections::HashMap;

use crate::account::Account;
use crate::core::{Codec, Core, Leaving};
use crate::entry::Entry;

/// Exchanges of a namespace hold a window if one in so many of its bytes is theirs.
const PART: u64 = 4;

/// The smallest window of a connection (RFC 9113 §6.9.2). A peer may give no window back for content that it has read, so more bytes
/// than the window has may count.
const WINDOW: u64 = 65_535;

impl Core {
    /// The accounts whose exchanges hold the connection's window, one of those within the same account. The largest part counts in any case.
    pub(crate) fn holders(&mut self) -> Vec<Account> {
        let Codec::Http2(http2) = &mut self.codec else {
            return Vec::new();
        };
        let of_entry =
            |entry: &mut Entry| Some((entry.id?, entry.charge.as_ref()?.account().clone()));
        let of_leaving = |leaving: &mut Leaving| (leaving.id, leaving.charge.account().clone());
        let open = self.streams.iter_mut().filter_map(of_entry);
        let leaving = self.leaving.iter_mut().map(of_leaving);
        let (mut all, mut parts) = (0, HashMap::new());
        for (id, account) in open.chain(leaving) {
            let bytes = u64::from(http2.unreturned(id));
            all += bytes;
            parts.entry(account.family()).or_insert((0, account)).0 += bytes;
        }
        let largest = parts.values().map(|(bytes, _)| *bytes).max();
        let least = all.min(WINDOW).div_ceil(PART);
        // Many small parts may fill a window together. While each of them was too small to count, the same accounts could stall all
        // connections. The largest part may be of an account that does no harm: it is given connections of its own, and served as before.
        let least = least.min(largest.unwrap_or_default()).max(1);
        let holders = parts.into_values().filter(|(bytes, _)| *bytes >= least);
        holders.map(|(_, account)| account).collect()
    }
}
