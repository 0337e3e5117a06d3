//! Relayed connections of a worker, which policies judge anew when they change.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use lateen_config::l7::{RequestRules, Standing};
use slab::Slab;

use super::policy::Judge;
use super::session::Session;
use super::view::View;

/// The relayed connections of a worker.
#[derive(Clone, Default)]
pub(super) struct Relays(Rc<RefCell<Slab<Rc<Entry>>>>);

struct Entry {
    session: Rc<Session>,
    /// The rules that admitted it.
    rules: RefCell<Arc<RequestRules>>,
    is_denied: Cell<bool>,
    task: RefCell<Option<Waker>>,
}

/// The place of a relayed connection, for as long as it lives.
pub(super) struct Tracked {
    relays: Relays,
    key: usize,
    entry: Rc<Entry>,
}

impl Relays {
    /// Enters a connection that these rules have admitted. Rules that have come since judge it at once.
    pub(super) fn enter(&self, session: &Rc<Session>, rules: Arc<RequestRules>) -> Tracked {
        let entry = Rc::new(Entry {
            session: Rc::clone(session),
            rules: RefCell::new(rules),
            is_denied: Cell::new(false),
            task: RefCell::new(None),
        });
        if let Some(view) = &*session.waypoint.view.borrow() {
            entry.review(view);
        }
        let key = self.0.borrow_mut().insert(Rc::clone(&entry));
        Tracked {
            relays: self.clone(),
            key,
            entry,
        }
    }

    /// Judges all connections whose rules have changed.
    pub(super) fn review(&self, view: &View) {
        let denied: Vec<_> = {
            let entries = self.0.borrow();
            let denied = entries.iter().filter(|(_, entry)| entry.review(view));
            denied.filter_map(|(_, entry)| entry.task.take()).collect()
        };
        // A task may end when it is woken, and leaves the table then.
        denied.into_iter().for_each(Waker::wake);
    }
}

impl Entry {
    /// Whether a policy that now counts denies the connection, or none can: the destination is no longer bound to this waypoint.
    fn review(&self, view: &View) -> bool {
        if self.session.standing(view) == Standing::Unbound {
            self.is_denied.set(true);
            return true;
        }
        let rules = view.request_rules(self.session.service_key());
        if !Arc::ptr_eq(&self.rules.borrow(), rules) {
            self.rules.replace(Arc::clone(rules));
            let admits = Judge::admits(rules, &self.session.peer_facts());
            self.is_denied.set(self.is_denied.get() || !admits);
        }
        self.is_denied.get()
    }
}

impl Tracked {
    /// True once a policy denies the connection.
    pub(super) fn is_denied(&self) -> bool {
        self.entry.is_denied.get()
    }

    /// Resolves when a policy denies the connection.
    pub(super) async fn denied(&self) {
        poll_fn(|cx| match self.entry.is_denied.get() {
            true => Poll::Ready(()),
            false => {
                self.entry.task.replace(Some(cx.waker().clone()));
                Poll::Pending
            }
        })
        .await;
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.relays.0.borrow_mut().remove(self.key);
    }
}
