//! `istio_request*` and `istio_response*`: metrics of requests with Istio's names and labels, counted without a lock in
//! cells that are found by integers.

mod cell;
mod cells;
mod families;
mod histogram;
mod outcome;

#[cfg(test)]
mod tests;

pub use cell::{Cell, Finished};
pub use cells::{Cells, Key};
pub use families::Requests;
pub use outcome::{GrpcStatus, Protocol, RequestFlags};
