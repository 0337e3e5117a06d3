//! System calls of a process that no library has in a safe form: limits of open files, scheduler slices, release of the program's
//! pages, readiness of a descriptor, and packets that carry descriptors.
//!
//! This crate knows no namespace and no protocol. Crates that forbid `unsafe` reach the kernel through it.

mod limits;
mod packet;
mod page_release;
mod readiness;
mod slice;
mod sockopt;

pub use limits::raise_file_limit;
pub use packet::{PacketSocket, Received};
pub use page_release::release_program;
pub use readiness::Readiness;
pub use slice::{SLICES, reset_slice, set_slice};
pub use sockopt::{set_option, wake_at};
