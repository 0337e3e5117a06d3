//! PINGs that tell a dead peer from a silent one; their beat also drives what a tunnel does seldom.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep, sleep_until};

use crate::{Settings, TunnelError};

#[derive(Debug)]
pub(crate) struct KeepAlive {
    pings: h2::PingPong,
    timer: Pin<Box<Sleep>>,
    waiting: Waiting,
    interval: std::time::Duration,
    timeout: std::time::Duration,
    /// What had come from the peer when we began to doubt it.
    probing: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
enum Waiting {
    ForNext,
    ForPong,
    /// The connection failed below; its own poll will say why.
    Over,
}

impl KeepAlive {
    pub(crate) fn new(pings: h2::PingPong, settings: &Settings) -> Self {
        KeepAlive {
            pings,
            // The first PING need not race with the first request.
            timer: Box::pin(sleep_until(Instant::now() + settings.ping_interval)),
            waiting: Waiting::ForNext,
            interval: settings.ping_interval,
            timeout: settings.ping_timeout,
            probing: None,
        }
    }

    /// Asks the peer at once whether it is there; within `patience` it must answer or send anything else. Poll then.
    pub(crate) fn probe(&mut self, received: u64, patience: std::time::Duration) {
        if matches!(self.waiting, Waiting::ForNext)
            && self.pings.send_ping(h2::Ping::opaque()).is_ok()
        {
            self.waiting = Waiting::ForPong;
        }
        if matches!(self.waiting, Waiting::ForPong) && self.probing.is_none() {
            self.probing = Some(received);
            self.timer.as_mut().reset(Instant::now() + patience);
        }
    }

    /// [`KeepAlive::probe`] now, and again and again from now on: whoever is there will be gone soon.
    pub(crate) fn doubt(&mut self, received: u64, patience: std::time::Duration) {
        self.interval = self.interval.min(patience / 3);
        self.timeout = self.timeout.min(patience);
        self.probe(received, patience);
    }

    /// `Ready(Ok)` at every PING that was sent; poll again then. `Ready(Err)` when one went unanswered.
    /// `received` is what came from the peer so far, in bytes.
    pub(crate) fn poll_beat(
        &mut self,
        cx: &mut Context<'_>,
        received: u64,
    ) -> Poll<Result<(), TunnelError>> {
        loop {
            match self.waiting {
                Waiting::Over => return Poll::Pending,
                Waiting::ForNext => {
                    std::task::ready!(self.timer.as_mut().poll(cx));
                    if self.pings.send_ping(h2::Ping::opaque()).is_err() {
                        self.waiting = Waiting::Over;
                        return Poll::Pending;
                    }
                    self.waiting = Waiting::ForPong;
                    self.timer.as_mut().reset(Instant::now() + self.timeout);
                    return Poll::Ready(Ok(()));
                }
                Waiting::ForPong => match self.pings.poll_pong(cx) {
                    Poll::Ready(Ok(_)) => {
                        self.waiting = Waiting::ForNext;
                        self.probing = None;
                        self.timer.as_mut().reset(Instant::now() + self.interval);
                    }
                    Poll::Ready(Err(_)) => self.waiting = Waiting::Over,
                    Poll::Pending => {
                        std::task::ready!(self.timer.as_mut().poll(cx));
                        if self.probing.take().is_some_and(|before| before != received) {
                            // It is there, and may take the usual time for its answer.
                            self.timer.as_mut().reset(Instant::now() + self.timeout);
                            continue;
                        }
                        self.waiting = Waiting::Over;
                        return Poll::Ready(Err(TunnelError::Unresponsive));
                    }
                },
            }
        }
    }
}
