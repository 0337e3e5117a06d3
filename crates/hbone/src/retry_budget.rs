//! The retry budget of a connection: how many CONNECT requests may be lost without an answer before retrying stops.

use std::cell::Cell;

use crate::error::ConnectError;

/// How often a request is repeated that a peer had and did not answer.
const RETRIES: usize = 1;

/// The requests of one connection that peers had and did not answer, whichever tunnels and endpoints they went to. What
/// is proven unprocessed (RFC 9113 §8.7) is none of them.
///
/// No byte of the application has travelled, so all that its server may have seen is a connection that opened and
/// closed: one more request is sent. But what one peer died of is not carried to all of them.
#[derive(Debug, Default)]
pub struct RetryBudget(Cell<usize>);

impl RetryBudget {
    /// Takes note of what became of a request.
    pub fn note(&self, error: &ConnectError) {
        if error.unanswered() {
            self.0.set(self.0.get() + 1);
        }
    }

    /// Whether the connection may be asked for once more.
    pub fn may_repeat(&self) -> bool {
        self.0.get() <= RETRIES
    }
}
