//! The byte stream below a connection: reads are handed to the codec, writes gather the frames of many exchanges.

use std::cell::RefCell;
use std::future::Future as _;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::{BufMut as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};

use crate::core::{Codec, Core, Shared};
use crate::error::ConnectionError;
use crate::inbox::BUFFER;
use crate::receive::News;

/// Reads in one turn; then other connections have theirs.
const READS: usize = 16;

/// Writes in one turn.
const WRITES: usize = 16;

/// Less room than this, in bytes, is not worth a read.
const LEAST: usize = 16 * 1024;

/// Pieces of one write: a head and its payload are two.
const PIECES: usize = 64;

/// Fewer pieces than this need no large array.
const FEW: usize = 4;

/// Bytes of HTTP/2 answers that the peer may leave unread before it is read no more.
const UNREAD: usize = 32 * 1024;

thread_local! {
    /// Shared by the connections of a thread, so that an idle one holds no buffer.
    static SCRATCH: RefCell<BytesMut> = RefCell::new(BytesMut::new());
}

#[derive(Debug)]
pub(crate) struct Wire<IO> {
    io: IO,
    /// Bytes that came.
    received: u64,
    /// A flush is owed.
    dirty: bool,
    /// The peer sends no more.
    over: bool,
    /// Our direction is shut down.
    shut: bool,
    /// The reason why nothing can be written any more.
    unwritten: Option<io::Error>,
}

impl<IO> Wire<IO> {
    pub(crate) fn new(io: IO) -> Self {
        Wire {
            io,
            received: 0,
            dirty: false,
            over: false,
            shut: false,
            unwritten: None,
        }
    }

    /// Bytes that came so far.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// True once the peer has ended its direction.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    /// True while written bytes have not left.
    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty && self.unwritten.is_none()
    }

    /// True once our direction is shut down.
    pub(crate) fn is_shut(&self) -> bool {
        self.shut
    }

    /// The reason why nothing can be written any more. It is given out once.
    pub(crate) fn failure(&mut self) -> Option<io::Error> {
        self.unwritten.take()
    }

    /// True if nothing can be written any more.
    pub(crate) fn is_broken(&self) -> bool {
        self.unwritten.is_some()
    }
}

impl<IO: AsyncRead + Unpin> Wire<IO> {
    /// Reads up to a turn's share and hands it to the exchanges; `hear` gets the rest.
    ///
    /// # Errors
    /// The stream failed, or the peer broke a rule. An answer to that may wait to be written.
    pub(crate) fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        shared: &Shared,
        mut hear: impl FnMut(News),
    ) -> Result<(), ConnectionError> {
        hand_out1(shared, &mut hear)?;
        for _ in 0..READS {
            if self.over || !wants_read(&mut shared.borrow()) {
                return Ok(());
            }
            let buffer = match self.poll_read(cx) {
                Poll::Pending => return Ok(()),
                Poll::Ready(buffer) => buffer?,
            };
            if buffer.is_empty() {
                self.over = true;
                let came = shared.borrow().end_of_input()?;
                came.into_iter().for_each(|event| tell(event, &mut hear));
                return Ok(());
            }
            self.received += buffer.len() as u64;
            let is_http2 = shared.borrow().is_http2();
            if !is_http2 {
                shared.borrow().fill(buffer);
                hand_out1(shared, &mut hear)?;
                continue;
            }
            let mut input = &buffer[..];
            let now = shared.borrow().now();
            loop {
                let came = shared.borrow().next2(&buffer, &mut input, now)?;
                let Some(event) = came else { break };
                tell(event, &mut hear);
            }
        }
        // There may be more.
        cx.waker().wake_by_ref();
        Ok(())
    }

    /// Reads and drops what comes, so that the peer can read our last bytes before a reset. Ready at the end.
    pub(crate) fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        for _ in 0..READS {
            match self.poll_read(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(buffer)) if !buffer.is_empty() => {}
                Poll::Ready(_) => return Poll::Ready(()),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// The next bytes; none at the end.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        SCRATCH.with(|scratch| match scratch.try_borrow_mut() {
            Ok(mut scratch) => self.read_into(cx, &mut scratch),
            // `io` is a tunnel of another connection, whose driver reads now.
            Err(_) => self.read_into(cx, &mut BytesMut::new()),
        })
    }

    #[inline]
    fn read_into(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut BytesMut,
    ) -> Poll<io::Result<Bytes>> {
        if scratch.capacity() - scratch.len() < LEAST {
            scratch.reserve(BUFFER);
        }
        let room = scratch.capacity() - scratch.len();
        let read = pin!(self.io.read_buf(&mut (&mut *scratch).limit(room))).poll(cx);
        read.map_ok(|length| match length {
            0 => Bytes::new(),
            _ => scratch.split().freeze(),
        })
    }
}

fn wants_read(core: &mut Core) -> bool {
    match &core.codec {
        Codec::Http2(http2) => {
            core.is_paused = http2.unread() > UNREAD;
            !core.is_paused
        }
        _ => core.wants_read(),
    }
}

/// Hands out the events of HTTP/1 input at hand.
fn hand_out1(shared: &Shared, hear: &mut impl FnMut(News)) -> Result<(), ConnectionError> {
    loop {
        let came = shared.borrow().next1()?;
        let Some(event) = came else { return Ok(()) };
        tell(event, hear);
    }
}

fn tell((news, wakes): (News, [Option<Waker>; 2]), hear: &mut impl FnMut(News)) {
    let [reader, writer] = wakes;
    if let Some(reader) = reader {
        reader.wake();
    }
    if let Some(writer) = writer {
        writer.wake();
    }
    if !matches!(news, News::None) {
        hear(news);
    }
}

impl<IO: AsyncWrite + Unpin> Wire<IO> {
    /// Writes as much as the stream takes, and flushes once. An error waits in [`Wire::failure`]: the peer's last input may
    /// say why.
    pub(crate) fn poll_send(&mut self, cx: &mut Context<'_>, shared: &Shared) {
        if self.unwritten.is_some() {
            return shared.borrow().advance(usize::MAX);
        }
        let mut has_written = false;
        for turn in 0.. {
            if turn == WRITES {
                cx.waker().wake_by_ref();
                break;
            }
            let result = {
                let core = &mut *shared.borrow();
                let written = write(&mut self.io, cx, core);
                core.set_stuck(matches!(written, Some(Poll::Pending)));
                if let Some(Poll::Ready(Ok(bytes))) = written {
                    core.advance(bytes);
                }
                written
            };
            match result {
                None | Some(Poll::Pending) => break,
                Some(Poll::Ready(Ok(0))) => {
                    self.unwritten = Some(io::ErrorKind::WriteZero.into());
                    break;
                }
                Some(Poll::Ready(Ok(_))) => (self.dirty, has_written) = (true, true),
                Some(Poll::Ready(Err(error))) => {
                    self.unwritten = Some(error);
                    break;
                }
            }
        }
        if self.is_dirty() {
            match Pin::new(&mut self.io).poll_flush(cx) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => self.dirty = false,
                Poll::Ready(Err(error)) => self.unwritten = Some(error),
            }
        }
        let (is_http2, reads_again) = match &*shared.borrow() {
            Core {
                codec: Codec::Http2(http2),
                is_paused,
                ..
            } => (true, *is_paused && http2.unread() <= UNREAD),
            _ => (false, false),
        };
        // HTTP/1 gets room by writing alone.
        let has_more = (is_http2 || has_written) && shared.announce_room();
        if has_more || reads_again {
            cx.waker().wake_by_ref();
        }
    }

    /// Shuts our direction down.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.shut {
            // A failure changes nothing: the connection is over either way.
            let _ = std::task::ready!(Pin::new(&mut self.io).poll_shutdown(cx));
            self.shut = true;
        }
        Poll::Ready(())
    }
}

/// Writes the codec's output once; none if there is no output.
fn write<IO: AsyncWrite + Unpin>(
    io: &mut IO,
    cx: &mut Context<'_>,
    core: &mut Core,
) -> Option<Poll<io::Result<usize>>> {
    if !core.has_output() {
        return None;
    }
    match &mut core.codec {
        Codec::Server1(http1) => write_pieces(io, cx, http1.output()),
        Codec::Client1(http1) => write_pieces(io, cx, http1.output()),
        Codec::Tunnel(tunnel) => write_pieces(io, cx, tunnel.output()),
        Codec::Http2(http2) => write_pieces(io, cx, http2.output()),
        Codec::Moving => None,
    }
}

#[inline]
fn write_pieces<'a, IO: AsyncWrite + Unpin>(
    io: &mut IO,
    cx: &mut Context<'_>,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> Option<Poll<io::Result<usize>>> {
    let mut pieces = pieces.map(IoSlice::new);
    let mut few = [IoSlice::new(&[]); FEW];
    let mut count = 0;
    for (slice, piece) in few.iter_mut().zip(&mut pieces) {
        *slice = piece;
        count += 1;
    }
    if count == 0 {
        return None;
    }
    if count == FEW {
        let mut many = [IoSlice::new(&[]); PIECES];
        for (slice, piece) in many.iter_mut().zip(few.into_iter().chain(pieces)) {
            *slice = piece;
            count += 1;
        }
        return Some(Pin::new(io).poll_write_vectored(cx, &many[..count - FEW]));
    }
    Some(Pin::new(io).poll_write_vectored(cx, &few[..count]))
}
