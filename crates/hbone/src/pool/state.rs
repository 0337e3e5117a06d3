//! State of a pool, which its tunnels' tasks share.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

use super::entry::Entry;
use super::key::PoolKey;
use crate::client::Token;
use crate::error::CloseReason;
use crate::settings::Settings;

#[derive(Debug)]
pub(super) struct Inner<E> {
    pub(super) settings: Settings,
    pub(super) max_streams: usize,
    /// See [`super::Pool::share_among_groups`].
    pub(super) is_shared: Cell<bool>,
    pub(super) entries: RefCell<HashMap<PoolKey, Entry<E>>>,
    /// Every tunnel that has not ended, retired ones too.
    pub(super) driven: RefCell<Vec<(PoolKey, Token)>>,
    pub(super) closed: Observer,
    pub(super) numbers: Numbers,
}

pub(super) type OnClose = Rc<dyn Fn(&PoolKey, CloseReason)>;

/// Callback for tunnels that have ended.
pub(super) struct Observer(pub(super) RefCell<OnClose>);

impl Observer {
    pub(super) fn tell(&self, key: &PoolKey, reason: CloseReason) {
        // The callback may use the pool, so no borrow may be held.
        let observer = Rc::clone(&*self.0.borrow());
        observer(key, reason);
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

/// Source of tunnels' numbers.
pub(super) struct Numbers(pub(super) RefCell<Box<dyn Fn() -> u64>>);

impl fmt::Debug for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Numbers")
    }
}
