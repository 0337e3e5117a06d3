//! Tests of the frames that leave in one write.

use std::pin::Pin;

use super::*;
use crate::driver::begin;
use crate::settings::Settings;

/// Takes all that is written to it, and lets it leave if it is `open`, and else a part of it with each flush.
#[derive(Debug, Default)]
struct Sink {
    open: bool,
    taken: usize,
    part: usize,
    sent: u64,
    left: Vec<usize>,
}

impl AsyncWrite for Sink {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let taken = bytes.len().min(32 * 1024);
        self.taken += taken;
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.open {
            let part = self.part.min(self.taken);
            self.taken -= part;
            self.sent += part as u64;
            return Poll::Pending;
        }
        let taken = std::mem::take(&mut self.taken);
        self.left.push(taken);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A tunnel with so many bytes to send, or a little more, over a stream that is `open`.
fn tunnel(bytes: usize, open: bool) -> (Shared, Wire<Sink>) {
    let (shared, _) = begin(&Settings::client(), u32::MAX, lateen_h2::Connection::client);
    while shared.borrow().http2.queued() < bytes {
        shared.borrow().ping();
    }
    let sink = Sink {
        open,
        ..Sink::default()
    };
    (shared, Wire::new(sink))
}

/// One turn; what is waiting after it, for the budget.
fn send(wire: &mut Wire<Sink>, shared: &Shared) -> usize {
    let mut cx = Context::from_waker(Waker::noop());
    wire.poll_send(&mut cx, shared);
    let core = shared.borrow();
    core.send_buffer.queued()
}

#[tokio::test]
async fn more_leaves_together_where_the_stream_takes_it_at_once() {
    let (shared, mut wire) = tunnel(800_000, true);
    while send(&mut wire, &shared) > 0 {}
    let [first, rest @ .., last] = &wire.transport.io().left[..] else {
        panic!("{:?}", wire.transport.io().left);
    };
    assert_eq!(*first, GATHERED);
    assert!(rest.contains(&GATHERED_MOST));
    assert!(*last < GATHERED_MOST);
}

#[tokio::test]
async fn what_the_stream_does_not_let_leave_waits_here_and_counts() {
    let (shared, mut wire) = tunnel(800_000, false);
    let all = shared.borrow().http2.queued();
    for _ in 0..3 {
        assert_eq!(send(&mut wire, &shared), all);
        assert_eq!(wire.transport.io().taken, GATHERED);
    }
    // What left late gives no reason to write more of it the next time.
    wire.transport.io_mut().open = true;
    while send(&mut wire, &shared) > 0 {}
    assert_eq!(wire.transport.io().left[..2], [GATHERED; 2]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_from_which_a_little_leaves_is_not_stuck() {
    let (shared, mut wire) = tunnel(800_000, false);
    wire.ask(Below {
        sent: |sink| sink.sent,
        wake_at: None,
    });
    wire.transport.io_mut().part = 1024;
    let pause = Duration::from_secs(10);
    for _ in 0..20 {
        send(&mut wire, &shared);
        assert_eq!(wire.stuck_for(), Duration::ZERO);
        tokio::time::advance(pause).await;
    }
    assert!(
        wire.transport.io().taken > 0,
        "all has left: nothing is tested"
    );
    wire.transport.io_mut().part = 0;
    send(&mut wire, &shared);
    tokio::time::advance(pause).await;
    send(&mut wire, &shared);
    assert_eq!(wire.stuck_for(), 2 * pause);
}

/// Gives what it has, and then nothing; remembers how many bytes are worth a wake-up.
#[derive(Debug, Default)]
struct Source {
    bytes: Vec<u8>,
    told: Cell<usize>,
}

impl AsyncRead for Source {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut tokio::io::ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let n = self.bytes.len().min(buf.remaining());
        buf.put_slice(&self.bytes[..n]);
        self.bytes.drain(..n);
        match n {
            0 => Poll::Pending,
            _ => Poll::Ready(Ok(())),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn within_a_frame_a_reader_waits_for_most_of_it_unless_an_answer_is_due() {
    let (shared, _) = begin(&Settings::server(), 100, lateen_h2::Connection::server);
    let mut wire = Wire::new(Source::default());
    wire.ask(Below {
        sent: |_| 0,
        wake_at: Some(|source, bytes| source.told.set(bytes)),
    });
    let turn = |wire: &mut Wire<Source>, bytes: &[u8]| {
        wire.transport.io_mut().bytes.extend_from_slice(bytes);
        let mut cx = Context::from_waker(Waker::noop());
        wire.poll_receive(&mut cx, &shared, |_| {}).unwrap();
        assert!(wire.transport.io().bytes.is_empty(), "not all was read");
        wire.transport.io().told.get()
    };
    let mut begun = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    begun.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
    // A frame of a kind that nobody knows, of 200,000 bytes.
    begun.extend([0x03, 0x0d, 0x40, 0xfe, 0, 0, 0, 0, 0]);
    begun.extend([0; 100_000]);
    assert_eq!(turn(&mut wire, &begun), 64 * 1024);
    assert_eq!(turn(&mut wire, &[0; 60_000]), 40_000 - 16 * 1024);
    shared.borrow().ping();
    assert_eq!(turn(&mut wire, &[]), 1);
}
