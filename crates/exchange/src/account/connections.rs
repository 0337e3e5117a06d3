//! The count of a party's open connections. Their state takes memory that no byte of a message stands for.

use std::sync::atomic::Ordering;

use super::{Account, Level};

/// Bytes of an account's limit for which it may have one open connection. The state of one at rest takes about 3.8 KiB in a waypoint.
const CONNECTION: usize = 512;

/// An open connection that its party's accounts count. A drop ends the count.
#[derive(Debug)]
pub struct OpenConnection(Account);

impl Level {
    fn admit_connection(&self) -> bool {
        let more = |open: usize| (open < self.limit / CONNECTION).then_some(open + 1);
        // The number alone is shared; nothing else is published by it.
        let order = Ordering::Relaxed;
        self.connections.fetch_update(order, order, more).is_ok()
    }
}

impl Account {
    /// Counts an open connection. Returns `None` if the account, or one above it, has as many as it may: one for each 512 bytes of its limit.
    pub fn connect(&self) -> Option<OpenConnection> {
        let admitted = self.levels().take_while(|level| level.admit_connection());
        let admitted = admitted.count();
        if admitted == self.levels().count() {
            return Some(OpenConnection(self.clone()));
        }
        for level in self.levels().take(admitted) {
            level.connections.fetch_sub(1, Ordering::Relaxed);
        }
        None
    }

    /// Open connections that are counted now.
    pub fn connections(&self) -> usize {
        self.0.connections.load(Ordering::Relaxed)
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        for level in self.0.levels() {
            level.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_counts_in_every_account_above_until_it_ends() {
        let process = Account::new(8 * CONNECTION);
        let tenant = process.within(4 * CONNECTION);
        let [web, api] = [(); 2].map(|()| tenant.within(3 * CONNECTION));
        let mut open: Vec<_> = (0..3).map(|_| web.connect().unwrap()).collect();
        assert!(web.connect().is_none());
        open.push(api.connect().unwrap());
        assert!(api.connect().is_none(), "the tenant has four");
        assert_eq!((web.connections(), api.connections()), (3, 1));
        assert_eq!((tenant.connections(), process.connections()), (4, 4));
        open.remove(0);
        assert!(web.connect().is_some());
        drop(open);
        assert_eq!((web.connections(), api.connections()), (0, 0));
        assert_eq!((tenant.connections(), process.connections()), (0, 0));
    }

    #[test]
    fn a_refused_connection_takes_no_place_of_the_accounts_below_the_full_one() {
        let process = Account::new(CONNECTION);
        let tenant = process.within(4 * CONNECTION);
        let held = process.connect();
        for _ in 0..8 {
            assert!(tenant.connect().is_none());
        }
        assert_eq!(tenant.connections(), 0);
        drop(held);
        assert!(tenant.connect().is_some());
    }

    #[test]
    fn connections_take_no_room_from_bytes() {
        let account = Account::new(4 * CONNECTION);
        let _open: Vec<_> = (0..4).map(|_| account.connect()).collect();
        assert_eq!(account.held(), 0);
    }
}
