//! Ctrl-C and termination as a descriptor beside the sockets, so that an interrupted run still writes its report.

use std::io;
use std::os::unix::net::UnixStream;

use signal_hook::consts::{SIGINT, SIGTERM};

/// Takes over SIGINT and SIGTERM: from now on each adds a byte to a stream, which does not block, and does nothing else.
pub fn take_over() -> io::Result<UnixStream> {
    let (arrivals, handler) = UnixStream::pair()?;
    arrivals.set_nonblocking(true)?;
    for signal in [SIGINT, SIGTERM] {
        signal_hook::low_level::pipe::register(signal, handler.try_clone()?)?;
    }
    Ok(arrivals)
}
