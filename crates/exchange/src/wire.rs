//! A turn of reads, which are handed to the codec, and of writes, which gather the frames of many exchanges.

use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite};

use crate::core::{Codec, Core, Shared};
use crate::error::ConnectionError;
use crate::receive::News;
use crate::room::Room;
use crate::shared::Driven as _;
use crate::transport::{Transport, Written};

/// Reads in one turn; then other connections have theirs.
const READS: usize = 16;

/// Writes in one turn.
const WRITES: usize = 16;

/// Bytes of HTTP/2 answers that the peer may leave unread before it is read no more.
const UNREAD: usize = 32 * 1024;

/// Reads up to a turn's share and hands it to the exchanges; `hear` gets the rest.
///
/// # Errors
/// The stream failed, or the peer broke a rule. An answer to that may wait to be written.
pub(crate) fn receive<IO: AsyncRead + Unpin>(
    transport: &mut Transport<IO>,
    cx: &mut Context<'_>,
    shared: &Shared,
    mut hear: impl FnMut(News),
) -> Result<(), ConnectionError> {
    if shared.borrow().has_input() {
        hand_out1(shared, &mut hear)?;
    }
    for _ in 0..READS {
        if transport.is_over() {
            return Ok(());
        }
        let read = match wants_read(shared, cx) {
            Wanted::Nothing => return Ok(()),
            Wanted::Bytes(most) => transport.poll_few(cx, most),
            Wanted::Buffer => transport.poll_read(cx),
        };
        let buffer = match read {
            Poll::Pending => return Ok(()),
            Poll::Ready(buffer) => buffer?,
        };
        if buffer.is_empty() {
            shared.stop_waiting();
            let came = shared.borrow().end_of_input()?;
            came.into_iter().for_each(|event| tell(event, &mut hear));
            return Ok(());
        }
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
pub(crate) fn discard<IO: AsyncRead + Unpin>(
    transport: &mut Transport<IO>,
    cx: &mut Context<'_>,
) -> Poll<()> {
    for _ in 0..READS {
        match transport.poll_read(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(buffer)) if !buffer.is_empty() => {}
            Poll::Ready(_) => return Poll::Ready(()),
        }
    }
    cx.waker().wake_by_ref();
    Poll::Pending
}

/// Bytes that a turn may read at once.
#[derive(Debug, Clone, Copy)]
enum Wanted {
    Nothing,
    /// At most so many.
    Bytes(usize),
    Buffer,
}

fn wants_read(shared: &Shared, cx: &Context<'_>) -> Wanted {
    let mut before = Vec::new();
    let wanted = wanted(&mut shared.borrow(), cx, &mut before);
    drop(before);
    wanted
}

fn wanted(core: &mut Core, cx: &Context<'_>, before: &mut Vec<Waker>) -> Wanted {
    if let Codec::Http2(http2) = &core.codec {
        core.is_paused = http2.unread() > UNREAD;
        return match core.is_paused {
            true => Wanted::Nothing,
            false => Wanted::Buffer,
        };
    }
    match core.poll_room(cx, before) {
        Room::None => {
            core.is_paused = true;
            match core.listens() {
                true => Wanted::Bytes(1),
                false => Wanted::Nothing,
            }
        }
        _ if !core.wants_read() => Wanted::Nothing,
        Room::Spare(most) => Wanted::Bytes(most),
        Room::Any => Wanted::Buffer,
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

/// Writes as much as the stream takes, and flushes once. An error waits in [`Transport::failure`]: the peer's last input may
/// say why.
pub(crate) fn send<IO: AsyncWrite + Unpin>(
    transport: &mut Transport<IO>,
    cx: &mut Context<'_>,
    shared: &Shared,
) {
    if transport.failure().is_some() {
        shared.borrow().advance(usize::MAX);
        return drop_request(shared);
    }
    {
        let core = &mut *shared.borrow();
        core.note_window();
        if !core.has_output() && !transport.is_dirty() && !core.has_news() {
            return core.driver().set_stuck(false);
        }
    }
    let mut has_written = false;
    for turn in 0.. {
        if turn == WRITES {
            cx.waker().wake_by_ref();
            break;
        }
        let core = &mut *shared.borrow();
        let written = write(transport, cx, core);
        core.driver().set_stuck(written == Written::Blocked);
        let Written::Bytes(bytes) = written else {
            break;
        };
        core.advance(bytes);
        has_written = true;
    }
    if transport.is_dirty() {
        // Where the flush must wait, the next turn tries again.
        let _ = transport.poll_flush(cx);
    }
    if transport.failure().is_some() {
        return drop_request(shared);
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

/// Drops the rest of a request that the stream does not take any more.
#[cold]
fn drop_request(shared: &Shared) {
    let has_room = shared.borrow().drop_request();
    if has_room {
        shared.announce_room();
    }
}

/// Writes the codec's output once.
fn write<IO: AsyncWrite + Unpin>(
    transport: &mut Transport<IO>,
    cx: &mut Context<'_>,
    core: &mut Core,
) -> Written {
    if !core.has_output() {
        return Written::Nothing;
    }
    match &mut core.codec {
        Codec::Server1(http1) => transport.poll_write(cx, http1.output()),
        Codec::Client1(http1) => transport.poll_write(cx, http1.output()),
        Codec::Tunnel(tunnel) => transport.poll_write(cx, tunnel.output()),
        Codec::Http2(http2) => transport.poll_write(cx, http2.output()),
        Codec::Moving => Written::Nothing,
    }
}
