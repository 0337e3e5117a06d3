//! State of one connection, which its driver and its exchanges share: the codec, and the content and wakers of each exchange.

mod charging;

use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Instant;

use bytes::Bytes;
use lateen_h1::{ClientConnection, ServerConnection};
use lateen_h2::{Code, StreamId, Timestamp};
use lateen_http::FramedRequest;

use crate::account::{Charge, Freed};
use crate::config::Config;
use crate::entries::Entries;
use crate::entry::{Entry, Key, Remains};
use crate::error::{ConnectionError, Error};
use crate::inbox::LARGE;
use crate::shared::{Driven, DriverWaker};
use crate::stalled_window::StalledWindow;
use crate::unwritten::Unwritten;

/// Bytes of output that a connection may always have waiting, so that answers leave memory.
pub(crate) const LEAST_SEND: usize = 4096;

/// Requests whose room in the queue stays in any case.
const KEPT: usize = 16;

/// The state of a connection; clones share it.
pub(crate) type Shared = crate::shared::Shared<Core>;

/// The state machine of the protocol.
#[derive(Debug)]
pub(crate) enum Codec {
    Server1(ServerConnection),
    Client1(ClientConnection),
    /// HTTP/1 behind an accepted upgrade or CONNECT.
    Tunnel(lateen_h1::Tunnel),
    /// Only while HTTP/1 becomes a tunnel.
    Moving,
    /// The state is in a box, for it is much larger than the others.
    Http2(Box<lateen_h2::Connection>),
}

impl Codec {
    /// Bytes of a head or a trailer section of HTTP/1 that has not ended.
    pub(crate) fn incomplete1(&self) -> usize {
        match self {
            Codec::Server1(http1) => http1.incomplete(),
            Codec::Client1(http1) => http1.incomplete(),
            Codec::Tunnel(_) | Codec::Moving | Codec::Http2(_) => 0,
        }
    }
}

/// The peer's answers on a client's connection of HTTP/2, as far as they tell why requests are lost with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Past {
    /// None has come.
    New,
    /// At least one has.
    Answered,
    /// The open exchanges began when none was open, after earlier answers. Nothing was said about them since.
    AtRest,
}

/// An exchange of HTTP/2 that its owner has dropped, though content of the request waits.
#[derive(Debug)]
pub(crate) struct Leaving {
    pub(crate) id: StreamId,
    pub(crate) charge: Charge,
}

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) codec: Codec,
    pub(crate) streams: Entries,
    /// Requests, to a server, that were not taken yet.
    pub(crate) incoming: VecDeque<(Key, FramedRequest)>,
    /// The statuses with which requests were answered that no exchange could take.
    pub(crate) refused: VecDeque<u16>,
    /// Input of HTTP/1 that the codec has not taken.
    pub(crate) input: Bytes,
    /// HTTP/1: the exchange that is open, or was open last.
    pub(crate) open: Key,
    /// HTTP/1: bytes came that no open exchange wants. No more are read before the next exchange.
    pub(crate) is_ahead: bool,
    /// A client of HTTP/1: the seconds that the server keeps an idle connection for, by its last answer.
    pub(crate) keep_alive: Option<u16>,
    /// Content waits for its reader, so the socket is not read.
    pub(crate) is_paused: bool,
    /// An exchange of HTTP/1 was dropped before it was complete.
    pub(crate) is_abandoned: bool,
    /// The sending direction of a tunnel is finished.
    pub(crate) is_finished: bool,
    /// That direction is shut down, behind all of its bytes.
    pub(crate) is_shut: bool,
    /// Bytes of heads, content and trailers in all exchanges, with the pieces that their readers took last.
    pub(crate) held: usize,
    /// Bytes that readers have taken so far. It goes round.
    pub(crate) taken: u64,
    /// A server: what the peer's account is charged with for the connection.
    pub(crate) charge: Option<Charge>,
    /// HTTP/1: the account has no room, so the socket is not read.
    pub(crate) is_starved: bool,
    /// The bytes that the account lets an HTTP/2 connection hold; see [`lateen_h2::Connection::set_allowance`].
    allowance: u32,
    /// A client's exchanges that sent something in this turn, or had something waiting at the end of the last one.
    pub(crate) sending: Vec<Key>,
    /// Exchanges of HTTP/2 that were let go while something of theirs waited.
    pub(crate) leaving: Vec<Leaving>,
    /// A client of HTTP/2: frames in the output, and the accounts that pay for them.
    pub(crate) unwritten: Unwritten,
    /// The number of the turn. It goes round.
    pub(crate) turn: u32,
    /// HTTP/2: the window that the peer gives us.
    pub(crate) window: StalledWindow,
    /// A client of HTTP/2: what the peer has answered so far.
    pub(crate) past: Past,
    /// The number of the last PING.
    pub(crate) pings: u32,
    pub(crate) config: Rc<Config>,
    driver: DriverWaker,
    ended: Option<ConnectionError>,
    origin: Instant,
}

// Every connection has one, and most are idle. With the counts of its `Rc` the allocator gives it 768 bytes.
const _: () = assert!(size_of::<Core>() <= 752);

impl Shared {
    pub(crate) fn new(codec: Codec, config: Rc<Config>) -> Self {
        let account = config.account.clone();
        Shared::of(Core {
            codec,
            streams: Entries::default(),
            incoming: VecDeque::new(),
            refused: VecDeque::new(),
            input: Bytes::new(),
            open: 0,
            is_ahead: false,
            keep_alive: None,
            is_paused: false,
            is_abandoned: false,
            is_finished: false,
            is_shut: false,
            held: 0,
            taken: 0,
            charge: account.map(Charge::new),
            is_starved: false,
            allowance: 0,
            sending: Vec::new(),
            leaving: Vec::new(),
            unwritten: Unwritten::default(),
            turn: 0,
            window: StalledWindow::default(),
            past: Past::New,
            pings: 0,
            config,
            driver: DriverWaker::default(),
            ended: None,
            origin: Instant::now(),
        })
    }

    /// Ends the connection for all of its exchanges.
    pub(crate) fn end(&self, error: ConnectionError) {
        self.end_with(|core| {
            if core.ended.is_some() {
                return None;
            }
            core.ended = Some(error);
            let entries = core.streams.iter_mut();
            let wakers = entries.flat_map(|entry| [entry.reader.take(), entry.writer.take()]);
            Some(wakers.flatten().collect())
        });
        self.stop_waiting();
    }

    /// Drops what a connection of HTTP/2 would write, for it is no longer driven. Exchanges that live on would keep it.
    pub(crate) fn drop_output(&self) {
        if let Codec::Http2(http2) = &mut self.borrow().codec {
            http2.drop_output();
        }
        self.settle();
    }

    /// Says to the accounts that the connection reads no more, so that it does not count among those that wait for room.
    pub(crate) fn stop_waiting(&self) {
        let mut before = Vec::new();
        {
            let core = &mut *self.borrow();
            core.is_starved = false;
            let entries = core.streams.iter_mut();
            let charges = entries.filter_map(|entry| entry.charge.as_mut());
            for charge in charges.chain(core.charge.as_mut()) {
                charge.leave(&mut before);
            }
        }
        drop(before);
    }

    /// Puts the task's waker where the next event of its exchange finds it.
    pub(crate) fn wait(
        &self,
        key: Key,
        cx: &Context<'_>,
        place: impl FnOnce(&mut Entry) -> &mut Option<Waker>,
    ) {
        self.register(cx, |core| core.streams.get_mut(key).map(place));
    }

    /// Wakes the exchanges that waited for room and have it. True if some may still wait when these have run.
    #[inline(never)]
    pub(crate) fn announce_room(&self) -> bool {
        let most = match &self.borrow().codec {
            Codec::Http2(http2) => http2.worth_telling(),
            _ => 1,
        };
        self.wake_each(most, |core| {
            let key = match &mut core.codec {
                Codec::Http2(http2) => http2.next_with_room().map(StreamId::get),
                _ => (core.room(core.open) > 0).then_some(core.open),
            }?;
            let entry = core.streams.get_mut(key);
            Some(entry.and_then(|entry| entry.writer.take()))
        });
        match &self.borrow().codec {
            Codec::Http2(http2) => http2.has_waiting(),
            _ => false,
        }
    }

    /// True of a request that was not taken, which is taken out of the queue.
    pub(crate) fn is_waiting(&self, key: Key) -> bool {
        let incoming = &mut self.borrow().incoming;
        let place = incoming.iter().position(|(waiting, _)| *waiting == key);
        place.and_then(|place| incoming.remove(place)).is_some()
    }

    /// Drops an exchange. An incomplete one is reset; HTTP/1 loses its connection with it.
    pub(crate) fn let_go(&self, key: Key) {
        let (remains, freed, is_starved) = self.act(|core| {
            let remains = core.let_go(key);
            (remains, core.settle(key), core.is_starved)
        });
        drop(remains);
        freed.into_iter().for_each(Freed::tell);
        if is_starved {
            self.wake();
        }
    }
}

impl Driven for Core {
    #[inline]
    fn driver(&mut self) -> &mut DriverWaker {
        &mut self.driver
    }
}

impl Core {
    /// The error that ended the connection.
    pub(crate) fn ended(&self) -> Option<&ConnectionError> {
        self.ended.as_ref()
    }

    /// The failure of an exchange, or that of its connection; [`Error::Over`] if it is no longer here.
    pub(crate) fn failure(&self, key: Key) -> Option<Error> {
        match (self.streams.get(key), &self.ended) {
            (
                Some(Entry {
                    broken: Some(error),
                    ..
                }),
                _,
            ) => Some((**error).clone()),
            (_, Some(error)) => Some(error.clone().into()),
            (Some(_), None) => None,
            (None, None) => Some(Error::Over),
        }
    }

    /// Takes note of the window that the peer of a connection of HTTP/2 gives us. Call it before the frames of a turn are made, and
    /// behind them: a window that is granted and used at once moves.
    #[inline]
    pub(crate) fn note_window(&self) {
        if let Codec::Http2(http2) = &self.codec {
            self.window.set(http2.window() > 0);
        }
    }

    /// True while the stream below takes nothing. Then frames wait for the peer of a client's connection of HTTP/2 to read.
    #[inline]
    pub(crate) fn is_unread(&self) -> bool {
        self.driver.is_stuck()
    }

    /// Time as HTTP/2 counts it.
    pub(crate) fn now(&self) -> Timestamp {
        let micros = self.origin.elapsed().as_micros();
        Timestamp::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    /// True if the connection speaks HTTP/2.
    #[inline]
    pub(crate) fn is_http2(&self) -> bool {
        matches!(self.codec, Codec::Http2(_))
    }

    /// True if a frame or a piece of HTTP/1 can be written now.
    pub(crate) fn has_output(&mut self) -> bool {
        match &mut self.codec {
            Codec::Http2(http2) => http2.has_output(),
            _ => self.queued() > 0,
        }
    }

    /// True if exchanges may have room that they have not heard of, or the peer may be read again, although nothing is
    /// written. HTTP/1 gets room by writing alone.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        match &self.codec {
            Codec::Http2(http2) => self.is_paused || http2.worth_telling() > 0,
            _ => false,
        }
    }

    /// True while the peer has begun a head, or still sends the rest of a request of HTTP/1 that was answered.
    pub(crate) fn is_in_head(&self) -> bool {
        match &self.codec {
            // It says nothing while it is not heard.
            _ if self.is_starved => false,
            Codec::Server1(http1) => {
                self.streams.is_empty() && http1.wants_input() && !http1.is_idle()
            }
            Codec::Http2(http2) => http2.block().is_some() && !self.is_paused,
            _ => false,
        }
    }

    /// True if the connection takes no further exchange and the last one is over. The peer need only take the last bytes, and answer
    /// the PINGs of a drain.
    pub(crate) fn is_drained(&self) -> bool {
        self.streams.is_empty()
            && match &self.codec {
                Codec::Server1(http1) => !http1.wants_input(),
                Codec::Client1(http1) => http1.is_done(),
                Codec::Http2(http2) => http2.is_draining(),
                Codec::Tunnel(_) | Codec::Moving => false,
            }
    }

    /// True if something of closed exchanges waits for the peer.
    pub(crate) fn has_rest(&mut self) -> bool {
        match &mut self.codec {
            // A peer that sends PINGs gets replies for ever.
            Codec::Http2(http2) => http2.active() > 0 || http2.has_own_output(),
            _ => self.queued() > 0,
        }
    }

    /// True if no exchange is open.
    pub(crate) fn is_idle(&self) -> bool {
        self.streams.is_empty()
            && match &self.codec {
                Codec::Server1(http1) => http1.is_idle(),
                Codec::Client1(http1) => http1.is_idle(),
                Codec::Http2(http2) => http2.active() == 0,
                Codec::Tunnel(_) | Codec::Moving => false,
            }
    }

    /// Takes no further exchange and ends behind the open ones.
    pub(crate) fn drain(&mut self) {
        match &mut self.codec {
            Codec::Server1(http1) => http1.close_after_exchange(),
            Codec::Client1(http1) => http1.close_after_exchange(),
            Codec::Http2(http2) => http2.drain(),
            Codec::Tunnel(_) | Codec::Moving => {}
        }
    }

    /// True if nothing is left to read or to write.
    pub(crate) fn is_done(&self) -> bool {
        match &self.codec {
            Codec::Server1(http1) => http1.is_done(),
            Codec::Client1(http1) => http1.is_done() && http1.queued() == 0,
            Codec::Http2(http2) => http2.is_done(),
            Codec::Tunnel(tunnel) => {
                let heard = self.streams.get(self.open).is_none_or(|entry| entry.heard);
                heard && self.is_finished && tunnel.queued() == 0
            }
            Codec::Moving => true,
        }
    }

    /// Bytes that wait to be written.
    pub(crate) fn queued(&self) -> usize {
        match &self.codec {
            Codec::Server1(http1) => http1.queued(),
            Codec::Client1(http1) => http1.queued(),
            Codec::Tunnel(tunnel) => tunnel.queued(),
            Codec::Http2(http2) => http2.queued(),
            Codec::Moving => 0,
        }
    }

    /// Says that so many bytes of the output were written.
    pub(crate) fn advance(&mut self, bytes: usize) {
        match &mut self.codec {
            Codec::Server1(http1) => http1.advance(bytes),
            Codec::Client1(http1) => http1.advance(bytes),
            Codec::Tunnel(tunnel) => tunnel.advance(bytes),
            Codec::Http2(http2) => http2.advance(bytes),
            Codec::Moving => {}
        }
    }

    /// Gives memory back that holds nothing now. It is for connections that are idle or a tunnel, whose next bytes may be far.
    pub(crate) fn rest(&mut self) {
        self.streams.rest();
        match &mut self.codec {
            Codec::Server1(http1) => http1.rest(),
            Codec::Client1(http1) => http1.rest(),
            Codec::Http2(http2) => http2.rest(),
            Codec::Tunnel(tunnel) => tunnel.rest(),
            Codec::Moving => {}
        }
        if self.incoming.is_empty() {
            self.incoming = VecDeque::new();
        }
    }

    /// Copies input of HTTP/1 that waits for the end of an exchange, and is much less than the read buffer that it keeps alive.
    pub(crate) fn settle_input(&mut self) {
        if (1..LARGE).contains(&self.input.len()) {
            self.input = Bytes::copy_from_slice(&self.input);
        }
    }

    /// Gives memory back that many more exchanges took than are open now.
    pub(crate) fn shrink(&mut self) {
        self.streams.shrink();
        let waiting = self.incoming.len();
        if self.incoming.capacity() > KEPT.max(4 * waiting) {
            self.incoming.shrink_to(waiting);
        }
        if let Codec::Http2(http2) = &mut self.codec {
            http2.shrink();
        }
    }

    fn let_go(&mut self, key: Key) -> Remains {
        let has_blocks = |entry: &Entry| entry.block_turn == self.turn && entry.charge.is_some();
        if self.streams.get(key).is_some_and(has_blocks) {
            // They must be written, for they are part of the state of the compression. Their stream is not known any more at the end of the turn.
            self.charge_framed();
        }
        let Some(entry) = self.streams.get_mut(key) else {
            return ([None, None], None);
        };
        self.held -= entry.held + entry.handed_out + entry.head + entry.trailing;
        let mut leaves = None;
        match &mut self.codec {
            Codec::Http2(http2) => {
                if let Some(id) = entry.id {
                    let is_full = |charge: &Charge| charge.account().is_full();
                    let is_full = entry.charge.as_ref().is_some_and(is_full);
                    if is_full && !entry.is_tunnel && http2.queued_of(id) > 0 {
                        // Nobody waits for it any more, and the account has no room for what the endpoint may never take.
                        http2.reset(id, Code::CANCEL);
                    }
                    http2.release(id);
                    leaves = Some((id, http2.queued_of(id))).filter(|(_, queued)| *queued > 0);
                }
            }
            // The fault that ended the connection may have an answer, which is still to be written.
            _ if self.ended.is_some() => {}
            // The request of an answered exchange may be incomplete: the codec drops the rest or closes.
            Codec::Server1(_) => self.is_abandoned |= !entry.sent,
            // An endpoint that has answered reads the rest for nobody, and nobody pays for it any more.
            Codec::Client1(http1) => {
                self.is_abandoned |= !entry.sent || !entry.heard || http1.queued() > 0;
            }
            Codec::Tunnel(_) | Codec::Moving => self.is_abandoned |= !entry.sent,
        }
        let mut remains = self.streams.remove(key);
        if let Some((id, queued)) = leaves
            && let Some(mut charge) = remains.1.take()
        {
            charge.raise_left(queued);
            self.leaving.push(Leaving { id, charge });
        }
        remains
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;
    use crate::config::Protocol;
    use crate::inbox::BUFFER;

    #[test]
    fn input_that_waits_does_not_keep_its_read_buffer() {
        let codec = Codec::Server1(ServerConnection::new(lateen_h1::Config::default()));
        let shared = Shared::new(codec, Rc::new(Config::new(Protocol::Http1)));
        let core = &mut *shared.borrow();
        let mut buffer = BytesMut::from(&[b'x'; BUFFER][..]);
        core.input = buffer.split_to(10).freeze();
        buffer.clear();
        assert!(!buffer.try_reclaim(BUFFER));
        core.settle_input();
        assert!(buffer.try_reclaim(BUFFER));
        assert_eq!(core.input, [b'x'; 10][..]);
    }
}
