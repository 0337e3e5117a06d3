//! A charge for bytes of a client that were read before its connection begins.

use crate::account::{Account, Charge, FREE, Held, Part};

/// Bytes of a client that no connection has read, such as a first line that tells the protocol. They count as those of a request.
///
/// A drop credits them. No connection's state may be borrowed then.
#[derive(Debug)]
pub struct Hold(Charge);

impl Hold {
    /// No bytes, in an account.
    pub fn new(account: &Account) -> Self {
        Self(Charge::new(account.clone()))
    }

    /// Charges for so many bytes in all, which are no fewer than before. Returns true if more may be read.
    ///
    /// The rule is that of a connection of HTTP/1: it holds less than is free for requests. 4 KiB are not charged, and always fit.
    #[must_use]
    pub fn raise(&mut self, bytes: usize) -> bool {
        self.0.raise(Held {
            requests: bytes,
            answers: 0,
        });
        bytes <= FREE || self.0.has_room(Part::Requests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_count_as_a_request_until_the_drop_and_little_always_fits() {
        let account = Account::new(64 * 1024);
        let mut first = Hold::new(&account);
        assert!(first.raise(FREE));
        assert_eq!(account.held(), 0);
        assert!(first.raise(12 * 1024));
        assert_eq!(account.held(), 12 * 1024);
        // Requests may hold 32 KiB.
        assert!(!first.raise(16 * 1024));
        let mut second = Hold::new(&account);
        assert!(second.raise(FREE));
        drop((first, second));
        assert_eq!(account.held(), 0);
    }
}
