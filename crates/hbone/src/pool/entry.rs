//! Tunnels of one key, the dial that is under way, and the choice among them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use lateen_executor::SharedGroup;
use tokio::sync::Notify;

use super::key::Users;
use crate::client::Tunnel;
use crate::error::TunnelError;

/// Limit of tunnels for one key that are dialled for congestion. Above it a tunnel is dialled only if all others are full.
const SPARES: usize = 4;

#[derive(Debug)]
pub(super) struct Entry<E> {
    pub(super) tunnels: Vec<Tunnel>,
    pub(super) dial: Option<Rc<Dial<E>>>,
    /// The group of the tunnels, if they serve several groups.
    pub(super) group: SharedGroup,
}

impl<E> Default for Entry<E> {
    fn default() -> Self {
        Entry {
            tunnels: Vec::new(),
            dial: None,
            group: SharedGroup::default(),
        }
    }
}

/// A dial under way.
#[derive(Debug)]
pub(super) struct Dial<E> {
    pub(super) tunnel: RefCell<Option<Tunnel>>,
    pub(super) failure: RefCell<Option<Failure<E>>>,
    pub(super) done: Notify,
    /// Whether [`super::Pool::retire`] has taken it out of use. Callers that wait for it look again.
    pub(super) retired: Cell<bool>,
}

#[derive(Debug, Clone)]
pub(super) enum Failure<E> {
    Dial(E),
    Handshake(Rc<TunnelError>),
}

impl<E> Entry<E> {
    /// Returns the first tunnel with room, so that the last ones become idle. It prefers a tunnel that is not congested.
    /// If all are congested, it returns the one with the least queued bytes, and `true` if one more should be dialled. A
    /// tunnel whose window is withheld in one direction carries nothing there. It is returned only where no more may be dialled.
    /// Unread streams count only where the tunnels are for [`Users::All`].
    ///
    /// A new tunnel whose stream limit is not known yet counts with the lowest known limit of the others, and with room for
    /// at least one stream.
    pub(super) fn with_room(&self, max_streams: usize, users: Users) -> Option<(Tunnel, bool)> {
        let known = self.tunnels.iter().filter_map(Tunnel::known_limit).min();
        let limit = |tunnel: &Tunnel| match tunnel.known_limit() {
            Some(limit) => limit.min(max_streams),
            None => known.unwrap_or(max_streams).clamp(1, max_streams),
        };
        let (mut fallback, mut last) = (None::<&Tunnel>, None);
        for tunnel in &self.tunnels {
            if tunnel.active() >= limit(tunnel) || !tunnel.usable() {
                continue;
            }
            if tunnel.withheld(users == Users::All) {
                last = last.or(Some(tunnel));
                continue;
            }
            if !tunnel.congested() {
                return Some((tunnel.clone(), false));
            }
            if fallback.is_none_or(|other| tunnel.queued() < other.queued()) {
                fallback = Some(tunnel);
            }
        }
        let more = self.tunnels.len() < SPARES;
        match (fallback, last) {
            (Some(tunnel), _) => Some((tunnel.clone(), more && self.dial.is_none())),
            (None, Some(tunnel)) if !more => Some((tunnel.clone(), false)),
            (None, _) => None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tunnels.is_empty() && self.dial.is_none()
    }
}
