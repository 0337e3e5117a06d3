//! Tests of both ends of a tunnel over a byte stream with arbitrary short reads, short writes and delays: all bytes arrive,
//! nobody waits for an event that has happened, and no state is left over.

use std::cell::Cell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use lateen_relay::{Chunk, Duplex, ReadSize};
use proptest::prelude::*;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, duplex};
use tokio::task::{LocalSet, spawn_local, yield_now};
use tokio::time::Instant;

use super::core::Shared;
use crate::budget::Budget;
use crate::client::{self, ConnectRequest};
use crate::send_buffer::SendBudget;
use crate::server::Connection;
use crate::settings::Settings;
use crate::stream::Stream;

/// A pipe that cuts and stalls.
struct Rough {
    io: DuplexStream,
    seed: u64,
    /// Most bytes at a time.
    most: usize,
}

impl Rough {
    /// How much it does now; nothing, and it says so at once, one time in three.
    fn luck(&mut self, cx: &Context<'_>) -> Poll<usize> {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        if self.seed.is_multiple_of(3) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(1 + (self.seed >> 8) as usize % self.most)
    }
}

impl AsyncRead for Rough {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let most = std::task::ready!(self.luck(cx)).min(buf.remaining());
        let mut piece = vec![0; most];
        let mut piece = ReadBuf::new(&mut piece);
        std::task::ready!(Pin::new(&mut self.io).poll_read(cx, &mut piece))?;
        buf.put_slice(piece.filled());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Rough {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let most = std::task::ready!(self.luck(cx)).min(buf.len());
        Pin::new(&mut self.io).poll_write(cx, &buf[..most])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let all: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
        self.poll_write(cx, &all)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.luck(cx).map(|_| Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// What one end of a stream does.
#[derive(Debug, Clone, Copy)]
struct Says {
    bytes: usize,
    /// After so many of them it resets the stream, or just lets it go.
    cut: Option<(usize, bool)>,
    /// It reads so much later than it could.
    slow: u8,
}

/// What one end of a stream heard, and how it ended.
#[derive(Debug)]
struct Heard {
    bytes: usize,
    whole: bool,
    /// All that it had to say was taken.
    said: bool,
}

fn pattern(at: usize) -> u8 {
    (at.wrapping_mul(2_654_435_761) >> 16) as u8
}

/// Says and hears at once, as a relay does.
async fn talk(mut stream: Stream, says: Says) -> Heard {
    let (mut said, mut heard) = (0, 0);
    let mut piece = Bytes::new();
    let (mut finished, mut ended) = (None, None);
    let mut pause = 0u8;
    let mut size = ReadSize::default();
    poll_fn(|cx| {
        while finished.is_none() {
            if let Some((at, reset)) = says.cut
                && said - piece.len() >= at
            {
                if reset {
                    stream.abort();
                }
                return Poll::Ready(());
            }
            if piece.is_empty() && said < says.bytes {
                let next = (says.bytes - said).min(5_000);
                piece = (said..said + next).map(pattern).collect();
                said += next;
            }
            let written = match piece.is_empty() {
                true => stream.poll_finish(cx).map_ok(|()| true),
                false => stream.poll_write(cx, &mut piece).map_ok(|()| false),
            };
            match written {
                Poll::Ready(Ok(false)) => {}
                Poll::Ready(done) => finished = Some(done.is_ok()),
                Poll::Pending => break,
            }
        }
        while ended.is_none() {
            if pause < says.slow {
                pause += 1;
                // As a relay does whose writer is busy.
                if stream.hold(cx).is_ready() {
                    pause = says.slow;
                }
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            pause = 0;
            let read = stream.poll_read(cx, &mut size, true, |_, chunk| match chunk {
                Chunk::Owned(bytes) => Some(bytes),
                Chunk::Borrowed(_) => unreachable!("a tunnel's chunks are owned"),
                Chunk::End => None,
            });
            match read {
                Poll::Ready(Ok(Some(bytes))) => {
                    let right = bytes.iter().enumerate();
                    assert!(
                        right
                            .into_iter()
                            .all(|(n, byte)| *byte == pattern(heard + n))
                    );
                    heard += bytes.len();
                }
                Poll::Ready(Ok(None)) => ended = Some(true),
                Poll::Ready(Err(_)) => ended = Some(false),
                Poll::Pending => break,
            }
        }
        match (finished, ended) {
            (Some(_), Some(_)) => Poll::Ready(()),
            _ => Poll::Pending,
        }
    })
    .await;
    Heard {
        bytes: heard,
        whole: ended == Some(true),
        said: finished == Some(true),
    }
}

/// Nothing is left of streams that are over, and what the peer was granted is what it has.
fn is_clean(shared: &Shared) -> Result<(), String> {
    let core = shared.borrow();
    let credit = core.http2.credit();
    let clean = (
        core.streams_left(),
        core.http2.active(),
        // What nobody is left to read stays unsaid.
        if core.ended().is_some() {
            0
        } else {
            core.http2.queued()
        },
        credit.held,
    );
    match clean == (0, 0, 0, 0) && credit.credit <= credit.allowance {
        true => Ok(()),
        false => Err(format!("{clean:?} {credit:?}")),
    }
}

fn says() -> impl Strategy<Value = Says> {
    let bytes = prop_oneof![3 => 0usize..3_000, 1 => 0usize..250_000];
    let cut = prop::option::weighted(0.2, (0usize..100_000, any::<bool>()));
    (bytes, cut, 0u8..3).prop_map(|(bytes, cut, slow)| Says { bytes, cut, slow })
}

fn scripts() -> impl Strategy<Value = Vec<(Says, Says)>> {
    prop::collection::vec((says(), says()), 1..10)
}

/// What the two ends of a run are left with.
async fn run(
    scripts: Vec<(Says, Says)>,
    seed: u64,
    most: usize,
    buffer: usize,
    drains: bool,
) -> Result<(), String> {
    let (near, far) = duplex(1 + (seed >> 3) as usize % 100_000);
    let rough = move |io, salt| Rough {
        io,
        seed: seed ^ salt | 1,
        most,
    };
    let settings = |defaults: Settings| Settings {
        budget: Budget::new(8 << 20),
        send_budget: SendBudget::new(1 << 20),
        send_buffer: buffer,
        tunnel_send_buffer: 64 * 1024,
        stream_window: 65_535,
        ..defaults
    };
    let ours = settings(Settings::client());
    let theirs = settings(Settings::server());
    let budgets = [ours.budget.clone(), theirs.budget.clone()];
    let sends = [ours.send_budget.clone(), theirs.send_budget.clone()];
    let start = Instant::now();

    let handshake = client::handshake(rough(near, 0x9e37_79b9), ours);
    let (tunnel, driver) = handshake.await.map_err(|e| e.to_string())?;
    let client_side = tunnel.shared();
    let driver = spawn_local(driver);
    let answers: Vec<_> = scripts.iter().map(|(_, says)| *says).collect();
    let serving = spawn_local(async move {
        let accepted = Connection::accept(rough(far, 0x7f4a_7c15), theirs).await;
        let mut connection = accepted.map_err(|e| e.to_string())?;
        let mut talks = Vec::new();
        while let Some(incoming) = connection
            .next()
            .await
            .map_err(|e| format!("server: {e}"))?
        {
            let port = incoming.authority.to_string();
            let which: usize = port
                .rsplit(':')
                .next()
                .and_then(|p| p.parse().ok())
                .unwrap_or(1);
            let says = answers[which - 1];
            if let Ok(stream) = incoming.accept(None) {
                talks.push((which - 1, spawn_local(talk(stream, says))));
            }
            if drains && talks.len() == answers.len() / 2 {
                connection.drain();
            }
        }
        let shared = connection.shared();
        let mut heard = Vec::new();
        for (which, talk) in talks {
            heard.push((which, talk.await.map_err(|e| e.to_string())?));
        }
        Ok::<_, String>((heard, shared))
    });
    let asked = Rc::new(Cell::new(0));
    let talks = scripts.iter().enumerate().map(|(which, (says, _))| {
        let (tunnel, says, asked) = (tunnel.clone(), *says, Rc::clone(&asked));
        spawn_local(async move {
            let authority = std::net::SocketAddr::from(([10, 0, 0, 7], which as u16 + 1));
            let (stream, _) = tunnel.connect(&ConnectRequest::new(authority)).await.ok()?;
            asked.set(asked.get() + 1);
            Some(talk(stream, says).await)
        })
    });
    let talks: Vec<_> = talks.collect();
    let mut near = Vec::new();
    for talk in talks {
        near.push(talk.await.map_err(|e| e.to_string())?);
    }
    // What is still under way of streams that were let go.
    for _ in 0..2_000 {
        yield_now().await;
    }
    is_clean(&client_side)?;
    drop(tunnel);
    driver
        .await
        .map_err(|e| e.to_string())?
        .map_err(|e| e.to_string())?;
    let (far, server_side) = serving.await.map_err(|e| e.to_string())??;
    is_clean(&server_side)?;
    drop((client_side, server_side));
    // Nothing waited for a tick.
    if start.elapsed() >= Duration::from_secs(1) {
        return Err(format!("it took {:?}", start.elapsed()));
    }
    if !drains && asked.get() != scripts.len() {
        return Err(format!("{} of {} were granted", asked.get(), scripts.len()));
    }
    for (which, far) in far {
        let (says, answers) = scripts[which];
        let Some(near) = &near[which] else { continue };
        let cut = says.cut.is_some() || answers.cut.is_some();
        let whole =
            |heard: &Heard, says: Says| heard.whole == (heard.bytes == says.bytes) || !heard.whole;
        let all = near.said && near.whole && near.bytes == answers.bytes;
        let all = all && far.said && far.whole && far.bytes == says.bytes;
        if !(whole(near, answers) && whole(&far, says) && (cut || all)) {
            return Err(format!("{says:?} {far:?}, {answers:?} {near:?}"));
        }
    }
    let left: usize = budgets.iter().map(Budget::granted).sum();
    let sent: usize = sends.iter().map(SendBudget::granted).sum();
    match (left, sent) {
        (0, 0) => Ok(()),
        left => Err(format!("{left:?} bytes are still granted")),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_is_said_arrives_however_the_connection_behaves(
        scripts in scripts(),
        seed in any::<u64>(),
        most in prop_oneof![1usize..30, 1_000usize..40_000],
        buffer in prop_oneof![Just(1_000usize), Just(256 << 10)],
        drains in any::<bool>(),
    ) {
        // A byte at a time takes its time.
        let scripts: Vec<_> = scripts.into_iter().map(|(mut one, mut other)| {
            if most < 30 {
                one.bytes %= 2_000;
                other.bytes %= 2_000;
            }
            (one, other)
        }).collect();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let told = runtime.block_on(LocalSet::new().run_until(async {
            let most_time = Duration::from_secs(100);
            let run = run(scripts, seed, most, buffer, drains);
            tokio::time::timeout(most_time, run).await.unwrap_or(Err("it hangs".to_owned()))
        }));
        prop_assert_eq!(told, Ok(()));
    }
}
