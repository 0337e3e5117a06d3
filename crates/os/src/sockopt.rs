//! Socket options that socket2 has no setter for.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Sets an option whose value is a number (setsockopt(2)).
///
/// # Errors
/// The kernel knows no such option, or refuses the value.
pub fn set_option(
    socket: &impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
    number: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the descriptor is open, and the pointer and length describe `number`, which outlives the call.
    let answer = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            (&raw const number).cast(),
            size_of_val(&number) as libc::socklen_t,
        )
    };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Sets how many bytes wake a reader of `stream`; its end or failure wakes it always (socket(7), SO_RCVLOWAT). A read returns the
/// bytes that are there all the same.
pub fn wake_at(stream: &impl AsFd, bytes: usize) {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    // It fails only on a dead socket, which the next read tells.
    let _ = set_option(stream, libc::SOL_SOCKET, libc::SO_RCVLOWAT, bytes);
}
