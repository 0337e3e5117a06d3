//! In-kernel join of two connections of this process. The bytes of one application go straight into the connection to the other
//! application, without a wake-up of this process. The caller has decided before that the two may talk.
//!
//! Nothing is compiled. The two small BPF programs are written as instructions ([`programs`]); the offsets of the kernel's
//! fields come from its type information ([`btf`]). `docs/design/accelerator.md` has the reasons.
//!
//! This crate has `unsafe`: it calls bpf(2) and shares a page with the kernel.

mod accelerator;
mod asm;
pub mod btf;
mod end;
mod programs;
mod sys;
mod table;

pub use accelerator::{Accelerator, Declined, Joined, Unavailable, Visit};
pub use end::End;
