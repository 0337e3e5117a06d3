//! Idle connections of HTTP/1 to one endpoint. Nobody drives them: each is looked at before its next use, and now and then.

use std::cell::RefCell;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use lateen_exchange::client::{Connection, Handle};

use super::wire::{Ends, Wire};

/// Idle connections that are kept for an endpoint.
const MOST: usize = 128;

/// How long an idle connection is kept. Servers close theirs after 60 s and more, most of them.
const KEPT: Duration = Duration::from_secs(55);

/// The driver of a connection of HTTP/1.
pub(super) type Driver = Box<Connection<Wire>>;

/// A connection of HTTP/1 with its driver.
pub(super) type Owned = (Handle, Driver);

/// The idle connections; the last one was used last.
#[derive(Default)]
pub(super) struct IdleConnections(RefCell<Vec<Idle>>);

struct Idle {
    handle: Handle,
    driver: Driver,
    ends: Option<Ends>,
    since: Instant,
}

impl IdleConnections {
    /// Keeps a connection, if there is room.
    pub(super) fn keep(&self, (handle, driver): Owned, ends: Option<Ends>) {
        let mut idle = self.0.borrow_mut();
        if idle.len() < MOST {
            let since = Instant::now();
            idle.push(Idle {
                handle,
                driver,
                ends,
                since,
            });
        }
    }

    /// Takes the connection that was used last, of those that still stand.
    pub(super) fn take(&self) -> Option<(Owned, Option<Ends>)> {
        loop {
            let last = self.0.borrow_mut().pop();
            let Idle {
                handle,
                driver,
                ends,
                ..
            } = last?;
            if let Some(driver) = stands(&handle, driver) {
                return Some(((handle, driver), ends));
            }
        }
    }

    /// True without a connection.
    pub(super) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Ends all of them.
    pub(super) fn clear(&self) {
        drop(self.0.take());
    }

    /// Ends those that were idle for long, and forgets those that have ended.
    pub(super) fn tidy(&self, now: Instant) {
        let mut kept = Vec::new();
        for idle in self.0.take() {
            let Idle {
                handle,
                driver,
                ends,
                since,
            } = idle;
            if now.saturating_duration_since(since) >= KEPT {
                continue;
            }
            if let Some(driver) = stands(&handle, driver) {
                kept.push(Idle {
                    handle,
                    driver,
                    ends,
                    since,
                });
            }
        }
        self.0.replace(kept);
    }
}

/// One turn of a driver. One that has ended goes; its exchange has heard why.
pub(super) fn turn(driver: &mut Option<Driver>, cx: &mut Context<'_>) {
    if let Some(connection) = driver
        && Pin::new(&mut **connection).poll(cx).is_ready()
    {
        *driver = None;
    }
}

/// Whether an idle connection still stands, by what its socket or tunnel has said meanwhile.
fn stands(handle: &Handle, driver: Driver) -> Option<Driver> {
    let mut driver = Some(driver);
    turn(&mut driver, &mut Context::from_waker(Waker::noop()));
    driver.filter(|_| handle.is_ready())
}
