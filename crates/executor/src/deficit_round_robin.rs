//! Deficit round robin (Shreedhar and Varghese, SIGCOMM 1995) over time instead of bytes. The cost of an item is known only
//! afterwards. So a group is charged after the fact, may run into debt, and pays the debt before its next turn.

use std::collections::VecDeque;
use std::time::Duration;

use slab::Slab;

/// Debt that is remembered, in quanta: one very long item must not lock its group out for good.
const MAX_DEBT: i64 = 50;

/// A group's name; reused after [`DeficitRoundRobin::remove`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key(usize);

/// Items that wait in their groups' queues, and whose turn it is.
#[derive(Debug)]
pub struct DeficitRoundRobin<T> {
    groups: Slab<Group<T>>,
    /// Groups with items, the one whose turn it is first.
    ring: VecDeque<usize>,
    quantum: i64,
}

#[derive(Debug)]
struct Group<T> {
    queue: VecDeque<T>,
    listed: bool,
    /// Nanoseconds that it may still use in this turn; negative: debt.
    credit: i64,
    /// Since when it has had nothing to do; debt is forgiven as that time passes.
    idle_since: Option<Duration>,
    used: Duration,
}

impl<T> DeficitRoundRobin<T> {
    /// No groups yet. Each turn lasts `quantum`, at least 1 ns.
    pub fn new(quantum: Duration) -> Self {
        Self {
            groups: Slab::new(),
            ring: VecDeque::new(),
            quantum: nanos(quantum).max(1),
        }
    }

    /// A new group, without items.
    pub fn add(&mut self) -> Key {
        Key(self.groups.insert(Group {
            queue: VecDeque::new(),
            listed: false,
            credit: 0,
            idle_since: Some(Duration::ZERO),
            used: Duration::ZERO,
        }))
    }

    /// Forgets a group; what still waited in it is returned.
    pub fn remove(&mut self, key: Key) -> VecDeque<T> {
        let Some(group) = self.groups.try_remove(key.0) else {
            return VecDeque::new();
        };
        if group.listed {
            self.ring.retain(|&listed| listed != key.0);
        }
        group.queue
    }

    /// Queues an item in its group. An item of a group that is gone is given back.
    pub fn push(&mut self, key: Key, item: T) -> Option<T> {
        let Some(group) = self.groups.get_mut(key.0) else {
            return Some(item);
        };
        group.queue.push_back(item);
        if !group.listed {
            group.listed = true;
            self.ring.push_back(key.0);
        }
        None
    }

    /// The next item, and the group to charge for it. `now` is the time on any clock that does not go back.
    pub fn next(&mut self, now: Duration) -> Option<(Key, T)> {
        loop {
            let &first = self.ring.front()?;
            let alone = self.ring.len() == 1;
            let group = self.groups.get_mut(first)?;
            if let Some(since) = group.idle_since.take() {
                // It has just come: its turn is whole but for what it still owes.
                let idle = nanos(now.saturating_sub(since));
                group.credit = group.credit.saturating_add(idle).min(0) + self.quantum;
            }
            if group.queue.is_empty() {
                self.ring.pop_front();
                group.listed = false;
                group.credit = group.credit.min(0);
                group.idle_since = Some(now);
            } else if group.credit > 0 {
                return group.queue.pop_front().map(|item| (Key(first), item));
            } else if alone {
                // Nobody waits: there is nothing to share and no debt to pay.
                group.credit = self.quantum;
            } else {
                // Its turn is over; this is for its next one.
                group.credit += self.quantum;
                self.ring.rotate_left(1);
            }
        }
    }

    /// Charges a group for an item that it was given by [`DeficitRoundRobin::next`].
    pub fn charge(&mut self, key: Key, spent: Duration) {
        if let Some(group) = self.groups.get_mut(key.0) {
            group.credit = (group.credit - nanos(spent)).max(-MAX_DEBT * self.quantum);
            group.used += spent;
        }
    }

    /// What a group was charged since it was added.
    pub fn used(&self, key: Key) -> Duration {
        self.groups
            .get(key.0)
            .map_or(Duration::ZERO, |group| group.used)
    }

    /// Whether no item waits.
    pub fn is_empty(&self) -> bool {
        // Only the group whose turn it is may be listed without items.
        self.ring
            .iter()
            .all(|&listed| self.groups[listed].queue.is_empty())
    }

    /// Takes every item that waits, in no particular order.
    pub fn drain(&mut self) -> Vec<T> {
        self.ring.clear();
        self.groups
            .iter_mut()
            .flat_map(|(_, group)| {
                group.listed = false;
                std::mem::take(&mut group.queue)
            })
            .collect()
    }
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const QUANTUM: Duration = Duration::from_micros(200);

    /// Serves for `total` of virtual time; `cost` says what an item of a group costs. Every item served is queued again.
    /// Returns what each group used and the longest time that each waited between two items.
    fn serve(
        rounds: &mut DeficitRoundRobin<usize>,
        keys: &[Key],
        total: Duration,
        cost: impl Fn(usize) -> Duration,
    ) -> Vec<(Duration, Duration)> {
        let mut now = Duration::from_secs(1);
        let end = now + total;
        let mut last = vec![now; keys.len()];
        let mut longest = vec![Duration::ZERO; keys.len()];
        let before: Vec<_> = keys.iter().map(|&key| rounds.used(key)).collect();
        while now < end {
            let Some((key, group)) = rounds.next(now) else {
                break;
            };
            longest[group] = longest[group].max(now - last[group]);
            now += cost(group);
            last[group] = now;
            rounds.charge(key, cost(group));
            rounds.push(key, group);
        }
        keys.iter()
            .zip(before)
            .zip(longest)
            .map(|((&key, before), longest)| (rounds.used(key) - before, longest))
            .collect()
    }

    proptest! {
        #[test]
        fn groups_that_always_have_work_get_equal_time(
            costs in prop::collection::vec(1u64..400, 2..8),
            tasks in prop::collection::vec(1usize..50, 8),
        ) {
            let mut rounds = DeficitRoundRobin::new(QUANTUM);
            let keys: Vec<Key> = costs.iter().map(|_| rounds.add()).collect();
            for (group, &key) in keys.iter().enumerate() {
                for _ in 0..tasks[group] {
                    prop_assert!(rounds.push(key, group).is_none());
                }
            }
            let dearest = Duration::from_micros(*costs.iter().max().expect("two at least"));
            let served = serve(&mut rounds, &keys, Duration::from_millis(400), |group| Duration::from_micros(costs[group]));
            let most = served.iter().map(|(used, _)| *used).max().expect("two at least");
            let least = served.iter().map(|(used, _)| *used).min().expect("two at least");
            prop_assert!(most - least <= 2 * (QUANTUM + dearest), "{served:?}");
            let bound = 2 * u32::try_from(costs.len()).expect("few") * (QUANTUM + dearest);
            prop_assert!(served.iter().all(|(_, longest)| *longest <= bound), "{served:?} waits over {bound:?}");
        }

        #[test]
        fn every_item_comes_out_once(pushes in prop::collection::vec(0usize..5, 0..200)) {
            let mut rounds = DeficitRoundRobin::new(QUANTUM);
            let keys: Vec<Key> = (0..5).map(|_| rounds.add()).collect();
            for (item, &group) in pushes.iter().enumerate() {
                prop_assert!(rounds.push(keys[group], item).is_none());
            }
            let mut out = Vec::new();
            let mut now = Duration::ZERO;
            while let Some((key, item)) = rounds.next(now) {
                prop_assert_eq!(key, keys[pushes[item]]);
                out.push(item);
                now += Duration::from_micros(70);
                rounds.charge(key, Duration::from_micros(70));
            }
            prop_assert!(rounds.is_empty());
            out.sort_unstable();
            prop_assert_eq!(out, (0..pushes.len()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn many_tasks_do_not_make_a_larger_share() {
        let mut rounds = DeficitRoundRobin::new(QUANTUM);
        let keys = [rounds.add(), rounds.add()];
        for _ in 0..2000 {
            rounds.push(keys[0], 0);
        }
        rounds.push(keys[1], 1);
        let served = serve(&mut rounds, &keys, Duration::from_millis(100), |_| {
            Duration::from_micros(20)
        });
        assert!(served[1].0 >= Duration::from_millis(49), "{served:?}");
    }

    #[test]
    fn one_group_alone_pays_nothing_for_its_debt() {
        let mut rounds = DeficitRoundRobin::new(QUANTUM);
        let key = rounds.add();
        rounds.push(key, ());
        rounds.charge(key, Duration::from_secs(1));
        assert!(rounds.next(Duration::ZERO).is_some());
    }

    #[test]
    fn debt_is_paid_while_others_wait_and_forgiven_by_time() {
        let mut rounds = DeficitRoundRobin::new(QUANTUM);
        let (debtor, other) = (rounds.add(), rounds.add());
        let mut now = Duration::from_secs(1);
        rounds.push(debtor, "debtor");
        assert!(rounds.next(now).is_some());
        rounds.charge(debtor, 5 * QUANTUM);
        now += 5 * QUANTUM;
        assert!(rounds.next(now).is_none());

        // At once again: the other one is served four times before.
        rounds.push(debtor, "debtor");
        let mut order = Vec::new();
        while order.last() != Some(&"debtor") {
            if !order.is_empty() || rounds.used(other).is_zero() {
                rounds.push(other, "other");
            }
            let (key, item) = rounds.next(now).expect("two are waiting");
            rounds.charge(key, QUANTUM);
            now += QUANTUM;
            order.push(item);
        }
        assert!((4..=6).contains(&order.len()), "{order:?}");

        // Much later nobody remembers.
        while rounds.next(now).is_some() {}
        rounds.charge(debtor, 20 * QUANTUM);
        now += 40 * QUANTUM;
        rounds.push(debtor, "debtor");
        rounds.push(other, "other");
        assert_eq!(rounds.next(now).map(|(_, item)| item), Some("debtor"));
    }

    #[test]
    fn a_group_that_is_gone_takes_and_gives_nothing() {
        let mut rounds = DeficitRoundRobin::new(QUANTUM);
        let (gone, stays) = (rounds.add(), rounds.add());
        rounds.push(gone, 1);
        rounds.push(stays, 2);
        assert_eq!(rounds.remove(gone), [1]);
        assert_eq!(rounds.push(gone, 3), Some(3));
        assert_eq!(rounds.next(Duration::ZERO).map(|(_, item)| item), Some(2));
        assert!(rounds.next(Duration::ZERO).is_none());
    }
}
