//! Relayed connections, which policies judge anew when they change.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use lateen_config::l7::{RequestRules, Standing};

use super::policy::Judge;
use super::reviews::Place;
use super::session::Session;

/// A relayed connection under review.
pub(super) struct Tracked {
    place: Place,
    is_denied: Rc<Cell<bool>>,
}

impl Tracked {
    /// Tracks a connection that these rules have admitted. Rules that have come since judge it at once. Without a Binding of its
    /// destination none can, and it is denied.
    pub(super) fn new(session: &Rc<Session>, rules: Arc<RequestRules>) -> Self {
        let is_denied = Rc::new(Cell::new(false));
        let (verdict, judged) = (Rc::clone(&is_denied), RefCell::new(rules));
        let own = Rc::clone(session);
        let view = session.waypoint.view.borrow().clone();
        let place = session
            .waypoint
            .reviews
            .enter(view.as_deref(), move |view| {
                let rules = view.request_rules(own.service_key());
                let is_new = !Arc::ptr_eq(&judged.borrow(), rules);
                let is_gone = own.standing(view) == Standing::Unbound;
                if is_new {
                    judged.replace(Arc::clone(rules));
                }
                if is_gone || is_new && !Judge::admits(rules, &own.peer_facts()) {
                    verdict.set(true);
                }
                verdict.get()
            });
        Self { place, is_denied }
    }

    /// True if a policy denies the connection.
    pub(super) fn is_denied(&self) -> bool {
        self.is_denied.get()
    }

    /// Resolves when a policy denies the connection.
    pub(super) async fn denied(&self) {
        poll_fn(|cx| match self.is_denied() {
            true => Poll::Ready(()),
            false => {
                self.place.register(cx);
                Poll::Pending
            }
        })
        .await;
    }
}
