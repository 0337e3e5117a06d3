//! Readiness of a descriptor under a tokio runtime.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};

/// A descriptor that a runtime watches for reading. It owns the descriptor, and never replaces it.
#[derive(Debug)]
pub struct Readiness(AsyncFd<OwnedFd>);

impl Readiness {
    /// Has the runtime that is entered watch `fd`.
    ///
    /// # Errors
    /// The kernel watches no more for this user (`fs.epoll.max_user_watches`), or has no memory to.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        // SAFETY: the descriptor is ours alone and is neither replaced nor closed before the AsyncFd is.
        let fd = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?;
        Ok(Self(fd))
    }

    /// Waits until the descriptor is readable. Safe to drop and call again.
    ///
    /// # Errors
    /// The runtime ends.
    pub async fn readable(&self) -> io::Result<AsyncFdReadyGuard<'_, OwnedFd>> {
        self.0.readable().await
    }
}
