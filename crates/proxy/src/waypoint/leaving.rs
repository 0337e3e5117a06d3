//! HTTP connections of a worker, which are told when their destination leaves this waypoint.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Waker};

use lateen_config::l7::Standing;
use slab::Slab;

use super::session::Session;
use super::view::View;

/// The HTTP connections of a worker.
#[derive(Clone, Default)]
pub(super) struct HttpConnections(Rc<RefCell<Slab<Rc<Entry>>>>);

struct Entry {
    session: Rc<Session>,
    standing: Cell<Standing>,
    task: RefCell<Option<Waker>>,
}

/// The place of an HTTP connection, for as long as it lives.
pub(super) struct Place {
    connections: HttpConnections,
    key: usize,
    entry: Rc<Entry>,
}

impl HttpConnections {
    /// Enters a connection.
    pub(super) fn enter(&self, session: &Rc<Session>) -> Place {
        let entry = Rc::new(Entry {
            session: Rc::clone(session),
            standing: Cell::new(Standing::Bound),
            task: RefCell::new(None),
        });
        if let Some(view) = &*session.waypoint.view.borrow() {
            entry.review(view);
        }
        let key = self.0.borrow_mut().insert(Rc::clone(&entry));
        Place {
            connections: self.clone(),
            key,
            entry,
        }
    }

    /// Wakes the connections whose destination stands otherwise than before.
    pub(super) fn review(&self, view: &View) {
        let changed: Vec<_> = {
            let entries = self.0.borrow();
            let changed = entries.iter().filter(|(_, entry)| entry.review(view));
            changed.filter_map(|(_, entry)| entry.task.take()).collect()
        };
        changed.into_iter().for_each(Waker::wake);
    }
}

impl Entry {
    /// Whether the destination stands otherwise than before.
    fn review(&self, view: &View) -> bool {
        let now = self.session.standing(view);
        self.standing.replace(now) != now
    }
}

impl Place {
    /// How the destination stands. The task is woken when that changes.
    pub(super) fn poll_standing(&self, cx: &Context<'_>) -> Standing {
        let mut task = self.entry.task.borrow_mut();
        if task.as_ref().is_none_or(|task| !task.will_wake(cx.waker())) {
            *task = Some(cx.waker().clone());
        }
        self.entry.standing.get()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.0.borrow_mut().remove(self.key);
    }
}
