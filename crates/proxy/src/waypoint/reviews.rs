//! Connections of a worker that look at each new configuration.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Waker};

use slab::Slab;

use super::view::View;

/// The connections that look.
#[derive(Clone, Default)]
pub(super) struct Reviews(Rc<RefCell<Slab<Rc<Entry>>>>);

struct Entry {
    /// Looks at a configuration. True if the connection has something to do.
    look: Box<dyn Fn(&View) -> bool>,
    task: RefCell<Option<Waker>>,
}

/// The place of a connection, for as long as it lives.
pub(super) struct Place {
    reviews: Reviews,
    key: usize,
    entry: Rc<Entry>,
}

impl Reviews {
    /// Enters a connection. It looks at the configuration in force at once.
    pub(super) fn enter(
        &self,
        view: Option<&View>,
        look: impl Fn(&View) -> bool + 'static,
    ) -> Place {
        if let Some(view) = view {
            look(view);
        }
        let entry = Rc::new(Entry {
            look: Box::new(look),
            task: RefCell::new(None),
        });
        let key = self.0.borrow_mut().insert(Rc::clone(&entry));
        Place {
            reviews: self.clone(),
            key,
            entry,
        }
    }

    /// Has all connections look at a configuration, and wakes those that have something to do.
    pub(super) fn review(&self, view: &View) {
        let concerned: Vec<_> = {
            let entries = self.0.borrow();
            let concerned = entries.iter().filter(|(_, entry)| (entry.look)(view));
            concerned
                .filter_map(|(_, entry)| entry.task.take())
                .collect()
        };
        // A task may end when it is woken, and leaves the table then.
        concerned.into_iter().for_each(Waker::wake);
    }
}

impl Place {
    /// Has the task woken when the connection has something to do.
    pub(super) fn register(&self, cx: &Context<'_>) {
        let mut task = self.entry.task.borrow_mut();
        if task.as_ref().is_none_or(|task| !task.will_wake(cx.waker())) {
            *task = Some(cx.waker().clone());
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.reviews.0.borrow_mut().remove(self.key);
    }
}
