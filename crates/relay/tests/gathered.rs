//! What a stream has at hand in pieces: it leaves in few writes, whole and in order, and no more is kept for a slow reader.

mod support;

use std::io::ErrorKind;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use lateen_relay::{Counters, Duplex, Outcome, run};
use support::noise;

/// A tunnel's stream: it has some pieces at hand at a time, and ends or breaks behind the last one.
struct Bursts {
    bursts: std::collections::VecDeque<Vec<bytes::Bytes>>,
    at_hand: std::collections::VecDeque<bytes::Bytes>,
    breaks: bool,
    /// Bytes that were handed out, those that the peer got credit for, and what the application has.
    read: usize,
    credited: usize,
    /// The peer waits for its credit.
    waits: Option<std::task::Waker>,
    taken: Rc<std::cell::RefCell<Vec<u8>>>,
}

impl Bursts {
    fn give_credit(&mut self) {
        let taken = self.taken.borrow().len();
        assert!(self.read <= taken, "credit for what is not written");
        self.credited = self.read;
        if let Some(peer) = self.waits.take() {
            peer.wake();
        }
    }

    fn next<T>(
        &mut self,
        cx: &mut Context<'_>,
        take: impl FnOnce(&mut Context<'_>, lateen_relay::Chunk<'_>) -> T,
    ) -> Poll<std::io::Result<T>> {
        if let Some(piece) = self.at_hand.pop_front() {
            self.read += piece.len();
            return Poll::Ready(Ok(take(cx, lateen_relay::Chunk::Owned(piece))));
        }
        if self.credited < self.read {
            self.waits = Some(cx.waker().clone());
            return Poll::Pending;
        }
        match self.bursts.pop_front() {
            Some(burst) => {
                self.at_hand.extend(burst);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            None if self.breaks => Poll::Ready(Err(ErrorKind::ConnectionReset.into())),
            None => Poll::Ready(Ok(take(cx, lateen_relay::Chunk::End))),
        }
    }
}

/// An application that takes so many bytes of each write; none means that it wants to be asked again.
struct Takes {
    taken: Rc<std::cell::RefCell<Vec<u8>>>,
    writes: Rc<std::cell::Cell<usize>>,
    room: std::vec::IntoIter<usize>,
    ended: Rc<std::cell::Cell<bool>>,
}

impl Takes {
    fn take(&mut self, cx: &Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        assert!(!self.ended.get(), "bytes behind the end");
        let room = self.room.next().unwrap_or(usize::MAX).min(bytes.len());
        if room == 0 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.writes.set(self.writes.get() + 1);
        self.taken.borrow_mut().extend_from_slice(&bytes[..room]);
        Poll::Ready(Ok(room))
    }
}

macro_rules! inert {
    ($queues:expr) => {
        const QUEUES: bool = $queues;
        const GRACE: Duration = Duration::from_secs(5);

        fn hold(&mut self, _: &mut Context<'_>) -> Poll<std::io::Error> {
            Poll::Pending
        }

        fn poll_gone(&mut self, _: &mut Context<'_>) -> Poll<std::io::Error> {
            Poll::Pending
        }

        fn abort(&mut self) {}
    };
}

impl Duplex for Bursts {
    inert!(true);

    fn poll_read<T>(
        &mut self,
        cx: &mut Context<'_>,
        _: &mut lateen_relay::ReadSize,
        _: bool,
        take: impl FnOnce(&mut Context<'_>, lateen_relay::Chunk<'_>) -> T,
    ) -> Poll<std::io::Result<T>> {
        self.give_credit();
        self.next(cx, take)
    }

    fn poll_read_more<T>(
        &mut self,
        cx: &mut Context<'_>,
        _: &mut lateen_relay::ReadSize,
        take: impl FnOnce(&mut Context<'_>, lateen_relay::Chunk<'_>) -> T,
    ) -> Poll<std::io::Result<T>> {
        self.next(cx, take)
    }

    fn used(&mut self, _: &mut Context<'_>) {
        self.give_credit();
    }

    fn poll_write(
        &mut self,
        _: &mut Context<'_>,
        _: &mut bytes::Bytes,
    ) -> Poll<std::io::Result<()>> {
        unreachable!("the application says nothing")
    }

    fn poll_write_borrowed(
        &mut self,
        _: &mut Context<'_>,
        _: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        unreachable!("the application says nothing")
    }

    fn poll_finish(&mut self, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Duplex for Takes {
    inert!(false);

    fn poll_read<T>(
        &mut self,
        cx: &mut Context<'_>,
        _: &mut lateen_relay::ReadSize,
        _: bool,
        take: impl FnOnce(&mut Context<'_>, lateen_relay::Chunk<'_>) -> T,
    ) -> Poll<std::io::Result<T>> {
        // It says nothing, and leaves when it has heard all.
        match self.ended.get() {
            true => Poll::Ready(Ok(take(cx, lateen_relay::Chunk::End))),
            false => Poll::Pending,
        }
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &mut bytes::Bytes,
    ) -> Poll<std::io::Result<()>> {
        while !bytes.is_empty() {
            let taken = std::task::ready!(self.take(cx, bytes))?;
            drop(bytes.split_to(taken));
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write_borrowed(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.take(cx, bytes)
    }

    fn poll_write_gathered(
        &mut self,
        cx: &mut Context<'_>,
        pieces: &[bytes::Bytes],
    ) -> Poll<std::io::Result<usize>> {
        assert!(pieces.len() > 1, "one piece was written as a list");
        self.take(cx, &pieces.concat())
    }

    fn poll_finish(&mut self, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.ended.set(true);
        Poll::Ready(Ok(()))
    }
}

/// What an application got of such a stream: its bytes, in how many writes, whether it was told of the end, and the outcome.
fn relay_bursts(
    bursts: &[Vec<usize>],
    room: Vec<usize>,
    breaks: bool,
) -> (Vec<u8>, Vec<u8>, usize, bool, Outcome) {
    let mut said = Vec::new();
    let pieces = |burst: &Vec<usize>| {
        let piece = |length: &usize| {
            let piece = noise(*length, said.len() as u32);
            said.extend_from_slice(&piece);
            bytes::Bytes::from(piece)
        };
        burst.iter().map(piece).collect()
    };
    let bursts = bursts.iter().map(pieces).collect();
    let (taken, writes, ended) = <(
        Rc<std::cell::RefCell<Vec<u8>>>,
        Rc<std::cell::Cell<usize>>,
        Rc<std::cell::Cell<bool>>,
    )>::default();
    let from = Bursts {
        bursts,
        at_hand: Default::default(),
        breaks,
        read: 0,
        credited: 0,
        waits: None,
        taken: Rc::clone(&taken),
    };
    let to = Takes {
        taken: Rc::clone(&taken),
        writes: Rc::clone(&writes),
        room: room.into_iter(),
        ended: Rc::clone(&ended),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let counters = Rc::new(Counters::default());
    let relay = run(from, to, Rc::clone(&counters));
    let relay = async { tokio::time::timeout(Duration::from_secs(60), relay).await };
    let outcome = runtime.block_on(relay).expect("no credit comes");
    assert_eq!(counters.sent(), outcome.sent);
    let taken = taken.take();
    (said, taken, writes.get(), ended.get(), outcome)
}

#[test]
fn what_a_stream_has_at_hand_leaves_in_one_write_as_far_as_the_reader_takes_that_much() {
    let bursts = vec![vec![8_000; 8]; 32];
    let (said, taken, writes, ended, _) = relay_bursts(&bursts, Vec::new(), false);
    assert!(taken == said && ended);
    assert!(writes < 32 * 3, "{writes} writes for 32 bursts of 8 pieces");
    // One that takes little at a time has no more than a piece kept for it.
    let (said, taken, writes, ended, _) = relay_bursts(&bursts, vec![100; 64], false);
    assert!(taken == said && ended);
    assert!(writes > 64);
}

#[test]
fn a_reader_that_takes_as_much_gets_256_kib_in_one_write() {
    let bursts = vec![vec![8_000; 32]; 32];
    let (said, taken, writes, ended, _) = relay_bursts(&bursts, Vec::new(), false);
    assert!(taken == said && ended);
    assert!(writes < 32 + 16, "{writes} writes for 32 bursts of 250 KiB");
}

proptest::proptest! {
    #[test]
    fn pieces_arrive_whole_in_order_and_before_the_end_however_little_is_taken(
        bursts in proptest::collection::vec(proptest::collection::vec(1usize..9_000, 1..20), 0..5),
        room in proptest::collection::vec(0usize..20_000, 0..40),
        breaks: bool,
    ) {
        let (said, taken, _, ended, outcome) = relay_bursts(&bursts, room, breaks);
        assert!(taken == said, "{} of {} bytes", taken.len(), said.len());
        assert_eq!(outcome.sent, said.len() as u64);
        // What broke is no end.
        assert_eq!(ended, !breaks);
        assert_eq!(outcome.error.is_some(), breaks);
    }
}
