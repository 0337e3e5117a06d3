//! State of one tunnel, which its driver and its streams share: the HTTP/2 core, and for each stream its received data and its
//! wakers.

use std::cell::RefMut;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::rc::Rc;
use std::task::{Context, Waker};

use bytes::Bytes;
use lateen_exchange::{Driven, DriverWaker, Inbox, Spread};
use lateen_h2::{Code, Connection, Event, StreamId};
use tokio::time::Instant;

use crate::ended::Ended;
use crate::headers::Baggage;
use crate::send_buffer::SendBuffer;

/// A tunnel's state; clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Shared(lateen_exchange::Shared<Core>);

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) http2: Connection,
    streams: HashMap<StreamId, Entry, BuildHasherDefault<Spread>>,
    driver: DriverWaker,
    /// Written to the stream below, which has not let it leave.
    unflushed: usize,
    /// What waits to be written, for the budget.
    pub(crate) send_buffer: Rc<SendBuffer>,
    /// How the tunnel ended.
    ended: Option<Ended>,
    /// The client's owner makes no more requests on it.
    is_closed: bool,
    /// Streams that wait until nothing of theirs is queued.
    parting: usize,
    /// The number of the last PING, and of the last one that was answered.
    pings: (u32, u32),
    origin: Instant,
}

/// What broke a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The peer reset it, or made us do so.
    Reset(Code),
    /// A GOAWAY leaves it out.
    LeftOut,
}

/// What a request was answered with.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) baggage: Option<Baggage>,
}

/// One stream, until its owner lets it go.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    pub(crate) inbox: Inbox,
    /// Whoever waits for something to come.
    pub(crate) reader: Option<Waker>,
    /// Whoever waits for room, or for the end.
    pub(crate) writer: Option<Waker>,
    /// The writer waits until nothing is queued.
    parting: bool,
    /// It was answered and over for us before anybody took it up; it stays until it is for the peer, who may still err.
    refused: bool,
    /// The peer has said all.
    pub(crate) heard: bool,
    pub(crate) broken: Option<Broken>,
    pub(crate) answer: Option<Box<Answer>>,
}

/// What an event is to the tunnel, beyond the stream that it concerns.
pub(crate) enum News {
    /// Nothing.
    None,
    /// A request came, whose fields are the core's until more is received.
    Request { stream: StreamId, connect: bool },
    /// A stream is over that nobody may have taken up yet.
    Over(StreamId),
    /// The peer's limits may have changed.
    Settings,
    /// The answer to a PING.
    Pong,
    /// The peer is ending, or gives up for this reason.
    GoAway(Code),
}

/// Whom an event wakes.
type Wakes = [Option<Waker>; 2];

impl Shared {
    pub(crate) fn new(http2: Connection, send_buffer: Rc<SendBuffer>, origin: Instant) -> Self {
        Shared(lateen_exchange::Shared::of(Core {
            http2,
            streams: HashMap::default(),
            driver: DriverWaker::default(),
            unflushed: 0,
            send_buffer,
            ended: None,
            is_closed: false,
            parting: 0,
            pings: (0, 0),
            origin,
        }))
    }

    /// The state, for a moment in which nobody is woken.
    #[inline]
    pub(crate) fn borrow(&self) -> RefMut<'_, Core> {
        self.0.borrow()
    }

    pub(crate) fn is(&self, other: &Shared) -> bool {
        self.0.is(&other.0)
    }

    /// Changes the state, takes note of the bytes that wait, and wakes the driver if it must write.
    pub(crate) fn act<R>(&self, act: impl FnOnce(&mut Core) -> R) -> R {
        self.0.act(|core| {
            let result = act(core);
            core.account();
            result
        })
    }

    /// Wakes the driver.
    pub(crate) fn wake(&self) {
        self.0.wake();
    }

    /// The driver's turn is over.
    pub(crate) fn turned(&self) {
        self.0.turned();
    }

    /// The driver is here: it is woken by what streams do after [`Shared::turned`].
    pub(crate) fn driven_by(&self, cx: &Context<'_>) {
        self.0.driven_by(cx);
    }

    /// Wakes those that wait for room and have it, and those whose bytes have left; `true` if that is to be done once more
    /// when they have run.
    pub(crate) fn announce_room(&self) -> bool {
        // Not all of them for the room of a few: most would find nothing left.
        let most = self.borrow().http2.worth_telling();
        self.0.wake_each(most, |core| {
            let stream = core.http2.next_with_room()?;
            Some(core.entry(stream).and_then(|entry| entry.writer.take()))
        });
        self.0.wake_each(usize::MAX, Core::parted);
        self.borrow().http2.has_waiting()
    }

    /// The tunnel is over: everybody who is on it learns how.
    pub(crate) fn end(&self, how: Ended) {
        self.0.end_with(|core| {
            if core.ended.is_some() {
                return None;
            }
            core.ended = Some(how);
            core.send_buffer.close();
            let entries = core.streams.values_mut();
            let wakers = entries.flat_map(|entry| [entry.reader.take(), entry.writer.take()]);
            Some(wakers.flatten().collect())
        });
    }

    /// Puts a waker where the next event of its stream finds it.
    pub(crate) fn wait(
        &self,
        stream: StreamId,
        cx: &Context<'_>,
        place: impl FnOnce(&mut Entry) -> &mut Option<Waker>,
    ) {
        self.0.register(cx, |core| core.entry(stream).map(place));
    }

    /// A stream's owner lets it go. What it finished is still sent, see [`Connection::release`].
    pub(crate) fn let_go(&self, stream: StreamId) {
        let entry = self.act(|core| {
            let entry = core.streams.remove(&stream);
            if entry.as_ref().is_some_and(|entry| entry.parting) {
                core.parting -= 1;
            }
            core.http2.release(stream);
            entry
        });
        drop(entry);
    }
}

impl Driven for Core {
    #[inline]
    fn driver(&mut self) -> &mut DriverWaker {
        &mut self.driver
    }
}

impl Core {
    /// How the tunnel ended, if it did.
    pub(crate) fn ended(&self) -> Option<&Ended> {
        self.ended.as_ref()
    }

    /// Has the client make no more requests; `true` if it could before.
    pub(crate) fn close(&mut self) -> bool {
        !std::mem::replace(&mut self.is_closed, true)
    }

    /// True once the client makes no more requests.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// True if no request of ours has a chance: the tunnel has ended, is closed, or its peer is going away.
    pub(crate) fn is_leaving(&self) -> bool {
        self.is_closed || self.ended.is_some() || !self.http2.takes_requests()
    }

    /// Time as the core has it.
    pub(crate) fn now(&self) -> lateen_h2::Timestamp {
        let micros = self.origin.elapsed().as_micros();
        lateen_h2::Timestamp::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    /// Says that the connection takes nothing for now, or something again.
    pub(crate) fn set_stuck(&mut self, stuck: bool) {
        self.driver.set_stuck(stuck);
    }

    /// Takes note of what was written and has not left; `true` if that is something new.
    pub(crate) fn set_unflushed(&mut self, bytes: usize) -> bool {
        std::mem::replace(&mut self.unflushed, bytes) != bytes
    }

    /// Tells the budget what waits.
    pub(crate) fn account(&mut self) {
        if self.ended.is_none() {
            let held_up = self.http2.window() == 0;
            let waits = self.http2.queued() + self.unflushed;
            self.send_buffer.owe(waits, held_up);
        }
    }

    /// Gives back what streams took that are gone.
    pub(crate) fn rest(&mut self) {
        if self.streams.is_empty() {
            self.streams = HashMap::default();
        }
        self.http2.rest();
    }

    pub(crate) fn open(&mut self, stream: StreamId) {
        self.streams.insert(stream, Entry::default());
    }

    pub(crate) fn entry(&mut self, stream: StreamId) -> Option<&mut Entry> {
        self.streams.get_mut(&stream)
    }

    /// Has the stream's writer woken when nothing of it is queued.
    pub(crate) fn part(&mut self, stream: StreamId) {
        if let Some(entry) = self.streams.get_mut(&stream)
            && !std::mem::replace(&mut entry.parting, true)
        {
            self.parting += 1;
        }
    }

    /// One that waited for that: its waker, if it has one.
    fn parted(&mut self) -> Option<Option<Waker>> {
        if self.parting == 0 {
            return None;
        }
        let http2 = &mut self.http2;
        let (_, entry) = self
            .streams
            .iter_mut()
            .find(|(id, entry)| entry.parting && http2.queued_of(**id) == 0)?;
        entry.parting = false;
        self.parting -= 1;
        Some(entry.writer.take())
    }

    #[cfg(test)]
    pub(crate) fn streams_left(&self) -> usize {
        self.streams.len() + self.parting
    }

    /// Streams that there is room for.
    #[cfg(test)]
    pub(crate) fn room(&self) -> usize {
        self.streams.capacity()
    }

    /// Sends a PING.
    pub(crate) fn ping(&mut self) -> bool {
        if self.ended.is_some() {
            return false;
        }
        self.pings.0 = self.pings.0.wrapping_add(1);
        self.http2.ping(self.pings.0);
        true
    }

    /// Whether the last PING was answered.
    pub(crate) fn was_answered(&self) -> bool {
        self.pings.0 == self.pings.1
    }

    /// Gives an event to its stream.
    pub(crate) fn take(&mut self, event: Event<'_>, buffer: &Bytes) -> (News, Wakes) {
        let mut news = News::None;
        let wakes = match event {
            Event::Data { stream, bytes, end } => {
                let Some(entry) = self.entry(stream) else {
                    self.http2.consumed(stream, bytes.len());
                    return (News::None, [None, None]);
                };
                entry.heard |= end;
                if entry.refused {
                    self.http2.consumed(stream, bytes.len());
                    self.part_with(stream);
                    return (News::None, [None, None]);
                }
                if !bytes.is_empty() {
                    entry.inbox.push(buffer, bytes);
                }
                [entry.reader.take(), None]
            }
            Event::Request {
                stream,
                connect,
                end,
            } => {
                self.open(stream);
                if let Some(entry) = self.entry(stream) {
                    entry.heard = end;
                }
                news = News::Request { stream, connect };
                [None, None]
            }
            Event::Response {
                stream,
                status,
                end,
            } => {
                let baggage = self.baggage();
                let answer = Answer { status, baggage };
                self.entry(stream).map_or([None, None], |entry| {
                    entry.answer = Some(Box::new(answer));
                    entry.heard |= end;
                    [entry.reader.take(), None]
                })
            }
            Event::Trailers { stream } => {
                let wakes = self.entry(stream).map_or([None, None], |entry| {
                    entry.heard = true;
                    [entry.reader.take(), None]
                });
                self.part_with(stream);
                wakes
            }
            Event::Reset { stream, code, .. } => {
                news = News::Over(stream);
                self.break_off(stream, Broken::Reset(code))
            }
            Event::Failed(error) => {
                news = News::Over(error.stream);
                self.break_off(error.stream, Broken::Reset(error.code))
            }
            Event::Unprocessed { stream } => self.break_off(stream, Broken::LeftOut),
            Event::Settings => {
                news = News::Settings;
                [None, None]
            }
            Event::Pong(number) => {
                self.pings.1 = number;
                news = News::Pong;
                [None, None]
            }
            Event::GoAway { code, .. } => {
                news = News::GoAway(code);
                [None, None]
            }
            // A tunnel's configuration does not ask to be told of requests that are too large.
            Event::Informational { .. } | Event::TooLarge { .. } | Event::Acknowledged => {
                [None, None]
            }
        };
        (news, wakes)
    }

    fn break_off(&mut self, stream: StreamId, how: Broken) -> Wakes {
        let wakes = self.entry(stream).map_or([None, None], |entry| {
            entry.broken.get_or_insert(how);
            [entry.reader.take(), entry.writer.take()]
        });
        self.part_with(stream);
        wakes
    }

    /// A stream that was answered will be taken up by nobody: it goes when the peer has ended it.
    pub(crate) fn refuse(&mut self, stream: StreamId) {
        if let Some(entry) = self.entry(stream) {
            entry.refused = true;
        }
        self.part_with(stream);
    }

    /// Lets a refused stream go if it is over.
    fn part_with(&mut self, stream: StreamId) {
        let is_over = |entry: &mut Entry| entry.refused && (entry.heard || entry.broken.is_some());
        if self.entry(stream).is_some_and(is_over) {
            // Nobody waits for it: there is no waker.
            self.streams.remove(&stream);
            self.http2.release(stream);
        }
    }

    /// The facts of its workload in the header block that came, which has [`Baggage::LONGEST`] bytes of them at most.
    pub(crate) fn baggage(&self) -> Option<Baggage> {
        let (mut baggage, mut length) = (None, 0);
        for line in self.lines(crate::headers::BAGGAGE) {
            length += line.len();
            if length > Baggage::LONGEST {
                return None;
            }
            baggage.get_or_insert_with(Baggage::default).read(line);
        }
        baggage
    }

    /// The values of a field of the header block that came, those that are text.
    pub(crate) fn lines<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let values = self.http2.fields().all(name);
        values.filter_map(|value| {
            std::str::from_utf8(value)
                .ok()
                .filter(|text| is_visible(text))
        })
    }
}

/// What a header may hold that is passed on as text.
pub(crate) fn is_visible(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte == b'\t' || (b' '..0x7f).contains(&byte))
}
