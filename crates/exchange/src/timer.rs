//! Periodic checks of a connection: PING keepalive, slow request heads, idle time, and memory at rest.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use lateen_h2::StreamId;
use tokio::time::{Instant, Sleep, sleep};

use crate::config::Timeouts;
use crate::core::{Codec, Shared};
use crate::error::ConnectionError;
use crate::transport::Transport;

/// The time for which an answer of HTTP/1 waits for room in its account while nothing moves: no byte comes, leaves or is taken. It ends
/// even if all that the account holds waits for this answer. So does a request whose head or content waits, since nobody would notice
/// that its client has left.
const STARVED: Duration = Duration::from_secs(60);

/// The time in which an endpoint of HTTP/2 reads all frames that wait at its beginning. Clients may be gone for long, and their accounts pay
/// for the frames. Requests that are open keep such a connection, so it would never be idle.
const UNREAD: Duration = STARVED;

#[derive(Debug)]
pub(crate) struct Timer {
    sleep: Pin<Box<Sleep>>,
    alarm: Arc<Alarm>,
    /// The waker of `alarm`.
    waker: Waker,
    times: Timeouts,
    /// Bytes that had come at the last check.
    received: u64,
    /// Bytes that had left.
    sent: u64,
    /// Bytes that had come, left or been taken.
    moved: u64,
    /// The time without input.
    quiet: Duration,
    /// A PING was sent in this time.
    asked: bool,
    /// The time for which a request head has been incomplete.
    head: Duration,
    /// HTTP/2: the stream whose header block was under way at the last check. Each block has its own time.
    block: Option<StreamId>,
    /// HTTP/2: the time since requests of closed exchanges were looked at.
    rest: Duration,
    /// The time without an exchange.
    idle: Duration,
    /// The time for which a drained connection has been without an exchange, while the peer took none of the last bytes.
    drained: Duration,
    /// The time for which an answer, or the rest of a request, has had no room.
    starved: Duration,
    /// The time for which the peer has not read all that waited at the beginning of it.
    unread: Duration,
    /// The bytes that will have left when it has.
    mark: u64,
}

/// The wake of a timer, which is told apart from others: a connection has many turns for each check.
#[derive(Debug)]
struct Alarm {
    has_rung: AtomicBool,
    /// The connection's task.
    task: Mutex<Option<Waker>>,
}

impl Alarm {
    /// True if the timer is to be polled. The task is woken when it is.
    #[inline]
    fn poll(&self, cx: &Context<'_>) -> bool {
        let before = {
            let mut task = self.task();
            match &*task {
                Some(known) if known.will_wake(cx.waker()) => None,
                _ => task.replace(cx.waker().clone()),
            }
        };
        // A task may end with its last waker.
        drop(before);
        self.has_rung.swap(false, Ordering::AcqRel)
    }

    #[inline]
    fn task(&self) -> MutexGuard<'_, Option<Waker>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.has_rung.store(true, Ordering::Release);
        let task = self.task().take();
        if let Some(task) = task {
            task.wake();
        }
    }
}

impl Timer {
    pub(crate) fn new(times: Timeouts) -> Self {
        let alarm = Arc::new(Alarm {
            // The timer does not know the alarm yet.
            has_rung: AtomicBool::new(true),
            task: Mutex::new(None),
        });
        Timer {
            sleep: Box::pin(sleep(times.check_interval)),
            waker: Waker::from(Arc::clone(&alarm)),
            alarm,
            times,
            received: 0,
            sent: 0,
            moved: 0,
            quiet: Duration::ZERO,
            asked: false,
            head: Duration::ZERO,
            block: None,
            rest: Duration::ZERO,
            idle: Duration::ZERO,
            drained: Duration::ZERO,
            starved: Duration::ZERO,
            unread: Duration::ZERO,
            mark: 0,
        }
    }

    /// Does the checks that are due.
    ///
    /// # Errors
    /// The peer took too long.
    pub(crate) fn poll<IO>(
        &mut self,
        cx: &mut Context<'_>,
        shared: &Shared,
        transport: &Transport<IO>,
    ) -> Result<(), ConnectionError> {
        if !self.alarm.poll(cx) {
            return Ok(());
        }
        let waker = self.waker.clone();
        let cx = &mut Context::from_waker(&waker);
        while self.sleep.as_mut().poll(cx).is_ready() {
            self.sleep
                .as_mut()
                .reset(Instant::now() + self.times.check_interval);
            self.check(shared, (transport.received(), transport.sent()))?;
        }
        Ok(())
    }

    fn check(
        &mut self,
        shared: &Shared,
        (received, sent): (u64, u64),
    ) -> Result<(), ConnectionError> {
        let core = &mut *shared.borrow();
        let now = core.now();
        let interval = self.times.check_interval;
        let block = match &core.codec {
            Codec::Http2(http2) => http2.block(),
            _ => None,
        };
        if std::mem::replace(&mut self.block, block) != block {
            self.head = Duration::ZERO;
        }
        let is_idle = core.is_idle();
        let is_in_head = core.is_in_head();
        let grow = |time: &mut Duration, grows: bool| {
            *time = if grows {
                time.saturating_add(interval)
            } else {
                Duration::ZERO
            };
            *time
        };
        let has_sent = std::mem::replace(&mut self.sent, sent) != sent;
        let is_quiet = std::mem::replace(&mut self.received, received) == received;
        let moved = received.wrapping_add(sent).wrapping_add(core.taken);
        let is_still = std::mem::replace(&mut self.moved, moved) == moved;
        let quiet = grow(&mut self.quiet, is_quiet);
        if let Codec::Http2(http2) = &mut core.codec {
            http2.tick(now)?;
            self.asked &= is_quiet;
            if quiet >= self.times.ping_after && !self.asked {
                self.asked = true;
                core.pings = core.pings.wrapping_add(1);
                http2.ping(core.pings);
            }
            // Each look gives up the requests of which the one before has found something.
            if grow(&mut self.rest, true) >= self.times.ping_timeout {
                self.rest = Duration::ZERO;
                http2.expire_let_go();
            }
            // A peer whose input nobody reads cannot answer.
            if quiet >= self.times.ping_after + self.times.ping_timeout && !core.is_paused {
                return Err(ConnectionError::PingTimeout);
            }
        }
        // Nobody pays for what answers an endpoint's PING frames and the like, so it may not wait any longer than what is charged.
        let mut is_behind = false;
        if let Codec::Http2(http2) = &core.codec
            && http2.notes_frames()
        {
            is_behind = sent < self.mark;
            if !is_behind {
                self.mark = sent + http2.unsent() as u64;
            }
        }
        if grow(&mut self.unread, is_behind) >= UNREAD {
            return Err(ConnectionError::Unread);
        }
        if grow(&mut self.head, is_in_head) >= self.times.head {
            core.refuse_slow_head();
            return Err(ConnectionError::HeadTimeout);
        }
        let waits = match core.charge {
            Some(_) => core.is_deaf(),
            None => core.is_starved,
        };
        let is_starved = waits && is_still;
        if grow(&mut self.starved, is_starved) >= STARVED {
            return Err(ConnectionError::OverLimit);
        }
        // Nobody has read for a while what still keeps read buffers alive.
        for entry in core.streams.iter_mut() {
            entry.inbox.settle();
        }
        core.settle_input();
        if is_idle || matches!(core.codec, Codec::Tunnel(_)) {
            core.rest();
        } else {
            core.shrink();
        }
        // A peer that answers no PING of the drain, or takes no byte, would keep the connection for ever.
        let (is_drained, has_rest) = (core.is_drained(), core.has_rest());
        let drained = grow(&mut self.drained, is_drained && !(has_sent && has_rest));
        let most = match has_rest {
            // A client that reads its answer may pause.
            true => self.times.idle.unwrap_or(Duration::MAX),
            false => self.times.ping_timeout,
        };
        if drained >= most {
            return Err(ConnectionError::IdleTimeout);
        }
        let idle = grow(&mut self.idle, is_idle);
        if self.times.idle.is_some_and(|most| idle >= most) {
            core.drain();
        }
        Ok(())
    }

    /// Begins the time for which a connection that failed or ends still reads. There are no checks from then on.
    pub(crate) fn linger(&mut self) {
        let end = Instant::now() + self.times.linger;
        self.sleep.as_mut().reset(end);
    }

    /// Ready when that time is over.
    pub(crate) fn poll_lingered(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.sleep.as_mut().poll(cx)
    }
}
