//! Content of an exchange in both directions, with back-pressure, and its trailers.

use std::future::poll_fn;
use std::task::{Context, Poll};

use bytes::Bytes;
use lateen_h2::Code;
use lateen_http::Trailers;

use crate::account::{Charge, Freed};
use crate::core::{Codec, Shared};
use crate::entry::Key;
use crate::error::Error;
use crate::lines;

/// The content of one exchange: the peer's message is read from it, and ours is written to it. Each direction may have one
/// waiting task.
///
/// Dropped before both messages are complete, it resets the exchange; HTTP/1 loses its connection with it.
#[derive(Debug)]
pub struct Stream {
    pub(crate) shared: Shared,
    pub(crate) key: Key,
}

impl Stream {
    pub(crate) fn new(shared: Shared, key: Key) -> Self {
        Stream { shared, key }
    }

    /// The next bytes of the peer's content; none at its end. Bytes that were taken give the peer its credit back. An account is
    /// charged with them until the next call, which says that they have been passed on.
    ///
    /// The first call sends status 100 to a client that waits for it (RFC 9110 §10.1.1).
    pub fn poll_data(&self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Error>> {
        enum Came {
            Data(Bytes),
            End,
            Failed(Error),
            Nothing { expects: bool },
        }
        let (came, wakes, freed) = {
            let core = &mut *self.shared.borrow();
            let is_paused = core.is_paused;
            let (came, wakes, passed_on) = match core.streams.get_mut(self.key) {
                None => {
                    let error = core.failure(self.key).unwrap_or(Error::Over);
                    (Came::Failed(error), false, 0)
                }
                Some(entry) => {
                    let passed_on = std::mem::take(&mut entry.handed_out);
                    match entry.inbox.pop() {
                        Some(bytes) => {
                            entry.held -= bytes.len();
                            entry.handed_out = bytes.len();
                            core.taken = core.taken.wrapping_add(bytes.len() as u64);
                            let mut wakes = is_paused;
                            let window = entry.charge.as_ref().map_or(u32::MAX, Charge::window);
                            if let (Codec::Http2(http2), Some(id)) = (&mut core.codec, entry.id) {
                                http2.consumed_within(id, bytes.len(), window);
                                wakes = http2.has_framed();
                            }
                            (Came::Data(bytes), wakes, passed_on)
                        }
                        None if entry.heard => (Came::End, false, passed_on),
                        None => {
                            let expects = entry.expects;
                            let came = match core.failure(self.key) {
                                Some(error) => Came::Failed(error),
                                None => Came::Nothing { expects },
                            };
                            (came, false, passed_on)
                        }
                    }
                }
            };
            match passed_on {
                0 => (came, wakes, None),
                _ => {
                    core.held -= passed_on;
                    // A connection that waits for room may have it now, though it is too little to wake all that wait.
                    let wakes = wakes || core.is_starved;
                    (came, wakes, core.settle(self.key))
                }
            }
        };
        freed.into_iter().for_each(Freed::tell);
        if wakes {
            self.shared.wake();
        }
        match came {
            Came::Data(bytes) => Poll::Ready(Ok(Some(bytes))),
            Came::End => Poll::Ready(Ok(None)),
            Came::Failed(error) => Poll::Ready(Err(error)),
            Came::Nothing { expects } => {
                if expects {
                    let told = lines::with(|lines| {
                        self.shared.act(|core| core.inform(self.key, 100, lines))
                    });
                    if let Err(error) = told {
                        return Poll::Ready(Err(error));
                    }
                }
                self.shared.wait(self.key, cx, |entry| &mut entry.reader);
                Poll::Pending
            }
        }
    }

    /// The next bytes of the peer's content; none at its end.
    pub async fn data(&self) -> Result<Option<Bytes>, Error> {
        poll_fn(|cx| self.poll_data(cx)).await
    }

    /// Ready once the peer's whole message has come, whether it was read or not. The waiting task takes the place of one that waits
    /// for content.
    pub fn poll_received(&self, cx: &mut Context<'_>) -> Poll<()> {
        let has_ended = {
            let core = self.shared.borrow();
            let entry = core.streams.get(self.key);
            entry.is_some_and(|entry| entry.heard)
        };
        match has_ended {
            true => Poll::Ready(()),
            false => {
                self.shared.wait(self.key, cx, |entry| &mut entry.reader);
                Poll::Pending
            }
        }
    }

    /// The peer's trailers, once its content has ended. They are given out once.
    pub fn trailers(&self) -> Option<Trailers> {
        let (trailers, freed, wakes) = {
            let core = &mut *self.shared.borrow();
            let entry = core.streams.get_mut(self.key)?;
            let trailers = entry.trailers.take()?;
            core.held -= std::mem::take(&mut entry.trailing);
            (trailers, core.settle(self.key), core.is_paused)
        };
        freed.into_iter().for_each(Freed::tell);
        if wakes {
            self.shared.wake();
        }
        Some(*trailers)
    }

    /// Sends from the front of `bytes` as there is room: ready when nothing is left. HTTP/2 has room within the peer's windows,
    /// HTTP/1 within [`Config::send_buffer`](crate::Config::send_buffer).
    ///
    /// # Errors
    /// The exchange is over in this direction, or `bytes` exceed the announced length.
    pub fn poll_send(&self, cx: &mut Context<'_>, bytes: &mut Bytes) -> Poll<Result<(), Error>> {
        while !bytes.is_empty() {
            match self.shared.act(|core| core.send(self.key, bytes)) {
                Ok(true) => {}
                Ok(false) => {
                    self.shared.wait(self.key, cx, |entry| &mut entry.writer);
                    return Poll::Pending;
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// See [`Tunnel::poll_sent`](crate::Tunnel::poll_sent).
    pub(crate) fn poll_sent(&self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let sent = {
            let core = self.shared.borrow();
            match core.is_http2() || core.is_shut {
                true => Some(Ok(())),
                false => core.failure(self.key).map(Err),
            }
        };
        match sent {
            Some(sent) => Poll::Ready(sent),
            None => {
                self.shared.wait(self.key, cx, |entry| &mut entry.writer);
                Poll::Pending
            }
        }
    }

    /// Sends a copy of the front of `bytes`, as much as there is room for, and gives its length.
    pub(crate) fn poll_copy(
        &self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, Error>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let room = self.shared.borrow().room(self.key).min(bytes.len());
        // Without room one byte asks to be told of it.
        let mut piece = Bytes::copy_from_slice(&bytes[..room.max(1)]);
        match self.shared.act(|core| core.send(self.key, &mut piece)) {
            Ok(true) => Poll::Ready(Ok(room.max(1) - piece.len())),
            Ok(false) => {
                self.shared.wait(self.key, cx, |entry| &mut entry.writer);
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Sends `bytes` as there is room.
    ///
    /// # Errors
    /// See [`Stream::poll_send`].
    pub async fn send(&self, mut bytes: Bytes) -> Result<(), Error> {
        poll_fn(|cx| self.poll_send(cx, &mut bytes)).await
    }

    /// Completes our message. A second call changes nothing.
    ///
    /// # Errors
    /// The exchange is over, our head was not written, or content is shorter than announced.
    pub fn finish(&self) -> Result<(), Error> {
        self.shared.act(|core| core.finish(self.key, None))
    }

    /// Completes our message with trailers. They are dropped where the message has no place for them: HTTP/1 has one behind
    /// chunked content alone (RFC 9112 §7.1.2).
    ///
    /// # Errors
    /// See [`Stream::finish`]. [`Error::OverLimit`]: a server's trailers have no room in the client's account.
    pub fn finish_with(&self, trailers: &Trailers) -> Result<(), Error> {
        lines::with(|lines| {
            lines.lower(trailers.fields());
            self.shared.act(|core| core.finish(self.key, Some(lines)))
        })
    }

    /// Gives the exchange up with an error code. HTTP/1 has no codes and loses its connection.
    pub fn reset(&self, code: Code) {
        self.shared.act(|core| core.reset(self.key, code));
        self.shared.wake();
    }

    /// True if both messages, or directions, are complete.
    pub(crate) fn is_complete(&self) -> bool {
        let core = self.shared.borrow();
        let entry = core.streams.get(self.key);
        entry.is_some_and(|entry| entry.sent && entry.heard)
    }

    /// Bytes that came and were not read yet.
    pub fn held(&self) -> usize {
        let core = self.shared.borrow();
        core.streams.get(self.key).map_or(0, |entry| entry.held)
    }

    /// Ready when the peer has given the exchange up, or the connection has ended.
    pub fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<Error> {
        let gone = self.shared.borrow().failure(self.key);
        match gone {
            Some(error) => Poll::Ready(error),
            None => {
                self.shared.wait(self.key, cx, |entry| &mut entry.writer);
                Poll::Pending
            }
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.let_go(self.key);
    }
}
