//! HTTP connections, which end when their destination leaves this waypoint.

use std::cell::Cell;
use std::rc::Rc;
use std::task::Context;

use lateen_config::l7::Standing;

use super::reviews::Place;
use super::session::Session;

/// The standing of a connection's destination to this waypoint, as of the newest configuration.
pub(super) struct Watched {
    place: Place,
    standing: Rc<Cell<Standing>>,
}

impl Watched {
    /// Watches the destination of a connection.
    pub(super) fn new(session: &Rc<Session>) -> Self {
        let standing = Rc::new(Cell::new(Standing::Bound));
        let (newest, own) = (Rc::clone(&standing), Rc::clone(session));
        let view = session.waypoint.view.borrow().clone();
        let place = session
            .waypoint
            .reviews
            .enter(view.as_deref(), move |view| {
                let now = own.standing(view);
                newest.replace(now) != now
            });
        Self { place, standing }
    }

    /// Returns the standing of the destination. The task is woken when that changes.
    pub(super) fn poll_standing(&self, cx: &Context<'_>) -> Standing {
        self.place.register(cx);
        self.standing.get()
    }
}
