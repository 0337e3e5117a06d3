//! HTTP/2 PING keepalive (RFC 9113 §6.7), whose interval also drives a tunnel's periodic work.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use crate::driver::Shared;
use crate::{Settings, TunnelError};

#[derive(Debug)]
pub(crate) struct KeepAlive {
    /// Wakes this task when a PING is answered.
    shared: Shared,
    /// Ends at [`KeepAlive::due`], or before it while a probe or a [`Watch`] has a deadline.
    timer: Pin<Box<Sleep>>,
    waiting: Waiting,
    /// Time for the next PING, or deadline of the last one's answer.
    due: Instant,
    interval: Duration,
    timeout: Duration,
    /// Bytes received when the probe began; none without a probe.
    probing: Option<u64>,
    /// Time of the last answer.
    answered: Instant,
    /// Bytes received at the last poll.
    received: u64,
    /// Signs at the last poll that the path takes what is sent.
    moved: u32,
    /// `received`, number of WINDOW_UPDATE frames and `moved` at the last PING or extension of its deadline.
    heard: (u64, u32, u32),
}

/// Bytes that a live peer sends within the time of a PING, if it is sending. A peer that sends less may be drawing one frame out,
/// behind which no answer can come.
const PROGRESS: u64 = 16 * 1024;

#[derive(Debug, Clone, Copy)]
enum Waiting {
    ForNext,
    ForPong,
    /// The connection failed. Its own poll returns the error.
    Over,
}

/// Event of the keepalive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tick {
    /// A PING was sent.
    Sent,
    /// The deadline of a PING's answer was extended once.
    Late,
    /// A probe had no answer in its time. The PING's own deadline still holds.
    Silent,
}

/// A request waits for the peer's answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watch {
    /// Time of the probe, if the peer sends nothing before.
    pub(crate) from: Instant,
    /// Time that the probe may take.
    pub(crate) timeout: Duration,
}

impl KeepAlive {
    pub(crate) fn new(shared: Shared, settings: &Settings) -> Self {
        // The first PING need not race with the first request.
        let due = Instant::now() + settings.ping_interval;
        KeepAlive {
            shared,
            timer: Box::pin(sleep_until(due)),
            waiting: Waiting::ForNext,
            due,
            interval: settings.ping_interval,
            timeout: settings.ping_timeout,
            probing: None,
            answered: Instant::now(),
            received: 0,
            heard: (0, 0, 0),
            moved: 0,
        }
    }

    /// Sends a PING. Returns `false` if the connection has ended.
    fn send(&mut self) -> bool {
        self.heard = self.hears();
        self.shared.act(|core| core.ping())
    }

    fn hears(&self) -> (u64, u32, u32) {
        let credits = self.shared.borrow().http2.credits();
        (self.received, credits, self.moved)
    }

    /// Whether the peer made progress since the last PING: it sent more than single bytes, or it took bytes of ours.
    fn is_heard_of(&self) -> bool {
        let (received, credits, moved) = self.heard;
        let now = self.hears();
        now.0 - received >= PROGRESS || now.1 != credits || now.2 != moved
    }

    /// Ready with `true` when the answer has come, and with `false` if the connection has ended.
    fn poll_answer(&self) -> Poll<bool> {
        match self.shared.borrow() {
            core if core.ended().is_some() => Poll::Ready(false),
            core if core.was_answered() => Poll::Ready(true),
            _ => Poll::Pending,
        }
    }

    /// Time of the peer's last answer. The start of the connection counts as one.
    pub(crate) fn answered(&self) -> Instant {
        self.answered
    }

    /// Sends a PING at once unless one is unanswered. The usual deadline holds. Poll afterwards.
    pub(crate) fn ask(&mut self) {
        if matches!(self.waiting, Waiting::ForNext) && self.send() {
            self.waiting = Waiting::ForPong;
            self.due = Instant::now() + self.timeout;
            self.timer.as_mut().reset(self.due);
        }
    }

    /// Sends a PING at once. The peer must answer, or send anything else, within `limit`. Poll afterwards.
    pub(crate) fn probe(&mut self, received: u64, limit: Duration) {
        // Bytes of this turn came before the PING.
        self.received = received;
        if matches!(self.waiting, Waiting::ForNext) && self.send() {
            self.waiting = Waiting::ForPong;
            self.due = Instant::now() + self.timeout;
        }
        if matches!(self.waiting, Waiting::ForPong) && self.probing.is_none() {
            self.probing = Some(received);
            self.timer.as_mut().reset(Instant::now() + limit);
        }
    }

    /// [`KeepAlive::probe`] now and repeatedly from now on, because the peer was removed from the mesh.
    pub(crate) fn keep_probing(&mut self, received: u64, limit: Duration) {
        self.interval = self.interval.min(limit / 3);
        self.timeout = self.timeout.min(limit);
        self.due = self.due.min(Instant::now() + limit);
        self.probe(received, limit);
    }

    /// Ready with `Ok` at every [`Tick`]; poll again afterwards. Ready with an error when a PING has no answer and the peer
    /// made no progress either. Progress extends the deadline: on a slow path PINGs and their answers wait behind bytes in
    /// the kernels, for half a minute where those are 4 MiB and the path takes 1 Mbit/s. `received` is the number of bytes
    /// received so far.
    pub(crate) fn poll_tick(
        &mut self,
        cx: &mut Context<'_>,
        received: u64,
        moved: u32,
        watch: Option<Watch>,
    ) -> Poll<Result<Tick, TunnelError>> {
        self.received = received;
        self.moved = moved;
        loop {
            match self.waiting {
                Waiting::Over => return Poll::Pending,
                Waiting::ForNext => {}
                Waiting::ForPong => match self.poll_answer() {
                    Poll::Ready(true) => {
                        self.waiting = Waiting::ForNext;
                        self.probing = None;
                        self.answered = Instant::now();
                        self.due = self.answered + self.interval;
                        self.timer.as_mut().reset(self.due);
                    }
                    Poll::Ready(false) => {
                        self.waiting = Waiting::Over;
                        return Poll::Pending;
                    }
                    Poll::Pending => {}
                },
            }
            let watch = watch.filter(|_| self.probing.is_none());
            if let Some(watch) = watch
                && watch.from < self.timer.deadline()
            {
                self.timer.as_mut().reset(watch.from);
            }
            std::task::ready!(self.timer.as_mut().poll(cx));
            if let Some(before) = self.probing.take() {
                if before != received {
                    // It is there, and may take the usual time for its answer.
                    self.due = Instant::now() + self.timeout;
                }
                self.timer.as_mut().reset(self.due);
                if before == received {
                    return Poll::Ready(Ok(Tick::Silent));
                }
                continue;
            }
            let now = Instant::now();
            if now < self.due {
                match watch {
                    Some(watch) if watch.from <= now => {
                        let ticks = matches!(self.waiting, Waiting::ForNext);
                        self.probe(received, watch.timeout);
                        if self.probing.is_none() {
                            self.waiting = Waiting::Over;
                            return Poll::Pending;
                        }
                        if ticks {
                            return Poll::Ready(Ok(Tick::Sent));
                        }
                    }
                    // Something came since the timer was set.
                    _ => self.timer.as_mut().reset(self.due),
                }
                continue;
            }
            if matches!(self.waiting, Waiting::ForPong) {
                if self.is_heard_of() {
                    // It is there, and may take the usual time once more.
                    self.heard = self.hears();
                    self.due = now + self.timeout;
                    self.timer.as_mut().reset(self.due);
                    return Poll::Ready(Ok(Tick::Late));
                }
                self.waiting = Waiting::Over;
                return Poll::Ready(Err(TunnelError::Unresponsive));
            }
            if !self.send() {
                self.waiting = Waiting::Over;
                return Poll::Pending;
            }
            self.waiting = Waiting::ForPong;
            self.due = now + self.timeout;
            self.timer.as_mut().reset(self.due);
            return Poll::Ready(Ok(Tick::Sent));
        }
    }
}
