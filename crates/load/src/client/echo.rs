//! Raw bytes: a payload is sent, and the same bytes must come back before the next is.

use std::sync::Arc;

use bytes::Bytes;

use super::interface::{Answer, Client, Completion, Malformed, Output, Start};

/// A client of an echo service.
#[derive(Debug)]
pub struct Echo {
    payload: Arc<[u8]>,
    /// Bytes of the answer that have come.
    received: usize,
    slot: Option<usize>,
    over: bool,
}

impl Echo {
    /// A client that sends this payload, which is not empty, again and again.
    pub fn new(payload: Arc<[u8]>) -> Echo {
        Echo {
            payload,
            received: 0,
            slot: None,
            over: false,
        }
    }
}

impl Client for Echo {
    fn room(&self) -> usize {
        usize::from(self.slot.is_none() && !self.over)
    }

    fn start(&mut self, start: Start, out: &mut Output) {
        self.slot = Some(start.slot);
        self.over = start.last;
        self.received = 0;
        out.bytes.extend_from_slice(&self.payload);
    }

    fn receive(&mut self, input: &Bytes, _now: u64, out: &mut Output) -> Result<(), Malformed> {
        let Some(slot) = self.slot else {
            return Err(Malformed::Rule("the server speaks without being asked"));
        };
        let expected = &self.payload[self.received..];
        if !expected.starts_with(&input[..]) {
            return Err(Malformed::Rule("what came back is not what was sent"));
        }
        self.received += input.len();
        if self.received == self.payload.len() {
            self.slot = None;
            let (status, content) = (200, self.received as u64);
            let outcome = Ok(Answer { status, content });
            out.done.push(Completion { slot, outcome });
        }
        Ok(())
    }

    fn end(&mut self, _: &mut Output) {
        self.over = true;
    }

    fn is_over(&self) -> bool {
        self.over
    }
}
