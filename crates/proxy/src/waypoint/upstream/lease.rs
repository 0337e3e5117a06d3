//! A connection to an endpoint for as long as one request uses it.
//!
//! A connection of HTTP/1 belongs to its request, which drives it: no task stands between the two. A connection of HTTP/2
//! is driven by a task of its own and shared.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;

use lateen_exchange::client::Handle;

use super::idle::{Driver, IdleConnections, Owned, turn};
use super::owner::Assigned;
use super::wire::Ends;

/// A connection that a request uses.
pub(crate) struct Lease {
    handle: Handle,
    /// `None`: the connection speaks HTTP/2.
    own: Option<Own>,
    /// The facts of the endpoint that the connection brought.
    ends: Option<Ends>,
    is_reused: bool,
    /// The request's place with the endpoint, for as long as the request uses the connection.
    _assigned: Option<Assigned>,
}

/// The driver of a connection of HTTP/1, and the pool that the connection returns to.
struct Own {
    /// None once the connection has ended.
    driver: Option<Driver>,
    /// The idle connections that it returns to.
    idle: Rc<IdleConnections>,
}

impl Lease {
    /// A connection of HTTP/1, which its request drives.
    pub(super) fn own(
        ((handle, driver), ends): (Owned, Option<Ends>),
        idle: Rc<IdleConnections>,
        assigned: Option<Assigned>,
        is_reused: bool,
    ) -> Self {
        Self {
            handle,
            own: Some(Own {
                driver: Some(driver),
                idle,
            }),
            ends,
            is_reused,
            _assigned: assigned,
        }
    }

    /// A connection of HTTP/2, which others use as well.
    pub(super) fn shared((handle, ends): (Handle, Option<Ends>), is_reused: bool) -> Self {
        Self {
            handle,
            own: None,
            ends,
            is_reused,
            _assigned: None,
        }
    }

    /// Gives up a place with the endpoint when the request is done with the connection.
    pub(super) fn with_place(self, assigned: Assigned) -> Self {
        Self {
            _assigned: Some(assigned),
            ..self
        }
    }

    /// The way to make the request.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// The facts of the endpoint that the connection brought.
    pub(crate) fn ends(&self) -> Option<Ends> {
        self.ends.clone()
    }

    /// The address at the far end of a connection in plain text.
    pub(crate) fn remote(&self) -> Option<SocketAddr> {
        match &self.ends {
            Some(Ends::Addresses { remote, .. }) => Some(*remote),
            _ => None,
        }
    }

    /// True if the connection served requests before.
    pub(crate) fn is_reused(&self) -> bool {
        self.is_reused
    }

    /// True if the connection was idle when its open requests were given to it, and has said nothing since.
    pub(crate) fn was_idle(&self) -> bool {
        self.is_reused && (self.is_http1() || self.handle.was_at_rest())
    }

    /// True if the connection speaks HTTP/1.
    pub(crate) fn is_http1(&self) -> bool {
        self.own.is_some()
    }

    /// Does `work` on the connection, which moves meanwhile.
    pub(crate) async fn drive<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let mut none = None;
        let driver = match &mut self.own {
            Some(own) => &mut own.driver,
            None => &mut none,
        };
        poll_fn(|cx| {
            turn(driver, cx);
            let Some(connection) = driver else {
                return work.as_mut().poll(cx);
            };
            let (done, is_due) = connection.attend(|| work.as_mut().poll(cx));
            if is_due {
                // The bytes that the work has written leave at once.
                turn(driver, cx);
            }
            done
        })
        .await
    }

    /// Returns the connection. One of HTTP/1 waits for the next request if its exchange is complete and its tunnel stays. Else it
    /// ends, which lets the peer of such a tunnel end it.
    pub(crate) fn give_back(self) {
        if let Some(Own {
            driver: Some(driver),
            idle,
            ..
        }) = self.own
            && self.handle.is_ready()
            && !driver.io().is_leaving()
        {
            idle.keep((self.handle, driver), self.ends);
        }
    }
}
