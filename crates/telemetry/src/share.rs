//! Shares of the log's buffer: lines about one client leave room to lines about others.

use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::LazyLock;

/// Shares that there are. Several clients may have one.
const SHARES: usize = 256;

/// The share of the log's buffer that a line counts against. The default is that of lines about no client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogShare(u8);

impl LogShare {
    /// The share of a client, by its identity or address.
    pub fn of(client: &impl Hash) -> Self {
        // Nobody can find out with whom a client shares.
        static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let hash = SEED.hash_one(client) % (SHARES as u64 - 1);
        Self(hash as u8 + 1)
    }
}

/// Bytes that wait, by their shares.
#[derive(Debug)]
pub(crate) struct Shares([u32; SHARES]);

impl Shares {
    /// Counts so many bytes of a share, if they and those that wait are no more than is free.
    pub(crate) fn admit(&mut self, share: LogShare, bytes: usize, free: usize) -> bool {
        let waiting = &mut self.0[usize::from(share.0)];
        let all = *waiting as usize + bytes;
        let fits = all <= free;
        if fits {
            // The buffer has less than 4 GiB.
            *waiting = all as u32;
        }
        fits
    }
}

impl Default for Shares {
    fn default() -> Self {
        Self([0; SHARES])
    }
}

#[cfg(test)]
mod tests {
    use lateen_types::Identity;

    use super::*;

    #[test]
    fn a_client_has_one_share_and_most_clients_have_different_ones() {
        let of = |n: usize| {
            let account = format!("a{n}");
            LogShare::of(&Identity::new("cluster.local", "shop", &account).unwrap())
        };
        assert_eq!(of(0), of(0));
        let shares: Vec<_> = (0..1000).map(of).collect();
        assert!(!shares.contains(&LogShare::default()));
        let with_first = shares.iter().filter(|share| **share == shares[0]).count();
        assert!(with_first < 100, "{with_first}");
    }
}
