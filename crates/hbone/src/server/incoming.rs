//! CONNECT requests that wait for their answers.

use std::cell::Cell;
use std::task::{Context, Poll};

use lateen_h2::{Code, Field, Prebuilt, StreamId};
use lateen_types::Strng;

use crate::driver::{Broken, Shared, is_visible};
use crate::error::{Reason, StreamError};
use crate::headers::{self, Authority, Baggage, Forwarded, TraceParent};
use crate::load::Slot;
use crate::stream::Stream;

/// Why a request is refused, as the HTTP status that says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// 400: no CONNECT, or not to a place that this proxy serves.
    BadRequest,
    /// 401: policy denies it.
    Unauthorized,
    /// 405: any method but CONNECT.
    MethodNotAllowed,
    /// 503: the workload could not be reached.
    Unavailable,
}

impl Status {
    /// The number.
    pub fn code(self) -> u16 {
        match self {
            Status::BadRequest => 400,
            Status::Unauthorized => 401,
            Status::MethodNotAllowed => 405,
            Status::Unavailable => 503,
        }
    }
}

/// A CONNECT request that waits for its answer. Dropped without one, it is reset.
#[derive(Debug)]
pub struct Incoming {
    /// Where the peer wants to go.
    pub authority: Authority,
    /// What the source says about itself; proves nothing.
    pub baggage: Option<Baggage>,
    /// What the source's proxy says about the application's connection; proves nothing.
    pub forwarded: Option<Forwarded>,
    /// The id that joins both sides' logs.
    pub traceparent: Option<TraceParent>,
    /// The network where the connection began, if it came through a gateway.
    pub network: Option<Strng>,
    pub(super) slot: Slot,
    pub(super) asked: Asked,
}

impl Incoming {
    /// Answers 200, with the destination's baggage: call it when the far end is connected.
    ///
    /// # Errors
    /// The peer gave up meanwhile.
    pub fn accept(self, baggage: Option<&str>) -> Result<Stream, StreamError> {
        self.asked.accept(baggage, self.slot)
    }

    /// Answers that there will be no stream.
    pub fn refuse(self, status: Status) {
        self.asked.answer(status);
    }

    /// Resolves when the peer gives up waiting or its tunnel is lost, so that a connection in the making can
    /// be dropped. To be selected against that work: dropped before it resolves, it has changed nothing.
    pub async fn cancelled(&mut self) {
        std::future::poll_fn(|cx| self.asked.poll_gone(cx)).await;
    }
}

thread_local! {
    /// The answers that say nothing but a status, encoded once.
    static ANSWERS: [Prebuilt; 5] = [
        Prebuilt::new([Field::new(":status", "200")]),
        Prebuilt::new([Field::new(":status", "400")]),
        Prebuilt::new([Field::new(":status", "401")]),
        Prebuilt::new([Field::new(":status", "405"), Field::new("allow", "CONNECT")]),
        Prebuilt::new([Field::new(":status", "503")]),
    ];
}

/// A peer's request that waits for its answer. Dropped without one, it is reset.
#[derive(Debug)]
pub(super) struct Asked {
    shared: Shared,
    id: StreamId,
    /// It is let go here, and by nobody else.
    ours: Cell<bool>,
}

impl Asked {
    pub(super) fn new(shared: Shared, id: StreamId) -> Self {
        Asked {
            shared,
            id,
            ours: Cell::new(true),
        }
    }

    pub(super) fn is(&self, shared: &Shared, id: StreamId) -> bool {
        self.id == id && self.shared.is(shared)
    }

    /// The same to a request that nobody need look at; what it still says is judged to its end.
    pub(super) fn turn_away(self, status: Status) {
        self.say(status);
        self.ours.set(false);
        self.shared.act(|core| core.refuse(self.id));
    }

    /// Says that there will be no stream.
    pub(super) fn answer(self, status: Status) {
        self.say(status);
    }

    fn say(&self, status: Status) {
        let place = match status {
            Status::BadRequest => 1,
            Status::Unauthorized => 2,
            Status::MethodNotAllowed => 3,
            Status::Unavailable => 4,
        };
        // Fails when the peer has left, and then nobody need be told.
        let _ = ANSWERS.with(|answers| {
            self.shared.act(|core| {
                let answer = answers.get(place);
                core.http2.respond(self.id, answer, &[], true)
            })
        });
    }

    /// Says 200.
    pub(super) fn accept(self, baggage: Option<&str>, slot: Slot) -> Result<Stream, StreamError> {
        let fields = baggage.filter(|text| is_visible(text.trim_matches('\0')));
        let fields = fields.map(|text| Field::new(headers::BAGGAGE, text).kept());
        let answered = ANSWERS.with(|answers| {
            self.shared.act(|core| {
                if let Some(ended) = core.ended() {
                    return Err(Reason::lost(ended.clone()));
                }
                let broken = core.entry(self.id).and_then(|entry| entry.broken);
                let fields = fields.as_slice();
                let answer = core.http2.respond(self.id, answers.first(), fields, false);
                answer.map_err(|_| match broken {
                    Some(Broken::Reset(code)) => Reason::told(code),
                    _ => Reason::told(Code::CANCEL),
                })
            })
        });
        answered.map_err(StreamError)?;
        self.ours.set(false);
        Ok(Stream::new(self.shared.clone(), self.id, slot))
    }

    /// `Ready` when there is nobody left to answer.
    pub(super) fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        let gone = {
            let mut core = self.shared.borrow();
            core.ended().is_some() || core.entry(self.id).is_none_or(|e| e.broken.is_some())
        };
        if gone {
            return Poll::Ready(());
        }
        self.shared.wait(self.id, cx, |entry| &mut entry.writer);
        Poll::Pending
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if self.ours.get() {
            self.shared.let_go(self.id);
        }
    }
}
