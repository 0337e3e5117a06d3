//! Joins two connections of this process in the kernel: what one application sends goes straight into the connection to
//! the other one, and this process is not woken for it. Whether two may talk is decided elsewhere, before.
//!
//! Nothing is compiled: the two small BPF programs are written down as instructions ([`programs`]), with the places of
//! the kernel's fields from its own type information ([`btf`]). `docs/design/accelerator.md` says why it is made so.
//!
//! One of the few crates with `unsafe`: it calls bpf(2) and shares a page with the kernel.

mod accelerator;
mod asm;
pub mod btf;
mod end;
mod programs;
mod sys;
mod table;

pub use accelerator::{Accelerator, Declined, Joined, Unavailable, Visit};
pub use end::End;
