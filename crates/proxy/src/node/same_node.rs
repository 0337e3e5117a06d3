//! Connections between two pods of this process, whose pairs are in `pairs`. `proof` opens and watches the tunnel that proves
//! both pods, `handover` delivers a connection beside that tunnel, and `splice` lets the kernel carry its bytes.

pub(super) mod handover;
mod proof;
pub(super) mod splice;
