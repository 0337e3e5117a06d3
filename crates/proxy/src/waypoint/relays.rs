//! Relayed connections and upgraded requests, which policies judge anew when they change.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use lateen_config::l7::{RequestRules, Standing};
use lateen_types::NamespacedName;

use super::policy::Verdict;
use super::reviews::Place;
use super::session::Session;

/// The sentence for a relay that later policies deny.
pub(super) const CHANGED: &str = "connection closed due to policy change";

/// The sentence for what the end of a drain cuts.
pub(super) const DRAINED: &str = "connection closed due to connection drain";

/// A relay under review.
///
/// A new configuration only marks the relays whose rules it changes, and wakes them. Each is judged in its own task, so that
/// the work takes the turns of the relay's peer. A relay that no change concerns does nothing.
pub(super) struct Tracked {
    place: Place,
    news: Rc<News>,
}

/// Why a relay is cut.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Denial {
    /// Its destination is no longer bound to this waypoint, which therefore does not know its policies.
    Unbound,
    /// The rules in force deny it.
    Policy {
        /// The policy that decided, where one did.
        policy: Option<NamespacedName>,
        /// The sentence for the log.
        reason: String,
    },
}

/// What the newest configuration says about a relay.
#[derive(Default)]
struct News {
    /// The newest rules; `None` before the first configuration.
    rules: RefCell<Option<Arc<RequestRules>>>,
    /// The newest rules have not admitted the relay.
    is_due: Cell<bool>,
    is_unbound: Cell<bool>,
}

impl News {
    /// Notes a configuration. True if the relay has something to do.
    fn note(&self, rules: &Arc<RequestRules>, standing: Standing) -> bool {
        let mut known = self.rules.borrow_mut();
        if known
            .as_ref()
            .is_none_or(|known| !Arc::ptr_eq(known, rules))
        {
            *known = Some(Arc::clone(rules));
            self.is_due.set(true);
        }
        self.is_unbound.set(standing == Standing::Unbound);
        self.is_due.get() || self.is_unbound.get()
    }

    /// Judges by the newest rules, unless they have admitted the relay before. Rules that came and went meanwhile do not count.
    fn judge(&self, judge: impl FnOnce(&RequestRules) -> Verdict) -> Option<Denial> {
        if self.is_unbound.get() {
            return Some(Denial::Unbound);
        }
        if !self.is_due.get() {
            return None;
        }
        let rules = self.rules.borrow();
        let verdict = rules.as_deref().map(judge);
        match verdict.and_then(Verdict::denial) {
            Some((policy, reason)) => Some(Denial::Policy { policy, reason }),
            None => {
                self.is_due.set(false);
                None
            }
        }
    }
}

impl Tracked {
    /// Tracks a relay. `admitted` are the rules that have admitted it; others that are in force by now have yet to judge it.
    pub(super) fn new(session: &Rc<Session>, admitted: Option<Arc<RequestRules>>) -> Self {
        let news = Rc::new(News {
            rules: RefCell::new(admitted),
            ..News::default()
        });
        let (noted, own) = (Rc::clone(&news), Rc::clone(session));
        let view = session.waypoint.view.borrow().clone();
        let place = session
            .waypoint
            .reviews
            .enter(view.as_deref(), move |view| {
                noted.note(view.request_rules(own.service_key()), own.standing(view))
            });
        Self { place, news }
    }

    /// The reason to cut the relay, if there is one now. `judge` decides by rules that have not judged it yet.
    pub(super) fn denial(&self, judge: impl FnOnce(&RequestRules) -> Verdict) -> Option<Denial> {
        self.news.judge(judge)
    }

    /// Resolves when the relay is to be cut. `judge` decides by each set of rules once.
    pub(super) async fn denied(&self, judge: impl Fn(&RequestRules) -> Verdict) -> Denial {
        poll_fn(|cx| match self.denial(&judge) {
            Some(denial) => Poll::Ready(denial),
            None => {
                self.place.register(cx);
                Poll::Pending
            }
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied() -> Verdict {
        Verdict::Denied {
            policy: None,
            reason: "no".to_owned(),
        }
    }

    #[test]
    fn rules_that_have_admitted_a_relay_do_not_judge_it_again() {
        let (first, second) = (Arc::default(), Arc::default());
        let news = News {
            rules: RefCell::new(Some(Arc::clone(&first))),
            ..News::default()
        };
        let unasked = |_: &RequestRules| -> Verdict { panic!("these rules have admitted it") };
        assert!(!news.note(&first, Standing::Bound));
        assert_eq!(news.judge(unasked), None);
        assert!(news.note(&second, Standing::Bound));
        assert_eq!(news.judge(|_| Verdict::Admitted), None);
        assert!(!news.note(&second, Standing::Bound), "the same rules");
        assert_eq!(news.judge(unasked), None);
    }

    #[test]
    fn only_the_newest_rules_judge_a_relay_that_had_no_turn_meanwhile() {
        let rules: [Arc<RequestRules>; 3] = Default::default();
        let news = News::default();
        for rules in &rules {
            assert!(news.note(rules, Standing::Bound));
        }
        let asked = Cell::new(0);
        let judge = |_: &RequestRules| {
            asked.set(asked.get() + 1);
            Verdict::Admitted
        };
        assert_eq!((news.judge(judge), news.judge(judge)), (None, None));
        assert_eq!(asked.get(), 1);
    }

    #[test]
    fn a_denial_holds_until_a_configuration_says_otherwise() {
        let (first, second) = (Arc::default(), Arc::default());
        let news = News::default();
        news.note(&first, Standing::Bound);
        for _ in 0..2 {
            assert!(matches!(
                news.judge(|_| denied()),
                Some(Denial::Policy { policy: None, reason }) if reason == "no"
            ));
        }
        assert!(news.note(&first, Standing::Unbound));
        assert_eq!(news.judge(|_| Verdict::Admitted), Some(Denial::Unbound));
        assert!(news.note(&second, Standing::Bound));
        assert_eq!(news.judge(|_| Verdict::Admitted), None);
    }
}
