//! Grace period of a stream whose peer has reset it, while its earlier bytes are still on their way to the other side.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

/// Why a stream is lost, and since when nothing of it has moved.
#[derive(Debug)]
pub(crate) struct ResetGrace {
    error: Option<io::Error>,
    /// How long the other side may take nothing.
    grace: Duration,
    moved: u64,
    timer: Option<Pin<Box<Sleep>>>,
}

impl ResetGrace {
    pub(crate) fn new(error: io::Error, grace: Duration) -> Box<Self> {
        Box::new(ResetGrace {
            error: Some(error),
            grace,
            moved: 0,
            timer: None,
        })
    }

    /// What the stream was lost with.
    pub(crate) fn take(&mut self) -> io::Error {
        self.error
            .take()
            .unwrap_or_else(|| io::ErrorKind::ConnectionReset.into())
    }

    /// Called while the other side takes nothing, after `moved` bytes in all. `Ready` when that has lasted too long.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, moved: u64) -> Poll<()> {
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(sleep(self.grace)));
        if self.moved != moved {
            self.moved = moved;
            timer.as_mut().reset(Instant::now() + self.grace);
        }
        timer.as_mut().poll(cx)
    }
}
