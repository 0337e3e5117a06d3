//! Ctrl-C and termination as a descriptor beside the sockets, so that an interrupted run still writes its report.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use signal_hook::consts::{SIGINT, SIGTERM};

/// The signals that end this process in order. From now on they do nothing else.
#[derive(Debug)]
pub struct Signals {
    /// The handler writes a byte to the other end.
    arrivals: UnixStream,
}

impl Signals {
    /// Takes over SIGINT and SIGTERM.
    pub fn take_over() -> io::Result<Signals> {
        let (arrivals, handler) = UnixStream::pair()?;
        arrivals.set_nonblocking(true)?;
        for signal in [SIGINT, SIGTERM] {
            signal_hook::low_level::pipe::register(signal, handler.try_clone()?)?;
        }
        Ok(Signals { arrivals })
    }

    /// The stream on which a byte comes with each signal. It does not block.
    pub fn into_stream(self) -> UnixStream {
        self.arrivals
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.arrivals.as_fd()
    }
}
