//! On-demand subscriptions: the names that were asked for, the waiting callers, and the answers that are still believed. Pure
//! but for the waiting: time comes in as an argument.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use lateen_types::Strng;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::lookups::{Ask, LookupError, Place};

/// Names without an answer, at most; more are refused, not queued.
const MOST_PENDING: usize = 4096;

/// How long it is believed that there is nothing by a name. Meanwhile the control plane says so if that changes.
const NOTHING_FOR: Duration = Duration::from_secs(60);

/// Names by which there is nothing, at most; the oldest make room.
const MOST_NOTHING: usize = 4096;

/// The state of a name that is subscribed to.
#[derive(Debug)]
enum State {
    /// Asked at this time, not answered; it counts against the share of the pod that asked first.
    Pending(
        Instant,
        #[expect(dead_code, reason = "held for what its drop gives back")] Place,
        Vec<oneshot::Sender<Result<(), LookupError>>>,
    ),
    /// There is nothing, it was said at this time.
    Nothing(Instant),
    /// There is something: the names of the resources that brought it.
    Found(BTreeSet<String>),
}

/// All names that are subscribed to.
#[derive(Debug, Default)]
pub(crate) struct Demand {
    names: BTreeMap<Strng, State>,
    pending: usize,
    nothing: BTreeSet<(Instant, Strng)>,
}

/// What a response means for those who asked.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Names that are answered as soon as the response is in force.
    pub(crate) answered: Vec<Strng>,
    /// Names whose answer is gone with the response, to be unsubscribed.
    pub(crate) forgotten: Vec<Strng>,
    waiting: Vec<oneshot::Sender<Result<(), LookupError>>>,
}

impl Told {
    /// Tells those who waited. To be called when the response is in force.
    pub(crate) fn tell(self) {
        for waiting in self.waiting {
            // Whoever asked may have stopped waiting.
            let _ = waiting.send(Ok(()));
        }
    }
}

impl Demand {
    /// Takes a question in; whether the name has to be subscribed to.
    pub(crate) fn ask(&mut self, ask: Ask, now: Instant) -> Option<Strng> {
        let Ask {
            want,
            answer,
            place,
        } = ask;
        if answer.is_closed() {
            // Asked while there was no stream, and given up since.
            return None;
        }
        let name = want.name();
        let full = self.pending >= MOST_PENDING;
        let refused = match self.names.get_mut(name) {
            Some(State::Pending(_, _, waiting)) => {
                waiting.retain(|other| !other.is_closed());
                waiting.push(answer);
                return None;
            }
            // Somebody decided by an older snapshot than the one that has the answer.
            Some(State::Nothing(_) | State::Found(_)) => Ok(()),
            None if full => Err(LookupError::TooMany(want.clone())),
            None => {
                let pending = State::Pending(now, place, vec![answer]);
                self.names.insert(name.clone(), pending);
                self.pending += 1;
                return Some(name.clone());
            }
        };
        let _ = answer.send(refused);
        None
    }

    /// Reads a response: `found` are the resources' names, each with its aliases, `gone` what is not or no more.
    pub(crate) fn read<'a>(
        &mut self,
        found: impl Iterator<Item = (&'a str, &'a [String])>,
        gone: &[String],
        now: Instant,
    ) -> Told {
        let mut told = Told::default();
        if !gone.is_empty() {
            told.forgotten = self.lose(&gone.iter().map(String::as_str).collect());
        }
        for name in gone {
            if self.names.contains_key(name.as_str()) {
                self.answer(name, State::Nothing(now), &mut told);
                self.nothing.insert((now, name.as_str().into()));
            }
        }
        for (resource, aliases) in found {
            for name in [resource]
                .into_iter()
                .chain(aliases.iter().map(String::as_str))
            {
                if let Some(State::Found(by)) = self.names.get_mut(name) {
                    by.insert(resource.to_owned());
                } else if self.names.contains_key(name) {
                    let by = BTreeSet::from([resource.to_owned()]);
                    self.answer(name, State::Found(by), &mut told);
                }
            }
        }
        told
    }

    /// Resources are gone: the names that nothing answers any more, but for those of which the same response says that
    /// there is nothing. Whoever needs one asks again, for the control plane need not tell of another resource by the same
    /// alias. One pass, however many are gone: a response may name thousands.
    fn lose(&mut self, gone: &HashSet<&str>) -> Vec<Strng> {
        let mut lost = Vec::new();
        self.names.retain(|name, state| {
            let State::Found(by) = state else { return true };
            let before = by.len();
            by.retain(|resource| !gone.contains(resource.as_str()));
            let keep = before == by.len() || !by.is_empty() || gone.contains(&**name);
            if !keep {
                lost.push(name.clone());
            }
            keep
        });
        lost
    }

    fn answer(&mut self, name: &str, state: State, told: &mut Told) {
        let name: Strng = name.into();
        match self.names.insert(name.clone(), state) {
            Some(State::Pending(_, _, waiting)) => {
                self.pending -= 1;
                told.waiting.extend(waiting);
            }
            Some(State::Nothing(since)) => {
                self.nothing.remove(&(since, name.clone()));
            }
            Some(State::Found(_)) | None => {}
        }
        told.answered.push(name);
    }

    /// What is no longer to be believed or waited for; to be unsubscribed and forgotten.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<Strng> {
        let mut expired = Vec::new();
        while let Some((since, name)) = self.nothing.first().cloned()
            && (self.nothing.len() > MOST_NOTHING || since + NOTHING_FOR <= now)
        {
            self.nothing.pop_first();
            self.names.remove(&name);
            expired.push(name);
        }
        if self.pending > 0 {
            let abandoned: Vec<Strng> = self
                .names
                .iter()
                .filter(|(_, state)| match state {
                    State::Pending(since, _, waiting) => {
                        *since + NOTHING_FOR <= now && waiting.iter().all(|w| w.is_closed())
                    }
                    State::Nothing(_) | State::Found(_) => false,
                })
                .map(|(name, _)| name.clone())
                .collect();
            for name in abandoned {
                self.names.remove(&name);
                self.pending -= 1;
                expired.push(name);
            }
        }
        expired
    }

    /// All names, for the first request of a stream.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Strng> {
        self.names.keys()
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use lateen_config::Want;
    use proptest::prelude::*;

    use super::*;

    type Answer = oneshot::Receiver<Result<(), LookupError>>;

    fn ask(demand: &mut Demand, last: u8, now: Instant) -> (Option<Strng>, Answer) {
        let (answer, answered) = oneshot::channel();
        let want = Want::address(&"".into(), IpAddr::from([10, 0, 0, last]));
        let place = Place::of("pod");
        let ask = Ask {
            want,
            answer,
            place,
        };
        (demand.ask(ask, now), answered)
    }

    fn nobody<'a>() -> impl Iterator<Item = (&'a str, &'a [String])> {
        std::iter::empty()
    }

    #[test]
    fn many_who_ask_are_one_question_and_all_are_told() {
        let (mut demand, now) = (Demand::default(), Instant::now());
        let (subscribe, mut first) = ask(&mut demand, 1, now);
        assert_eq!(subscribe.as_deref(), Some("/10.0.0.1"));
        let (again, mut second) = ask(&mut demand, 1, now);
        assert_eq!(again, None);
        let aliases = ["/10.0.0.1".to_owned()];
        let told = demand.read([("uid", aliases.as_slice())].into_iter(), &[], now);
        assert_eq!(told.answered, ["/10.0.0.1".into()]);
        assert!(first.try_recv().is_err(), "told before it is in force");
        told.tell();
        assert_eq!(first.try_recv(), Ok(Ok(())));
        assert_eq!(second.try_recv(), Ok(Ok(())));
    }

    #[test]
    fn nothing_is_an_answer_for_a_while() {
        let (mut demand, now) = (Demand::default(), Instant::now());
        let _ = ask(&mut demand, 1, now);
        let told = demand.read(nobody(), &["/10.0.0.1".to_owned()], now);
        assert_eq!(told.answered, ["/10.0.0.1".into()]);
        assert_eq!(ask(&mut demand, 1, now).0, None);
        assert!(demand.expire(now + NOTHING_FOR / 2).is_empty());
        assert_eq!(demand.expire(now + NOTHING_FOR), ["/10.0.0.1".into()]);
        assert!(ask(&mut demand, 1, now).0.is_some(), "asked anew");
    }

    #[test]
    fn what_an_answer_rested_on_takes_it_along() {
        let (mut demand, now) = (Demand::default(), Instant::now());
        let _ = ask(&mut demand, 1, now);
        let aliases = ["/10.0.0.1".to_owned()];
        demand.read([("uid", aliases.as_slice())].into_iter(), &[], now);
        let told = demand.read(nobody(), &["uid".to_owned()], now);
        assert_eq!(told.forgotten, ["/10.0.0.1".into()]);
        assert!(
            ask(&mut demand, 1, now).0.is_some(),
            "another pod may have the address now"
        );
    }

    #[test]
    fn too_many_names_are_refused_and_abandoned_ones_make_room() {
        let (mut demand, now) = (Demand::default(), Instant::now());
        let mut wait = Vec::new();
        for at in 0..=MOST_PENDING {
            let [_, _, high, low] = (at as u32).to_be_bytes();
            let (answer, answered) = oneshot::channel();
            let want = Want::address(&"".into(), IpAddr::from([10, 0, high, low]));
            let place = Place::of("pod");
            let ask = Ask {
                want,
                answer,
                place,
            };
            demand.ask(ask, now);
            wait.push(answered);
        }
        let last = wait.pop().unwrap().try_recv();
        assert!(matches!(last, Ok(Err(LookupError::TooMany(_)))), "{last:?}");
        drop(wait);
        assert_eq!(demand.expire(now + NOTHING_FOR).len(), MOST_PENDING);
        assert_eq!(demand.names().count(), 0);
    }

    #[test]
    fn what_goes_with_its_own_name_is_known_to_be_nothing() {
        let (mut demand, now) = (Demand::default(), Instant::now());
        let _ = ask(&mut demand, 1, now);
        let alias = ["/10.0.0.1".to_owned()];
        demand.read([("uid", alias.as_slice())].into_iter(), &[], now);
        let gone = ["uid".to_owned(), "/10.0.0.1".to_owned()];
        let told = demand.read(nobody(), &gone, now);
        assert!(told.forgotten.is_empty(), "{told:?}");
        assert_eq!(ask(&mut demand, 1, now).0, None, "it is an answer");
    }

    proptest! {
        /// Whatever happens in whatever order, the counts are those of the names, and both are bounded.
        #[test]
        fn counts_hold(steps in prop::collection::vec((0u8..4, 0u8..6, 0u64..90), 0..60)) {
            let mut demand = Demand::default();
            let mut now = Instant::now();
            let mut wait = Vec::new();
            for (what, at, later) in steps {
                let alias = [format!("/10.0.0.{at}")];
                let uid = format!("uid{at}");
                match what {
                    0 => wait.push(ask(&mut demand, at, now).1),
                    1 => demand.read([(uid.as_str(), alias.as_slice())].into_iter(), &[], now).tell(),
                    2 => demand.read(nobody(), &alias, now).tell(),
                    _ => demand.read(nobody(), &[uid], now).tell(),
                }
                now += Duration::from_secs(later);
                demand.expire(now);
                let pending = demand.names.values().filter(|s| matches!(s, State::Pending(..))).count();
                let nothing = demand.names.values().filter(|s| matches!(s, State::Nothing(_))).count();
                prop_assert_eq!(pending, demand.pending);
                prop_assert_eq!(nothing, demand.nothing.len());
            }
        }
    }
}
