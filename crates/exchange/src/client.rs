//! The client's side of a connection: a handle makes requests, each with an exchange that yields its answer.

use std::future::{Future, poll_fn};
use std::ops::Deref;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use lateen_h1::ClientConnection;
use lateen_h2::Timestamp;
use lateen_http::{Asked, ConnectHead, FramedResponse, Length, RequestHead, Upgrade, WebSocketKey};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::account::{Account, Charge};
use crate::config::{Config, Protocol};
use crate::core::{Codec, Core, LEAST_SEND, Past, Shared};
use crate::driver::Driver;
use crate::error::{ConnectionError, Error};
use crate::outgoing::{Keyed, Outgoing};
use crate::send::Start;
use crate::server::is_tunnel;
use crate::stream::Stream;
use crate::tunnel::Tunnel;

/// Opens the client's side of a connection over a byte stream, whose protocol the configuration says.
/// [`Config::timeouts`] need a runtime of tokio.
pub fn open<IO: AsyncRead + AsyncWrite + Unpin>(
    io: IO,
    config: Config,
) -> (Handle, Connection<IO>) {
    let codec = match config.protocol {
        Protocol::Http1 => Codec::Client1(ClientConnection::new(config.http1)),
        Protocol::Http2 => {
            let mut http2 = lateen_h2::Connection::client(&config.http2, Timestamp::default());
            http2.note_frames();
            Codec::Http2(Box::new(http2))
        }
    };
    let config = Config {
        account: None,
        ..config
    };
    let driver = Driver::new(io, codec, Rc::new(config), false);
    let shared = driver.shared.clone();
    (Handle(Rc::new(Owner(shared))), Connection { driver })
}

/// The driver of a client's connection: a future that ends with the connection. Everything on it moves while it is polled.
#[derive(Debug)]
pub struct Connection<IO> {
    driver: Driver<IO>,
}

impl<IO> Connection<IO> {
    /// The byte stream below.
    pub fn io(&self) -> &IO {
        self.driver.io()
    }

    /// Does `work` with the exchanges of this connection in the task that polls it. They need not wake that task then: the second
    /// result is true if the connection is to be polled again before the task rests.
    pub fn attend<R>(&mut self, work: impl FnOnce() -> R) -> (R, bool) {
        self.driver.shared.attend(work)
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Future for Connection<IO> {
    type Output = Result<(), ConnectionError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.driver.turn(cx, |_, _| {});
        self.driver.poll_end(cx)
    }
}

/// Bytes of frames that one turn makes.
const TURN: usize = 64 * 1024;

/// Bytes of frames that may wait for the wire before no further request is made.
const UNSENT: usize = 4 * TURN;

/// The last handle drains the connection.
#[derive(Debug)]
struct Owner(Shared);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.act(Core::drain);
    }
}

/// The way to make requests; clones share it. When the last one is dropped, the connection ends behind the open exchanges.
#[derive(Debug, Clone)]
pub struct Handle(Rc<Owner>);

impl Handle {
    /// The time that a server of HTTP/1 keeps an idle connection for, if its last answer says so (`Keep-Alive: timeout=5`).
    pub fn keep_alive(&self) -> Option<Duration> {
        let seconds = self.0.0.borrow().keep_alive?;
        Some(Duration::from_secs(seconds.into()))
    }

    /// True if a request is taken now. HTTP/1 takes one at a time.
    ///
    /// HTTP/2 takes none while the peer leaves 256 KiB of frames unread. Heads of requests that were reset are among them.
    pub fn is_ready(&self) -> bool {
        let core = self.0.0.borrow();
        core.ended().is_none()
            && !core.is_abandoned
            && match &core.codec {
                Codec::Client1(http1) => http1.is_idle(),
                Codec::Http2(http2) => {
                    http2.takes_requests()
                        && http2.active() < http2.limit()
                        && http2.unsent() < UNSENT
                }
                _ => false,
            }
    }

    /// True once no request will be taken any more.
    pub fn is_closed(&self) -> bool {
        let core = self.0.0.borrow();
        core.ended().is_some()
            || match &core.codec {
                Codec::Client1(http1) => http1.is_done(),
                Codec::Http2(http2) => !http2.takes_requests(),
                _ => true,
            }
    }

    /// True if the peer allows no request at all by its SETTINGS, and none is open.
    pub fn is_barred(&self) -> bool {
        match &self.0.0.borrow().codec {
            Codec::Http2(http2) => http2.limit() == 0 && http2.active() == 0,
            _ => false,
        }
    }

    /// HTTP/2: true if frames wait to be written, and the connection has not ended.
    pub fn has_unsent(&self) -> bool {
        let core = self.0.0.borrow();
        let has_ended = core.ended().is_some() || core.is_abandoned;
        match &core.codec {
            Codec::Http2(http2) => !has_ended && http2.unsent() > 0,
            _ => false,
        }
    }

    /// HTTP/2: bytes of frames that the peer leaves unread, without the 64 KiB that one turn makes.
    pub fn unread(&self) -> usize {
        match &self.0.0.borrow().codec {
            Codec::Http2(http2) => http2.unsent().saturating_sub(TURN),
            _ => 0,
        }
    }

    /// HTTP/2: bytes of heads and trailers of this account, and of those within the same one, while the peer is known to read nothing.
    pub fn unread_blocks(&self, account: &Account) -> usize {
        let core = self.0.0.borrow();
        match core.is_unread() {
            true => core.unwritten.blocks_beside(account),
            false => 0,
        }
    }

    /// HTTP/2: true if a request of this account is to be made. The peer may leave its head unread, and the account may be full. So the
    /// account, with those that are within the same one, may have 4 KiB of heads and trailers that wait then, and an
    /// eighth of the limit of the account above on all connections.
    #[inline]
    pub fn has_room_for(&self, account: &Account) -> bool {
        !self.0.0.borrow().is_unread()
            || !account.is_full()
            || self.unread_blocks(account) <= LEAST_SEND && !account.has_many_blocks()
    }

    /// HTTP/2: true if the peer has let no content of any exchange through for a second. Content of a further request would wait with
    /// the others.
    pub fn is_stalled(&self) -> bool {
        self.0.0.borrow().window.withheld()
    }

    /// HTTP/2: the accounts whose exchanges hold the connection's window, one of those within the same account.
    ///
    /// They sent a quarter of the content for which the peer has given no window back, or 16 KiB of it, or as much as any other account.
    pub fn holders(&self) -> Vec<Account> {
        self.0.0.borrow().holders()
    }

    /// HTTP/2: true if the open exchanges began when none was open on a connection that had answered before, and the peer has said
    /// nothing about them. If the connection ends now, the peer has most likely closed it while they were on their way.
    pub fn was_at_rest(&self) -> bool {
        self.0.0.borrow().past == Past::AtRest
    }

    /// True if the peer takes extended CONNECT, as far as its SETTINGS have come (RFC 8441 §3).
    pub fn allows_extended_connect(&self) -> bool {
        match &self.0.0.borrow().codec {
            Codec::Http2(http2) => http2.allows_extended_connect(),
            _ => false,
        }
    }

    /// Takes no further requests and ends the connection behind the open ones.
    pub fn drain(&self) {
        self.0.0.act(Core::drain);
    }

    /// Sends the head of a request. Content follows as [`RequestHead::length`] says. `key` is for a WebSocket over HTTP/1
    /// whose client sent none.
    ///
    /// # Errors
    /// Nothing was sent. [`Error::NotTaken`] says that another connection may take the request, and [`Error::HeadTooLarge`] that
    /// another peer may.
    pub fn request(
        &self,
        head: &RequestHead,
        key: Option<&WebSocketKey>,
    ) -> Result<Exchange, Error> {
        if let Some(Upgrade::WebSocket { key: None }) = head.upgrade()
            && key.is_none()
            && !self.0.0.borrow().is_http2()
        {
            return Err(Error::WebSocketKey);
        }
        let start = Start {
            method: head.method().as_bytes(),
            target: head.path().target(),
            length: head.length(),
            asked: head.asked(),
        };
        self.open(start, &Keyed(head, key))
    }

    /// Asks for a tunnel to an authority (RFC 9110 §9.3.6).
    ///
    /// # Errors
    /// See [`Handle::request`].
    pub fn connect(&self, head: &ConnectHead) -> Result<Exchange, Error> {
        let start = Start {
            method: b"CONNECT",
            target: head.authority().as_bytes(),
            length: Length::None,
            asked: Asked::Connect,
        };
        self.open(start, &head)
    }

    #[inline]
    fn open(&self, start: Start<'_>, fields: &impl Outgoing) -> Result<Exchange, Error> {
        let shared = &self.0.0;
        let key = shared.act(|core| core.request(start, fields))?;
        let stream = Stream::new(shared.clone(), key);
        Ok(Exchange { stream })
    }
}

/// One request that waits for its answer.
///
/// Its [`Stream`] writes the request's content and reads the answer's.
#[derive(Debug)]
pub struct Exchange {
    stream: Stream,
}

impl Deref for Exchange {
    type Target = Stream;

    fn deref(&self) -> &Stream {
        &self.stream
    }
}

impl Exchange {
    /// Charges the account of the peer that asks for it with what the exchange holds from now on: content of the answer that waits for its
    /// reader, and content of the request that waits for the wire. Frames of the request count until they are written, also if the exchange
    /// is dropped before: over HTTP/2 they go to the wire all the same.
    ///
    /// Call it at once: frames that were made before may be charged to nobody.
    ///
    /// Beyond the limit an exchange of HTTP/2 fails with [`Error::OverLimit`], and one of HTTP/1 is read no more.
    pub fn charge(&self, account: &Account) {
        let mut core = self.shared.borrow();
        if let Some(entry) = core.streams.get_mut(self.stream.key) {
            entry.charge = Some(Charge::new(account.clone()));
        }
        core.charge_unread();
    }

    /// True if the whole request was written and the whole answer has come. What is dropped before is reset over HTTP/2.
    pub fn is_complete(&self) -> bool {
        self.stream.is_complete()
    }

    /// True if the whole answer has come.
    pub fn has_ended(&self) -> bool {
        let core = self.shared.borrow();
        let entry = core.streams.get(self.stream.key);
        entry.is_some_and(|entry| entry.heard)
    }

    /// The next head of the answer: informational ones (RFC 9110 §15.2) come before the final one, which is the last.
    ///
    /// # Errors
    /// The exchange failed.
    pub fn poll_answer(&self, cx: &mut Context<'_>) -> Poll<Result<FramedResponse, Error>> {
        let failure = {
            let core = &mut *self.shared.borrow();
            let head = core.streams.get_mut(self.stream.key).and_then(|entry| {
                let head = entry.informational.pop_front();
                head.or_else(|| entry.answer.take())
            });
            match head {
                Some(head) => return Poll::Ready(Ok(head)),
                None => core.failure(self.stream.key),
            }
        };
        match failure {
            Some(error) => Poll::Ready(Err(error)),
            None => {
                self.shared
                    .wait(self.stream.key, cx, |entry| &mut entry.reader);
                Poll::Pending
            }
        }
    }

    /// The next head of the answer; see [`Exchange::poll_answer`].
    ///
    /// # Errors
    /// The exchange failed.
    pub async fn answer(&self) -> Result<FramedResponse, Error> {
        poll_fn(|cx| self.poll_answer(cx)).await
    }

    /// The tunnel behind an answer that accepted an upgrade or CONNECT. Otherwise the exchange itself.
    pub fn into_tunnel(self) -> Result<Tunnel, Exchange> {
        match is_tunnel(&self.shared, self.stream.key) {
            true => Ok(Tunnel::new(self.stream)),
            false => Err(self),
        }
    }
}
