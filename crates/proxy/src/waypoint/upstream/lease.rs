//! A connection to an endpoint for as long as one request uses it.
//!
//! A connection of HTTP/1 belongs to its request, which drives it: no task stands between the two. A connection of HTTP/2
//! is driven by a task of its own and shared.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Waker};

use lateen_exchange::client::{Connection, Handle};

use super::pool::Upstream;
use super::wire::Wire;

/// The driver of a connection of HTTP/1.
pub(super) type Driver = Box<Connection<Wire>>;

/// A connection that a request uses.
pub(crate) struct Lease {
    handle: Handle,
    /// HTTP/1 alone.
    driver: Option<Driver>,
    upstream: Rc<Upstream>,
    is_reused: bool,
}

impl Lease {
    pub(super) fn new(
        handle: Handle,
        driver: Option<Driver>,
        upstream: Rc<Upstream>,
        is_reused: bool,
    ) -> Self {
        Self {
            handle,
            driver,
            upstream,
            is_reused,
        }
    }

    /// The way to make the request.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// True if the connection served requests before.
    pub(crate) fn is_reused(&self) -> bool {
        self.is_reused
    }

    /// True if the connection speaks HTTP/1.
    pub(crate) fn is_http1(&self) -> bool {
        self.upstream.is_http1()
    }

    /// Does `work` on the connection, which moves meanwhile.
    pub(crate) async fn drive<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let driver = &mut self.driver;
        poll_fn(|cx| {
            turn(driver, cx);
            let done = work.as_mut().poll(cx);
            // What the work has written leaves at once.
            turn(driver, cx);
            done
        })
        .await
    }

    /// Returns the connection. One of HTTP/1 waits for the next request if its exchange is complete, and else ends.
    pub(crate) fn give_back(mut self) {
        if let Some(driver) = self.driver.take()
            && self.handle.is_ready()
        {
            self.upstream.keep(self.handle.clone(), driver);
        }
    }
}

/// One turn of a driver. One that has ended goes; its exchange has heard why.
fn turn(driver: &mut Option<Driver>, cx: &mut Context<'_>) {
    if let Some(connection) = driver
        && Pin::new(&mut **connection).poll(cx).is_ready()
    {
        *driver = None;
    }
}

/// Whether an idle connection still stands, by what its socket or tunnel has said meanwhile.
pub(super) fn stands(handle: &Handle, driver: Driver) -> Option<Driver> {
    let mut driver = Some(driver);
    turn(&mut driver, &mut Context::from_waker(Waker::noop()));
    driver.filter(|_| handle.is_ready())
}
