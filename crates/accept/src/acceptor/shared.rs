//! State that the acceptor, its thread and the registrations of listeners share.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::epoll::{Epoll, EpollFlags};
use nix::sys::eventfd::EventFd;

use super::loads::LoadGuard;
use crate::fd_quota::FdQuota;

/// The eventfd that ends the thread.
pub(super) const WAKE: u64 = u64::MAX;

/// A connection on its way to a worker.
#[derive(Debug)]
pub struct Accepted<T> {
    /// Non-blocking, close-on-exec; carries the options of its listener.
    pub stream: OwnedFd,
    /// The client's address.
    pub peer: SocketAddr,
    /// What the listener was registered with.
    pub tag: T,
    /// Keep it as long as the connection lives: the worker counts as loaded until it is dropped.
    pub load: LoadGuard,
}

#[derive(Debug)]
pub(super) struct Shared<T> {
    pub(super) epoll: Epoll,
    /// How listeners are watched.
    pub(super) events: EpollFlags,
    pub(super) wake: EventFd,
    pub(super) listeners: Mutex<Registered<T>>,
}

#[derive(Debug)]
pub(super) struct Registered<T> {
    pub(super) next: u64,
    pub(super) by_id: HashMap<u64, Listener<T>>,
}

#[derive(Debug)]
pub(super) struct Listener<T> {
    pub(super) socket: OwnedFd,
    pub(super) tag: T,
    pub(super) quota: Arc<FdQuota>,
    /// Descriptors that one of its connections needs.
    pub(super) cost: u32,
}

impl<T> Shared<T> {
    pub(super) fn lock(&self) -> MutexGuard<'_, Registered<T>> {
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
