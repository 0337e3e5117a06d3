//! State of one exchange of a connection.

use std::collections::VecDeque;
use std::task::Waker;

use lateen_h2::StreamId;
use lateen_http::{Asked, FramedResponse, Trailers};

use crate::account::{Charge, Held};
use crate::error::Error;
use crate::inbox::Inbox;

/// The number of an exchange on its connection. In HTTP/2 it is the stream's.
pub(crate) type Key = u32;

/// One exchange, until its owner drops it.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    /// HTTP/2 alone.
    pub(crate) id: Option<StreamId>,
    pub(crate) inbox: Inbox,
    /// Bytes in the inbox.
    pub(crate) held: usize,
    /// Bytes of the piece that the reader took last. They count until it asks for more, since it may wait to pass them on.
    pub(crate) handed_out: usize,
    /// Bytes of the request's head, to a server. They count for as long as the exchange is open.
    pub(crate) head: usize,
    /// A client of HTTP/2: the last turn in which a header block may have been made.
    pub(crate) block_turn: u32,
    /// A client's exchange: what its peer's account is charged with for it.
    pub(crate) charge: Option<Charge>,
    /// Bytes of ours that waited for the wire at the end of the last turn. They are charged too.
    pub(crate) queued: usize,
    /// It is among those of which the end of a turn asks what still waits.
    pub(crate) is_sending: bool,
    /// The final response, to a client.
    pub(crate) answer: Option<FramedResponse>,
    /// Informational responses before it.
    pub(crate) informational: VecDeque<FramedResponse>,
    pub(crate) trailers: Option<Box<Trailers>>,
    /// Bytes of the trailers, until their reader takes them.
    pub(crate) trailing: usize,
    /// The task that waits for input.
    pub(crate) reader: Option<Waker>,
    /// The task that waits for room.
    pub(crate) writer: Option<Waker>,
    pub(crate) broken: Option<Box<Error>>,
    /// Bytes of announced content that are still to be sent.
    pub(crate) left: Option<u64>,
    /// The facts of the request on which the answer's framing depends.
    pub(crate) asked: Option<Asked>,
    /// The peer's message is complete.
    pub(crate) heard: bool,
    /// Our message is complete.
    pub(crate) sent: bool,
    /// Our head is written.
    pub(crate) begun: bool,
    /// The answer opened a tunnel.
    pub(crate) is_tunnel: bool,
    /// The client waits for status 100 before it sends content.
    pub(crate) expects: bool,
}

impl Entry {
    /// The bytes of a client's exchange that the peer's account is charged with.
    pub(crate) fn weight(&self) -> Held {
        Held {
            requests: self.queued,
            answers: self.held + self.handed_out + self.trailing,
        }
    }
}

/// The parts of a closed exchange that the caller drops, after it has released the state.
pub(crate) type Remains = (Wakes, Option<Charge>);

/// The tasks that an event wakes.
pub(crate) type Wakes = [Option<Waker>; 2];
