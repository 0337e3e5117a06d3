//! Release of the program's own mapped pages.
//!
//! The kernel maps sixteen pages around each page that is touched, and startup touches some function in nearly every such
//! stretch. Afterwards almost the whole program is mapped, and serving needs a fraction of it.
//!
//! A released page stays in the page cache. While memory suffices it is found there without the disk; when memory is short it
//! is reclaimed first.

use std::io;
use std::ops::Range;

unsafe extern "C" {
    /// Where the linker put the program's first byte.
    static __executable_start: u8;
    /// Where it put the end of its code.
    static etext: u8;
}

/// Unmaps the program's constants and code. What is still used comes back, at a minor fault for sixteen pages.
///
/// # Errors
/// The kernel does not do so, as where the process' memory is locked.
pub fn release_program() -> io::Result<()> {
    let pages = program();
    let start = std::ptr::without_provenance_mut(pages.start);
    // SAFETY: from its beginning to the end of its code a program has constants and code, mapped from its file and written by
    // nobody; what is relocated comes behind. A page that is let go is read from the file again, with the same bytes.
    match unsafe { libc::madvise(start, pages.len(), libc::MADV_DONTNEED) } {
        0 => Ok(()),
        _ => match io::Error::last_os_error() {
            // Between two segments the linker may leave pages to nobody: those around them were let go (madvise(2)).
            error if error.raw_os_error() == Some(libc::ENOMEM) => Ok(()),
            error => Err(error),
        },
    }
}

/// Addresses of the whole pages between the program's beginning and the end of its code.
fn program() -> Range<usize> {
    // SAFETY: nothing is read but the symbols' addresses, and a number of the system's.
    let (start, end, page) = unsafe {
        let page = usize::try_from(libc::sysconf(libc::_SC_PAGESIZE)).unwrap_or(4096);
        (&raw const __executable_start, &raw const etext, page)
    };
    start.addr().next_multiple_of(page)..end.addr() / page * page
}
