//! Ctrl-C and termination as something to wait for beside the sockets, so that a run that is
//! interrupted still writes what it has.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// The signals that end this process in order. While it exists they do nothing else.
#[derive(Debug)]
pub struct Signals {
    fd: SignalFd,
}

impl Signals {
    /// Takes over SIGINT and SIGTERM. Call it before the process has a second thread.
    pub fn take_over() -> io::Result<Signals> {
        let mut set = SigSet::empty();
        set.add(Signal::SIGINT);
        set.add(Signal::SIGTERM);
        set.thread_block()?;
        Ok(Signals {
            fd: SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?,
        })
    }

    /// Whether a signal has arrived since the last call.
    pub fn arrived(&mut self) -> bool {
        matches!(self.fd.read_signal(), Ok(Some(_)))
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
