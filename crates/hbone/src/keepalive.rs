//! PINGs that tell a dead peer from a silent one; their beat also drives what a tunnel does seldom.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use crate::driver::Shared;
use crate::{Settings, TunnelError};

#[derive(Debug)]
pub(crate) struct KeepAlive {
    /// Polled again whenever a PING was answered.
    shared: Shared,
    /// Ends at [`KeepAlive::due`], or before where there is something to look at.
    timer: Pin<Box<Sleep>>,
    waiting: Waiting,
    /// When the next PING is to be sent, or the answer of the last one is to be there.
    due: Instant,
    interval: Duration,
    timeout: Duration,
    /// What had come from the peer when we began to doubt it.
    probing: Option<u64>,
    /// When the last answer came.
    answered: Instant,
    /// What had come from the peer when this was polled last.
    received: u64,
    /// What had shown until then that the path takes what is sent.
    moved: u32,
    /// Both, and how often the peer had given credit between them, when it was asked last or its time was prolonged.
    heard: (u64, u32, u32),
}

/// What comes within the time of a PING from a peer that is sending something. Less may be one who draws a frame out, behind
/// which no answer can come.
const PROGRESS: u64 = 16 * 1024;

#[derive(Debug, Clone, Copy)]
enum Waiting {
    ForNext,
    ForPong,
    /// The connection failed below; its own poll will say why.
    Over,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beat {
    /// A PING was sent.
    Sent,
    /// A PING's answer may take the usual time once more.
    Late,
    /// A probe brought nothing in the time that it had. The peer may take the rest of the usual time for its answer.
    Silent,
}

/// Somebody waits for an answer of the peer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watch {
    /// When the peer is to be probed, if nothing comes from it before.
    pub(crate) from: Instant,
    /// How long it may say nothing then.
    pub(crate) patience: Duration,
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

    /// `false` when the connection is no more.
    fn send(&mut self) -> bool {
        self.heard = self.hears();
        self.shared.act(|core| core.ping())
    }

    fn hears(&self) -> (u64, u32, u32) {
        let credits = self.shared.borrow().http2.credits();
        (self.received, credits, self.moved)
    }

    /// Whether the peer is heard of since it was asked, beyond single bytes: it sends, or it takes what we send.
    fn is_heard_of(&self) -> bool {
        let (received, credits, moved) = self.heard;
        let now = self.hears();
        now.0 - received >= PROGRESS || now.1 != credits || now.2 != moved
    }

    /// `false` likewise, `true` when the answer is there.
    fn poll_answer(&self) -> Poll<bool> {
        match self.shared.borrow() {
            core if core.ended().is_some() => Poll::Ready(false),
            core if core.was_answered() => Poll::Ready(true),
            _ => Poll::Pending,
        }
    }

    /// When the peer answered last; it is taken to have done so when all began.
    pub(crate) fn answered(&self) -> Instant {
        self.answered
    }

    /// Asks the peer at once whether it is there, unless it is being asked; it has the usual time for its answer. Poll then.
    pub(crate) fn ask(&mut self) {
        if matches!(self.waiting, Waiting::ForNext) && self.send() {
            self.waiting = Waiting::ForPong;
            self.due = Instant::now() + self.timeout;
            self.timer.as_mut().reset(self.due);
        }
    }

    /// Asks the peer at once whether it is there; within `patience` it must answer or send anything else. Poll then.
    pub(crate) fn probe(&mut self, received: u64, patience: Duration) {
        // What has come in this turn came before the PING.
        self.received = received;
        if matches!(self.waiting, Waiting::ForNext) && self.send() {
            self.waiting = Waiting::ForPong;
            self.due = Instant::now() + self.timeout;
        }
        if matches!(self.waiting, Waiting::ForPong) && self.probing.is_none() {
            self.probing = Some(received);
            self.timer.as_mut().reset(Instant::now() + patience);
        }
    }

    /// [`KeepAlive::probe`] now, and again and again from now on: whoever is there will be gone soon.
    pub(crate) fn doubt(&mut self, received: u64, patience: Duration) {
        self.interval = self.interval.min(patience / 3);
        self.timeout = self.timeout.min(patience);
        self.due = self.due.min(Instant::now() + patience);
        self.probe(received, patience);
    }

    /// `Ready(Ok)` at every [`Beat`]; poll again then. `Ready(Err)` when a PING went unanswered and nothing else came
    /// either, or no more than one who draws a frame out sends: on a slow path PINGs and their answers wait behind what the kernels hold, for half a minute where that
    /// is 4 MiB and the path takes 1 Mbit/s.
    /// `received` is what came from the peer so far, in bytes.
    pub(crate) fn poll_beat(
        &mut self,
        cx: &mut Context<'_>,
        received: u64,
        moved: u32,
        watch: Option<Watch>,
    ) -> Poll<Result<Beat, TunnelError>> {
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
                    return Poll::Ready(Ok(Beat::Silent));
                }
                continue;
            }
            let now = Instant::now();
            if now < self.due {
                match watch {
                    Some(watch) if watch.from <= now => {
                        let beats = matches!(self.waiting, Waiting::ForNext);
                        self.probe(received, watch.patience);
                        if self.probing.is_none() {
                            self.waiting = Waiting::Over;
                            return Poll::Pending;
                        }
                        if beats {
                            return Poll::Ready(Ok(Beat::Sent));
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
                    return Poll::Ready(Ok(Beat::Late));
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
            return Poll::Ready(Ok(Beat::Sent));
        }
    }
}
