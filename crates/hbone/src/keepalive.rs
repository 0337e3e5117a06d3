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
        }
    }

    /// `Ready(Ok)` at every PING that was sent; poll again then. `Ready(Err)` when one went unanswered.
    pub(crate) fn poll_beat(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TunnelError>> {
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
                        self.timer.as_mut().reset(Instant::now() + self.interval);
                    }
                    Poll::Ready(Err(_)) => self.waiting = Waiting::Over,
                    Poll::Pending => {
                        std::task::ready!(self.timer.as_mut().poll(cx));
                        self.waiting = Waiting::Over;
                        return Poll::Ready(Err(TunnelError::Unresponsive));
                    }
                },
            }
        }
    }
}
