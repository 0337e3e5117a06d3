//! Accepting from a listener at its turn, and the reset of connections beyond a quota.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{EpollEvent, EpollTimeout};
use rustix::net::{SocketFlags, acceptfrom_with};
use socket2::SockRef;

use super::loads::Loads;
use super::shared::{Accepted, Listener, Shared, WAKE};
use crate::address::canonical;

/// Connections taken from one listener before the next one has its turn.
pub(super) const TURN: usize = 64;
/// Rest when the kernel can give nothing at all: the listener stays readable, and asking again at once would spin.
pub(super) const REST: Duration = Duration::from_millis(50);
/// Between two errors about descriptors in the log.
const QUIET: Duration = Duration::from_secs(10);

/// What accepting takes.
pub(super) struct Work<T> {
    pub(super) shared: Arc<Shared<T>>,
    loads: Arc<Loads>,
    /// Given up to accept, and reset, when no other descriptor is left.
    reserve: Option<OwnedFd>,
    said: Option<Instant>,
}

/// What a listener has after its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    Nothing,
    /// More connections, perhaps.
    More,
    /// Connections that the kernel has nothing to accept them with.
    Unable,
}

impl<T> Work<T> {
    pub(super) fn new(shared: Arc<Shared<T>>, loads: Arc<Loads>) -> io::Result<Self> {
        Ok(Self {
            reserve: Some(shared.wake.as_fd().try_clone_to_owned()?),
            shared,
            loads,
            said: None,
        })
    }
}

impl<T: Clone> Work<T> {
    /// Accepts until it is woken to end.
    pub(super) fn accept_all(&mut self, give: &dyn Fn(Accepted<T>)) -> io::Result<()> {
        let mut events = [EpollEvent::empty(); 64];
        loop {
            let ready = match self.shared.epoll.wait(&mut events, EpollTimeout::NONE) {
                Ok(ready) => ready,
                Err(Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
            };
            for event in &events[..ready] {
                if event.data() == WAKE {
                    return Ok(());
                }
                if self.accept_turn(event.data(), TURN, give) == Left::Unable {
                    std::thread::sleep(REST);
                    self.refill();
                }
            }
        }
    }

    pub(super) fn accept_turn(&mut self, id: u64, turn: usize, give: &dyn Fn(Accepted<T>)) -> Left {
        for _ in 0..turn {
            // Gone: deregistered between the wait and now, or during this turn.
            let Some(accepted) = self.accept_one(id, give) else {
                return Left::Nothing;
            };
            match accepted {
                Ok(()) => {}
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => return Left::Nothing,
                    // accept(2): a connection that ended while it waited, and errors of the network passed on.
                    Some(
                        libc::EINTR
                        | libc::ECONNABORTED
                        | libc::ENETDOWN
                        | libc::EPROTO
                        | libc::ENOPROTOOPT
                        | libc::EHOSTDOWN
                        | libc::ENONET
                        | libc::EHOSTUNREACH
                        | libc::EOPNOTSUPP
                        | libc::ENETUNREACH,
                    ) => {}
                    Some(libc::EMFILE | libc::ENFILE) if self.reserve.is_some() => {
                        self.complain(&error);
                        if !self.shed_one(id) {
                            return Left::Nothing;
                        }
                    }
                    _ => {
                        self.complain(&error);
                        return Left::Unable;
                    }
                },
            }
        }
        Left::More
    }

    /// Takes one connection from a listener, if it is still registered. The lock is held until the connection counts: were it
    /// not, a process that has dropped all its listeners could end between the two, and take a connection along that nobody serves.
    fn accept_one(&self, id: u64, give: &dyn Fn(Accepted<T>)) -> Option<io::Result<()>> {
        let listeners = self.shared.lock();
        let listener = listeners.by_id.get(&id)?;
        let accepted = accept(&listener.socket);
        Some(accepted.map(|(stream, peer)| self.count(listener, stream, peer, give)))
    }

    fn count(
        &self,
        listener: &Listener<T>,
        stream: OwnedFd,
        peer: SocketAddr,
        give: &dyn Fn(Accepted<T>),
    ) {
        let Some(held) = listener.quota.take(listener.cost) else {
            self.shed(stream);
            return;
        };
        give(Accepted {
            stream,
            peer,
            tag: listener.tag.clone(),
            load: self.loads.charge(held),
        });
    }

    /// Frees the listener's queue of one connection by way of the reserve; false if none waits any more. The kernel
    /// looks for a descriptor before it looks for a connection.
    fn shed_one(&mut self, id: u64) -> bool {
        self.reserve = None;
        let accepted = {
            let listeners = self.shared.lock();
            listeners
                .by_id
                .get(&id)
                .map(|listener| accept(&listener.socket))
        };
        let waited = match accepted {
            Some(Ok((stream, _))) => {
                self.shed(stream);
                true
            }
            Some(Err(error)) => error.raw_os_error() != Some(libc::EAGAIN),
            None => false,
        };
        self.refill();
        waited
    }

    /// Takes the reserve back, unless another thread was faster.
    pub(super) fn refill(&mut self) {
        if self.reserve.is_none() {
            self.reserve = self.shared.wake.as_fd().try_clone_to_owned().ok();
        }
    }

    /// Resets a connection, so that its client neither waits nor takes the end for an empty answer.
    fn shed(&self, stream: OwnedFd) {
        // Without the option the client sees an orderly end, which is the best that is left.
        let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
        self.loads.count_shed();
    }

    fn complain(&mut self, error: &io::Error) {
        if self.said.is_none_or(|said| said.elapsed() >= QUIET) {
            self.said = Some(Instant::now());
            tracing::error!(
                %error,
                "accept a connection: connections are reset until descriptors are free; raise the limit of open files"
            );
        }
    }
}

fn accept(listener: &OwnedFd) -> io::Result<(OwnedFd, SocketAddr)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (stream, address) = acceptfrom_with(listener, flags)?;
    let peer = address
        .and_then(|address| SocketAddr::try_from(address).ok())
        .ok_or_else(|| io::Error::from(Errno::ECONNABORTED))?;
    Ok((stream, canonical(peer)))
}
