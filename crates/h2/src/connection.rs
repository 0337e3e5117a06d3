//! A connection: its parts and its preface.

mod control;
mod ending;
mod headers;
#[cfg(test)]
mod many;
mod receive;
mod requests;
mod send;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::abuse::{Abuse, Meters};
use crate::code::Code;
use crate::config::{Config, FLOOR, SharedConfig};
use crate::error::{ConnectionError, StreamId};
use crate::flags;
use crate::frame::{self, HEAD, Head, PREFACE, kind, setting};
use crate::hpack::{Decoder, Encoder, Fields, Limits};
use crate::output::Output;
use crate::reader::Reader;
use crate::recv_flow::{Credit, RecvFlow};
use crate::stream::Stream;
use crate::streams::Streams;
use crate::timestamp::Timestamp;
use crate::turns::Turns;
use crate::waiting::Waiting;

/// Streams that a server is assumed to allow until its SETTINGS say so: the least that RFC 9113 §6.5.2 recommends.
const ASSUMED_STREAMS: u32 = 100;

/// The highest number of a stream, and the last stream of a GOAWAY that leaves none out (RFC 9113 §6.8).
const EVERY_STREAM: u32 = i32::MAX as u32;

/// What the peer's SETTINGS say.
#[derive(Debug)]
struct Peer {
    window: u32,
    max_frame: u32,
    max_streams: u32,
    max_header_list: u32,
    /// It takes extended CONNECT (RFC 8441 §3).
    extended_connect: bool,
    /// They have come.
    known: bool,
}

/// How far the end has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Closing {
    No,
    /// A GOAWAY that leaves no stream out was sent, and a PING behind it.
    Announced,
    /// That PING was answered, and a second one was sent.
    Heard,
    /// No stream beyond this one is taken any more, or opened by us.
    After(u32),
}

/// One HTTP/2 connection, as a client or a server.
#[derive(Debug)]
pub struct Connection {
    server: bool,
    config: Arc<Config>,
    reader: Reader,
    decoder: Decoder,
    /// The last header list that was decoded.
    fields: Fields,
    /// A header block of which more is to come, and its frames so far.
    block: Vec<u8>,
    pieces: u8,
    /// Entries of the SETTINGS frame that is under way.
    entries: u16,
    /// The data that passes is nobody's.
    ignoring: bool,
    encoder: Encoder,
    streams: Streams,
    /// Streams that are not over.
    active: u32,
    /// The highest stream that the peer opened, and the next that we open.
    highest: u32,
    next: u32,
    /// Streams that have something to send and a window for it, in turn.
    turns: Turns,
    /// Streams whose callers wait for room.
    waiting: Waiting,
    /// Bytes in all streams' queues.
    queued: usize,
    /// Bytes of the trailers that wait behind them.
    trailers_queued: usize,
    /// Most bytes that data may have in all queues, at most [`Config::send_total`].
    send_total: usize,
    /// What the peer lets us send on all streams.
    window: u32,
    /// How often it renewed that.
    credits: u32,
    peer: Peer,
    output: Output,
    recv_flow: RecvFlow,
    meters: Meters,
    /// Requests that a GOAWAY left out and that were not told yet. Boxed, since there seldom are any: a pointer is smaller than a queue.
    #[allow(clippy::box_collection)]
    unprocessed: Option<Box<VecDeque<u32>>>,
    closing: Closing,
    /// The peer sent a GOAWAY.
    peer_closing: bool,
    /// Numbered PINGs that are not answered.
    numbered: u32,
    settings_due: Option<Timestamp>,
    failed: Option<ConnectionError>,
}

// A node has a tunnel to every node that its pods talk to, and for each worker.
const _: () = assert!(size_of::<Connection>() <= 888);

impl Connection {
    /// The client's side. There is output at once.
    pub fn client(config: &SharedConfig, now: Timestamp) -> Self {
        Connection::new(config, false, now)
    }

    /// The server's side. There is output at once; a server need not wait for the client's first bytes.
    pub fn server(config: &SharedConfig, now: Timestamp) -> Self {
        Connection::new(config, true, now)
    }

    fn new(config: &SharedConfig, server: bool, now: Timestamp) -> Self {
        let config = Arc::clone(&config.0);
        let mut connection = Connection {
            server,
            reader: Reader::new(server, config.max_frame),
            decoder: Decoder::new(),
            fields: Fields::new(Limits {
                size: config.max_header_list,
                fields: config.max_fields,
            }),
            block: Vec::new(),
            pieces: 0,
            entries: 0,
            ignoring: false,
            encoder: Encoder::new(&config),
            streams: Streams::default(),
            active: 0,
            highest: 0,
            next: 1,
            turns: Turns::default(),
            waiting: Waiting::default(),
            queued: 0,
            trailers_queued: 0,
            send_total: config.send_total,
            window: FLOOR,
            credits: 0,
            peer: Peer {
                window: FLOOR,
                max_frame: 1 << 14,
                max_streams: ASSUMED_STREAMS,
                max_header_list: u32::MAX,
                extended_connect: false,
                known: false,
            },
            output: Output::default(),
            recv_flow: RecvFlow::new(&config),
            meters: Meters::new(&config.allowances, now),
            unprocessed: None,
            closing: Closing::No,
            peer_closing: false,
            numbered: 0,
            settings_due: Some(now.after(config.settings_timeout)),
            failed: None,
            config,
        };
        connection.begin();
        connection
    }

    /// Our first bytes (RFC 9113 §3.4).
    fn begin(&mut self) {
        if !self.server {
            self.output.small(PREFACE);
        }
        let config = &self.config;
        let mut payload = Vec::with_capacity(36);
        let mut say = |id: u16, value: u32| {
            payload.extend_from_slice(&id.to_be_bytes());
            payload.extend_from_slice(&value.to_be_bytes());
        };
        if self.server {
            say(setting::MAX_CONCURRENT_STREAMS, config.max_streams);
            if config.extended_connect {
                say(setting::ENABLE_CONNECT_PROTOCOL, 1);
            }
        } else {
            say(setting::ENABLE_PUSH, 0);
        }
        say(setting::INITIAL_WINDOW_SIZE, config.stream_first);
        say(setting::MAX_FRAME_SIZE, config.max_frame);
        say(setting::MAX_HEADER_LIST_SIZE, config.max_header_list);
        let head = Head {
            length: payload.len() as u32,
            kind: kind::SETTINGS,
            ..Head::default()
        };
        self.output.small(&head.bytes());
        self.output.small(&payload);
    }

    /// The fields of the last request, response or trailers. Read them before more is received: the buffer of a large list is given
    /// back when the input is used up.
    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// Hands over the fields of the last request, response or trailers without a copy. The next list gets a new buffer.
    pub fn take_fields(&mut self) -> Fields {
        let mut fields = Fields::default();
        self.swap_fields(&mut fields);
        fields
    }

    /// The same; the next list uses the buffer of the one that is given, whose fields are dropped.
    pub fn swap_fields(&mut self, fields: &mut Fields) {
        self.fields.swap(fields);
    }

    /// Streams that are not over.
    pub fn active(&self) -> usize {
        self.active as usize
    }

    /// Streams that a client may have open at once, by the peer's word and our own.
    pub fn limit(&self) -> usize {
        self.peer.max_streams.min(self.config.max_streams) as usize
    }

    /// Answers that the peer has not taken yet, in bytes: where they grow, read no more of it, or [`Config::unread_replies`]
    /// ends it.
    pub fn unread(&self) -> usize {
        self.output.replies()
    }

    /// True if a client may make requests, as far as their number allows.
    pub fn takes_requests(&self) -> bool {
        !self.server
            && self.closing == Closing::No
            && !self.peer_closing
            && self.failed.is_none()
            && self.next <= EVERY_STREAM
    }

    /// True if the peer takes extended CONNECT, as far as its SETTINGS have come (RFC 8441 §3).
    pub fn allows_extended_connect(&self) -> bool {
        self.peer.extended_connect
    }

    /// True once the peer's SETTINGS have come.
    pub fn is_acquainted(&self) -> bool {
        self.peer.known
    }

    /// The connection's windows for what comes.
    pub fn credit(&self) -> Credit {
        self.recv_flow.credit()
    }

    /// Bytes of a frame's payload that the peer has begun and still owes: it can say nothing else before.
    pub fn due(&self) -> u32 {
        self.reader.due()
    }

    /// The stream whose header block is under way: the peer can say nothing else before its end (RFC 9113 §4.3).
    pub fn block(&self) -> Option<StreamId> {
        self.reader.block()
    }

    /// Bytes of a header block that has not ended: at most twice [`Config::max_header_list`].
    #[inline]
    pub fn incomplete(&self) -> usize {
        self.block.len()
    }

    /// What the peer lets us send on all streams together.
    pub fn window(&self) -> u32 {
        self.window
    }

    /// Counts what renewed the peer's windows: while it moves, an honest peer takes what we send. It goes round.
    pub fn credits(&self) -> u32 {
        self.credits
    }

    /// Lends the peer so many bytes, credit and what is held together, and no more than [`Config::allowance`]. Credit that it
    /// has cannot be called back: it is not renewed when it is used.
    pub fn set_allowance(&mut self, bytes: u32) {
        self.recv_flow
            .set_allowance(bytes.min(self.config.allowance));
        self.grant();
    }

    /// Says what the allowance may become, no more than [`Config::allowance`]: streams' windows grow as far as all of them have
    /// room within it. What the peer has as credit it keeps.
    pub fn set_most(&mut self, bytes: u32) {
        self.recv_flow.set_most(bytes.min(self.config.allowance));
    }

    /// Lets the queues of all streams hold so many bytes, no more than [`Config::send_total`]. What they hold beyond is still sent.
    pub fn set_send_total(&mut self, bytes: usize) {
        let bytes = bytes.min(self.config.send_total);
        if std::mem::replace(&mut self.send_total, bytes) < bytes {
            self.waiting.change();
        }
    }

    /// Writes what a peer can make us write; one that does not read it is cut off.
    fn reply(&mut self, bytes: &[u8]) -> Result<(), ConnectionError> {
        self.output.reply(bytes);
        self.is_read()
    }

    /// Whether the peer reads what it gets for what it sends.
    fn is_read(&self) -> Result<(), ConnectionError> {
        match self.output.replies() <= self.config.unread_replies {
            true => Ok(()),
            false => Err(ConnectionError::abuse(Abuse::UnreadReplies)),
        }
    }

    /// Charges the peer for something that is allowed, but not too often.
    fn charge(&mut self, of: Abuse, now: Timestamp) -> Result<(), ConnectionError> {
        match self.meters.take(&self.config.allowances, of, now) {
            true => Ok(()),
            false => Err(ConnectionError::abuse(of)),
        }
    }

    /// Adds to the peer's allowance what our own doing or an honest request explains.
    #[inline]
    fn earn(&mut self, of: Abuse, more: u32) {
        self.meters.earn(&self.config.allowances, of, more);
    }

    /// Tells the peer what more it may send on the connection.
    #[inline]
    fn grant(&mut self) {
        if let Some(more) = self.recv_flow.grant() {
            self.output
                .reply(&frame::word(kind::WINDOW_UPDATE, 0, more));
        }
    }

    fn open(&mut self, id: u32, state: u16) {
        let window = self.peer.window as i32;
        let credit = self.config.stream_first;
        self.streams.insert(Stream::new(id, state, window, credit));
        self.recv_flow.opened();
        // Its two ends may be reset at once, each by its own side.
        self.earn(Abuse::UselessFrames, 1);
        // Some peers grant a few bytes with each request, before its answer says that it has no content.
        self.earn(Abuse::WindowUpdateFlood, 2);
        // Some peers end the content with a frame without data, and then the stream with trailers.
        self.earn(Abuse::EmptyData, 1);
        self.active += 1;
    }

    /// Ends one direction of a stream, or both.
    fn end(&mut self, id: u32, what: u16) {
        let Some(stream) = self.streams.get(id) else {
            return;
        };
        let was_over = stream.is_over();
        stream.set(what);
        if what & flags::HEARD != 0 {
            self.recv_flow.ended(stream);
        }
        let is_over = stream.is_over();
        if what & flags::SENT != 0 {
            self.queued -= std::mem::take(&mut stream.queued) as usize;
            self.trailers_queued -= stream.queue.trailers_size();
            stream.queue = Default::default();
            self.waiting.change();
            self.waiting.over(stream);
            self.turns.tidy(&mut self.streams);
            self.waiting.tidy(&mut self.streams);
        }
        if is_over && !was_over {
            self.active -= 1;
            if self.server && what & (flags::SENT | flags::HEARD) != flags::SENT | flags::HEARD {
                // Each direction came to its own end.
                self.earn(Abuse::RapidReset, self.config.earned_resets);
            }
        }
    }

    /// Resets a stream that is here and not over.
    fn reset_with(&mut self, id: u32, code: Code) {
        self.end(id, flags::SENT | flags::HEARD | flags::RESET);
        self.output
            .reply(&frame::word(kind::RST_STREAM, id, code.0));
    }

    /// Whether a stream that is not here was never opened.
    fn is_idle(&self, id: u32) -> bool {
        let odd = id % 2 == 1;
        !odd || if self.server {
            id > self.highest
        } else {
            id >= self.next
        }
    }
}

impl StreamId {
    /// The stream of this number, of which a caller knows that it is one.
    pub(crate) const fn of(id: u32) -> Self {
        StreamId(id)
    }
}

// A head fits into what the reader keeps.
const _: () = assert!(HEAD == 9);
