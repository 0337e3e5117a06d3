//! Connections of HTTP/2 to one endpoint, each of which carries requests of many clients.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::{LocalBoxFuture, Shared};
use lateen_exchange::client::{self, Handle};
use lateen_exchange::{Account, Config};
use lateen_executor::SharedGroup;

use super::error::UpstreamError;
use super::lease::Lease;
use super::owner::Owner;
use super::wire::{Ends, Tunnels, Wire};

/// Connections to one endpoint that are kept at a time, as many as tunnels. An endpoint of which each takes few requests, or does not
/// read them, would collect them otherwise.
const MOST: usize = 256;

/// Bytes of frames that all connections to one endpoint leave unread, from which on no further one is opened. An endpoint that does not
/// read would collect heads of requests that were reset, for as long as accounts have room for them.
const UNREAD: usize = 4 << 20;

/// Bytes of heads of a full account, and of those within the same one, from which on none is opened for them.
const UNREAD_OF_FULL: usize = 64 << 10;

/// The number of connections that one request may open. Requests of others may fill each before it has its turn.
const OPENINGS: usize = 3;

/// The number of stalled connections to one endpoint from which on requests with content use them again. An endpoint that reads no content
/// at all would collect connections otherwise.
const STALLED: usize = 16;

/// The time for which the accounts that hold windows are known.
const JUDGED: Duration = Duration::from_millis(100);

/// The connection that is being opened, for all requests that wait for it.
type Opening = Shared<LocalBoxFuture<'static, Result<Opened, UpstreamError>>>;

/// A connection, and what it has brought.
#[derive(Clone)]
struct Opened {
    handle: Handle,
    /// The facts of the endpoint.
    ends: Option<Ends>,
    tunnels: Tunnels,
}

impl Opened {
    /// True if a request can be given to it now.
    fn is_ready(&self) -> bool {
        self.handle.is_ready() && !self.is_over()
    }

    /// True if it has room for a request of the account, if there is one.
    fn takes(&self, account: Option<&Account>) -> bool {
        account.is_none_or(|account| self.handle.has_room_for(account))
    }

    /// True if no further request is given to it. An endpoint that allows none on each connection would collect them.
    fn is_over(&self) -> bool {
        self.handle.is_closed() || self.handle.is_barred() || self.tunnels.are_leaving()
    }

    /// True if it need not be counted any more. An endpoint could say that each connection is to end, read no more of it, and so collect
    /// what waits for it.
    fn is_useless(&self) -> bool {
        self.is_over() && !self.handle.has_unsent()
    }

    fn lease(&self, is_reused: bool) -> Lease {
        Lease::shared((self.handle.clone(), self.ends.clone()), is_reused)
    }
}

/// The connections that the same requests use.
pub(super) struct SharedConnections {
    open: RefCell<Vec<Opened>>,
    opening: RefCell<Option<Opening>>,
    /// The accounts that hold windows of stalled connections, and the time of the last look.
    holders: RefCell<(Option<Instant>, Vec<Account>)>,
    /// The owner; `None`: all sources share them.
    owner: Option<Owner>,
    /// The group of the tasks that drive them. `None`: they take the turns of the only source.
    group: Option<SharedGroup>,
}

impl Default for SharedConnections {
    fn default() -> Self {
        Self {
            open: RefCell::default(),
            opening: RefCell::default(),
            holders: RefCell::default(),
            owner: None,
            group: Some(SharedGroup::default()),
        }
    }
}

impl SharedConnections {
    /// Connections of one owner.
    pub(super) fn of(owner: Owner) -> Self {
        let group = match owner {
            Owner::Source(_) => None,
            Owner::Namespace(..) => Some(SharedGroup::default()),
        };
        Self {
            owner: Some(owner),
            group,
            ..Self::default()
        }
    }

    fn full(&self, address: SocketAddr) -> UpstreamError {
        let full = UpstreamError::Full(address);
        match &self.owner {
            None => full,
            Some(owner) => full.of_owner(owner),
        }
    }

    /// A connection that takes a request of this account now. `open` opens a byte stream to `address` where there is none.
    ///
    /// A stalled connection is enough for a request without content, which waits for no opening then.
    ///
    /// # Errors
    /// There is none, and none could be opened.
    pub(super) async fn lease<F>(
        &self,
        address: SocketAddr,
        account: &Account,
        has_content: bool,
        config: impl Fn() -> Config,
        open: impl Fn() -> F,
    ) -> Result<Lease, UpstreamError>
    where
        F: Future<Output = Result<Wire, UpstreamError>> + 'static,
    {
        let mut left = OPENINGS;
        // Content alone needs the window. The opening may take long, and an endpoint that drops connections lets it fail.
        let least = if has_content { STALLED } else { 1 };
        loop {
            if let Some(lease) = self
                .ready(Some(account))
                .or_else(|| self.stalled(least, Some(account)))
            {
                return Ok(lease);
            }
            self.drop_unawaited();
            let under_way = self.opening.borrow().clone();
            let opening = match under_way {
                Some(opening) => opening,
                // The connections that were opened for this request are full, and so are all others.
                None if left == 0 || self.is_full(account) => {
                    let open = self.ready(None).or_else(|| self.stalled(1, None));
                    return open.ok_or_else(|| self.full(address));
                }
                None => {
                    left -= 1;
                    let opening = connect(open(), config(), self.group())
                        .boxed_local()
                        .shared();
                    self.opening.replace(Some(opening.clone()));
                    opening
                }
            };
            let opened = opening.clone().await;
            // Of all that waited, the first one that runs enters it.
            let is_first = self
                .opening
                .borrow_mut()
                .take_if(|open| open.ptr_eq(&opening))
                .is_some();
            let opened = match opened {
                Ok(opened) => opened,
                Err(error) => {
                    let open = self.ready(Some(account));
                    let open = open.or_else(|| self.stalled(1, Some(account)));
                    return open.ok_or(error);
                }
            };
            if is_first {
                self.open.borrow_mut().push(opened.clone());
            }
            if opened.handle.is_ready() {
                return Ok(opened.lease(!is_first));
            }
            // An endpoint that allows no stream would allow none on the next one either.
            if opened.handle.is_barred() {
                return Err(self.full(address));
            }
        }
    }

    /// A connection that is not stalled, and has room for the account if there is one. Those that take no more requests go.
    fn ready(&self, account: Option<&Account>) -> Option<Lease> {
        self.drop_useless();
        let open = self.open.borrow();
        let mut ready = open.iter().filter(|opened| opened.is_ready());
        let ready = ready.find(|opened| !opened.handle.is_stalled() && opened.takes(account));
        ready.map(|opened| opened.lease(true))
    }

    /// A stalled connection, with room for the account if there is one, if at least so many are stalled.
    fn stalled(&self, least: usize, account: Option<&Account>) -> Option<Lease> {
        let open = self.open.borrow();
        let stalled = || open.iter().filter(|opened| opened.handle.is_stalled());
        if stalled().count() < least {
            return None;
        }
        let opened = stalled().find(|opened| opened.is_ready() && opened.takes(account))?;
        Some(opened.lease(true))
    }

    /// True if no further connection is opened for the account.
    fn is_full(&self, account: &Account) -> bool {
        let open = self.open.borrow();
        let unread: usize = open.iter().map(|opened| opened.handle.unread()).sum();
        let heads = || {
            open.iter()
                .map(|opened| opened.handle.unread_blocks(account))
        };
        let leaves_many = || heads().sum::<usize>() >= UNREAD_OF_FULL;
        open.len() >= MOST
            || unread >= UNREAD
            || account.is_full() && (account.has_many_blocks() || leaves_many())
    }

    /// True if a connection is stalled because the endpoint does not read content that the namespace of this account has sent.
    pub(super) fn is_held_by(&self, account: &Account, now: Instant) -> bool {
        let open = self.open.borrow();
        let stalled = || open.iter().filter(|opened| opened.handle.is_stalled());
        let (judged, holders) = &mut *self.holders.borrow_mut();
        if stalled().next().is_none() {
            holders.clear();
            return false;
        }
        // Holders change seldom, and a look at all requests of all connections takes long.
        if judged.is_none_or(|judged| now.saturating_duration_since(judged) >= JUDGED) {
            *judged = Some(now);
            *holders = stalled()
                .flat_map(|opened| opened.handle.holders())
                .collect();
        }
        holders.iter().any(|holder| holder.is_beside(account))
    }

    /// The group of the tasks that drive them, if they serve several sources.
    pub(super) fn group(&self) -> Option<SharedGroup> {
        self.group.clone()
    }

    /// True without a connection.
    pub(super) fn is_empty(&self) -> bool {
        self.open.borrow().is_empty()
    }

    /// Lets all of them go: each ends behind its requests.
    pub(super) fn clear(&self) {
        drop(self.open.take());
    }

    /// Lets go of what no request can use.
    pub(super) fn tidy(&self) {
        self.drop_useless();
        self.drop_unawaited();
    }

    /// Drops an opening that all its requests have left. It would not move, since they poll it, while its time runs out.
    fn drop_unawaited(&self) {
        let unawaited = |opening: &mut Opening| opening.strong_count() == Some(1);
        let left = self.opening.borrow_mut().take_if(unawaited);
        // Its stream may wake others as it ends.
        drop(left);
    }

    /// Lets connections go that take no requests.
    fn drop_useless(&self) {
        let useless: Vec<_> = {
            let mut open = self.open.borrow_mut();
            open.extract_if(.., |opened| opened.is_useless()).collect()
        };
        // The last handle wakes its connection, which ends.
        drop(useless);
    }
}

/// Opens a connection. A task of `group` drives it, or one of the running group if there is none.
async fn connect(
    stream: impl Future<Output = Result<Wire, UpstreamError>>,
    config: Config,
    group: Option<SharedGroup>,
) -> Result<Opened, UpstreamError> {
    let stream = stream.await?;
    let (ends, tunnels) = (stream.ends(), stream.tunnels());
    let (handle, driver) = client::open(stream, config);
    let driving = async move {
        if let Err(error) = driver.await {
            tracing::debug!(%error, "a connection to an endpoint ended");
        }
    };
    match group {
        // The client that caused it would pay for the requests of all others.
        Some(group) => group.spawn(driving),
        None => lateen_executor::spawn_local(driving),
    }
    Ok(Opened {
        handle,
        ends,
        tunnels,
    })
}

#[cfg(test)]
mod tests;
