//! The bytes behind an accepted upgrade or CONNECT, until both directions have ended.

use std::future::poll_fn;
use std::task::{Context, Poll};

use bytes::Bytes;
use lateen_exchange::{Error, Tunnel};

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
    ) -> Result<(usize, bool), Error> {
        let mut moved = 0;
        while !self.is_over {
            let waiting = self.waiting.len();
            let written = to.poll_send(cx, &mut self.waiting);
            moved += waiting - self.waiting.len();
            match written {
                Poll::Pending => break,
                Poll::Ready(written) => written?,
            }
            match from.poll_data(cx) {
                Poll::Pending => break,
                Poll::Ready(Ok(Some(bytes))) => self.waiting = bytes,
                Poll::Ready(Ok(None)) => {
                    to.finish()?;
                    self.is_over = true;
                }
                Poll::Ready(Err(error)) => return Err(error),
            }
        }
        Ok((moved, self.is_over))
    }
}

/// Relays between two tunnels. `count` is told the bytes of each direction: up, then down.
///
/// # Errors
/// Either side broke off. Both are dropped, which the other side sees as a reset.
pub(super) async fn relay(
    mut below: Tunnel,
    mut above: Tunnel,
    count: impl Fn(usize, usize),
) -> Result<(), Error> {
    let (mut up, mut down) = (Direction::default(), Direction::default());
    poll_fn(|cx| {
        let (sent, is_up_over) = up.turn(cx, &mut below, &above)?;
        let (received, is_down_over) = down.turn(cx, &mut above, &below)?;
        count(sent, received);
        match is_up_over && is_down_over {
            true => Poll::Ready(Ok(())),
            false => Poll::Pending,
        }
    })
    .await
}
