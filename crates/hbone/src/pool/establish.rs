//! Task of one tunnel: dial, handshake, drive, removal from the pool.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::{Rc, Weak};

use tokio::io::{AsyncRead, AsyncWrite};

use super::entry::{Dial, Failure};
use super::key::{Dialled, PoolKey};
use super::state::Inner;
use crate::client::{self, Driver, Tunnel};
use crate::error::{CloseReason, TunnelError};
use crate::settings::Settings;

/// Closes an unused tunnel after the settings of both sides have passed. Before that the peer would count a failed
/// handshake.
async fn leave<IO>(tunnel: Tunnel, mut driver: Box<Driver<IO>>) -> Result<(), TunnelError>
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let mut tunnel = Some(tunnel);
    poll_fn(|cx| {
        let ended = Pin::new(&mut driver).poll(cx);
        let unused = tunnel.take_if(|tunnel| tunnel.known_limit().is_some());
        if ended.is_pending() && unused.is_some() {
            drop(unused);
            return Pin::new(&mut driver).poll(cx);
        }
        ended
    })
    .await
}

/// A tunnel and its driver, or the reason why there is none.
type Opened<E, IO> = Result<(Tunnel, Box<Driver<IO>>), Failure<E>>;

/// Waits for the dial, publishes the tunnel, drives it and removes it. The dial is in a box of its own: a handshake needs several
/// times as much memory as a tunnel, and the returned future would keep room for it as long as the tunnel lives.
#[allow(clippy::manual_async_fn)] // An `async fn` has room for its arguments twice.
pub(super) fn establish<E, IO>(
    pool: Weak<Inner<E>>,
    key: PoolKey,
    opened: Pin<Box<dyn Future<Output = Opened<E, IO>>>>,
    under_way: Rc<Dial<E>>,
) -> impl Future<Output = ()>
where
    E: fmt::Display,
    IO: AsyncRead + AsyncWrite + Unpin,
{
    async move {
        let result = opened.await;
        let Some(inner) = pool.upgrade() else {
            return;
        };
        if let Err(Failure::Handshake(error)) = &result {
            inner.closed.tell(&key, error.close_reason());
        }
        if under_way.retired.get() {
            // Another dial may be under way in its place.
            drop((inner, under_way));
            if let Ok((tunnel, driver)) = result {
                let ended = leave(tunnel, driver).await;
                if let Err(error) = &ended {
                    tracing::debug!(peer = %key.address, %error, "tunnel ended that was retired as it was dialled");
                }
                if let Some(inner) = pool.upgrade() {
                    inner.closed.tell(&key, CloseReason::of(&ended));
                }
            }
            return;
        }
        let (tunnel, driver) = {
            let mut entries = inner.entries.borrow_mut();
            let entry = entries.entry(key.clone()).or_default();
            entry.dial = None;
            match result {
                Ok((tunnel, driver)) => {
                    tunnel.set_number((inner.numbers.0.borrow())());
                    entry.tunnels.push(tunnel.clone());
                    let driven = (key.clone(), tunnel.token());
                    inner.driven.borrow_mut().push(driven);
                    under_way.tunnel.replace(Some(tunnel.clone()));
                    under_way.done.notify_waiters();
                    (tunnel.token(), driver)
                }
                Err(failure) => {
                    if entry.is_empty() {
                        entries.remove(&key);
                    }
                    under_way.failure.replace(Some(failure));
                    under_way.done.notify_waiters();
                    return;
                }
            }
        };
        // Both hold the tunnel open, so neither may live while the driver runs.
        drop((inner, under_way));
        let ended = driver.await;
        let reason = CloseReason::of(&ended);
        if let Err(error) = ended {
            tracing::debug!(peer = %key.address, %error, reason = reason.as_str(), "tunnel ended");
        }
        if let Some(inner) = pool.upgrade() {
            inner.closed.tell(&key, reason);
            let mut driven = inner.driven.borrow_mut();
            driven.retain(|(_, other)| !other.is(&tunnel));
            let mut entries = inner.entries.borrow_mut();
            if let Some(entry) = entries.get_mut(&key) {
                entry.tunnels.retain(|other| !other.is(&tunnel));
                if entry.is_empty() {
                    entries.remove(&key);
                }
            }
        }
    }
}

/// Dials, and opens a tunnel on the connection.
pub(super) async fn open<E, F, T>(pool: Weak<Inner<E>>, dial: F) -> Opened<E, T::Io>
where
    F: Future<Output = Result<T, E>>,
    T: Dialled,
{
    let (io, known) = dial.await.map_err(Failure::Dial)?.parts();
    let mut settings = match pool.upgrade() {
        Some(inner) => inner.settings.clone(),
        None => Settings::client(),
    };
    let mut ask = None;
    if let Some((budget, below)) = known {
        settings.budget = budget;
        ask = Some(below);
    }
    let made = client::handshake(io, settings).await;
    let (tunnel, mut driver) = made.map_err(|e| Failure::Handshake(Rc::new(e)))?;
    if let Some(below) = ask {
        driver.ask(below);
    }
    Ok((tunnel, Box::new(driver)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::DuplexStream;

    /// A node may have a tunnel for each pod that its pods talk to, so the size of a tunnel's task must not include its dial.
    #[test]
    fn a_tunnel_s_task_has_no_room_for_its_dial() {
        fn size<A, B, C, D, F>(_: impl FnOnce(A, B, C, D) -> F) -> usize {
            size_of::<F>()
        }
        let bytes = size(establish::<String, DuplexStream>);
        assert!(bytes <= 512, "{bytes} bytes");
    }
}
