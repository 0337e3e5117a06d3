//! Any file of revocation lists, whole or not at all: never a panic, and what is said about lists agrees with them.
#![no_main]

use std::time::{Duration, SystemTime};

use lateen_tls::RevocationLists;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(lists) = RevocationLists::parse(data) else {
        return;
    };
    let entries: usize = lists.infos().iter().map(|info| info.revoked).sum();
    assert_eq!(lists.revoked(), entries);
    // An entry takes at least a serial and a date.
    assert!(entries <= data.len() / 8);
    for info in lists.infos() {
        if let Some(long_after) = info.next_update.checked_add(Duration::from_secs(1)) {
            assert!(info.stale_at(long_after));
        }
        let _ = info.stale_at(SystemTime::UNIX_EPOCH);
    }
});
