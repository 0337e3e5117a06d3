//! A thread without a free descriptor.
#![allow(dead_code, missing_docs)]

use std::fs::File;
use std::os::fd::OwnedFd;

/// Takes every descriptor that is left in the calling thread's table.
pub fn exhaust() -> Vec<OwnedFd> {
    let first: OwnedFd = File::open("/dev/null").unwrap().into();
    let mut taken = Vec::new();
    while let Ok(more) = first.try_clone() {
        taken.push(more);
    }
    taken.push(first);
    taken
}

/// Has tokio open the sockets of its signal driver, of which a process has one pair, in the descriptors that all threads begin with. A
/// thread of descriptors of its own would otherwise be the first, and the next runtime would find other files at these numbers.
pub fn with_tokios_sockets() {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
}
