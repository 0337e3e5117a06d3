//! The bytes behind an accepted upgrade or CONNECT, until both directions have ended.

use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use lateen_exchange::{Error, Tunnel};
use tokio::time::{Instant, Sleep, sleep};

/// Why a relay ended before both directions had.
#[derive(Debug, thiserror::Error)]
pub(super) enum Stopped {
    /// The client broke off.
    #[error(transparent)]
    Client(Error),
    /// The endpoint broke off.
    #[error(transparent)]
    Endpoint(Error),
    /// One direction had ended, and the other one moved nothing for so long.
    #[error(
        "half-close time-out: one direction had ended, and nothing came the other way for {0:?}"
    )]
    HalfClosed(Duration),
    /// Both directions had ended, and the endpoint took nothing of the last bytes for so long.
    #[error("half-close time-out: the endpoint took nothing of the client's last bytes for {0:?}")]
    Untaken(Duration),
}

/// The side of a direction that broke off.
enum Broken {
    /// The one that is read.
    Source(Error),
    /// The one that is written to.
    Sink(Error),
}

impl Broken {
    /// Of the direction to the endpoint.
    fn up(self) -> Stopped {
        match self {
            Self::Source(error) => Stopped::Client(error),
            Self::Sink(error) => Stopped::Endpoint(error),
        }
    }

    /// Of the direction to the client.
    fn down(self) -> Stopped {
        match self {
            Self::Source(error) => Stopped::Endpoint(error),
            Self::Sink(error) => Stopped::Client(error),
        }
    }
}

/// One direction.
#[derive(Default)]
struct Direction {
    /// Bytes that were read and are still to be written.
    waiting: Bytes,
    is_over: bool,
}

impl Direction {
    /// Moves bytes as far as there are any, and room. Returns their number, and whether the direction has ended.
    fn turn(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut Tunnel,
        to: &Tunnel,
    ) -> Result<(usize, bool), Broken> {
        let mut moved = 0;
        while !self.is_over {
            let waiting = self.waiting.len();
            let written = to.poll_send(cx, &mut self.waiting);
            moved += waiting - self.waiting.len();
            match written {
                Poll::Pending => break,
                Poll::Ready(written) => written.map_err(Broken::Sink)?,
            }
            match from.poll_data(cx) {
                Poll::Pending => break,
                Poll::Ready(Ok(Some(bytes))) => self.waiting = bytes,
                Poll::Ready(Ok(None)) => {
                    to.finish().map_err(Broken::Sink)?;
                    self.is_over = true;
                }
                Poll::Ready(Err(error)) => return Err(Broken::Source(error)),
            }
        }
        Ok((moved, self.is_over))
    }
}

/// Relays between two tunnels: that of the client below, and that of the endpoint above. `half_closed` is the time that one direction may
/// move nothing after the other has ended. `count` is told the bytes of each direction: up, then down.
///
/// A connection of HTTP/1 to the endpoint ends with its request, so its last bytes are waited for. The connection of the client writes its
/// own by itself.
///
/// # Errors
/// See [`Stopped`]. The caller drops the tunnel above, as this drops the one below. Each side sees a reset.
pub(super) async fn relay(
    mut below: Tunnel,
    above: &mut Tunnel,
    half_closed: Option<Duration>,
    count: impl Fn(usize, usize),
) -> Result<(), Stopped> {
    let (mut up, mut down) = (Direction::default(), Direction::default());
    // Most relays never need it.
    let mut still: Option<Pin<Box<Sleep>>> = None;
    // Bytes to the endpoint that waited when the relay looked last, behind both ends.
    let mut unsent = 0;
    poll_fn(|cx| {
        let turned = up.turn(cx, &mut below, above);
        let (sent, is_up_over) = turned.map_err(Broken::up)?;
        let turned = down.turn(cx, above, &below);
        let (received, is_down_over) = turned.map_err(Broken::down)?;
        count(sent, received);
        let is_over = is_up_over && is_down_over;
        if is_over && let Poll::Ready(sent) = above.poll_sent(cx) {
            return Poll::Ready(sent.map_err(Stopped::Endpoint));
        }
        let before = unsent;
        if is_over {
            unsent = above.unsent();
        }
        let has_moved = sent + received > 0 || unsent < before;
        // While the client is not read, nothing else says that it has left. One that has said and heard all may leave.
        if !is_over
            && (is_up_over || !up.waiting.is_empty())
            && let Poll::Ready(error) = below.poll_gone(cx)
        {
            return Poll::Ready(Err(Stopped::Client(error)));
        }
        match half_closed {
            Some(limit) if is_up_over || is_down_over => {
                let timer = match &mut still {
                    Some(timer) => {
                        if has_moved {
                            timer.as_mut().reset(Instant::now() + limit);
                        }
                        timer
                    }
                    none => none.insert(Box::pin(sleep(limit))),
                };
                let over = timer.as_mut().poll(cx);
                over.map(|()| match is_over {
                    true => Err(Stopped::Untaken(limit)),
                    false => Err(Stopped::HalfClosed(limit)),
                })
            }
            _ => Poll::Pending,
        }
    })
    .await
}
