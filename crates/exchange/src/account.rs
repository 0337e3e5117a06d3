//! Memory accounts: bytes of messages that a party's connections hold, with a limit on them.
//!
//! An account counts heads and content that came and were not passed on, and output that waits for the wire. It is charged when
//! bytes come, and credited when they leave. Every byte of an account counts in the accounts above it, such as those of the
//! peer's namespace and of the process. Two limits hold in each account:
//!
//! | limit | HTTP/1 | HTTP/2 |
//! |---|---|---|
//! | half | requests are read no more | the window of a connection is 64 KiB |
//! | all | answers are read no more | a request that brings more, or whose answer does, is ended; new ones are refused |
//!
//! A connection of HTTP/2 is always read: its frames may be what frees memory, such as WINDOW_UPDATE. And one connection to an endpoint
//! carries requests of many peers, who must not wait for each other. Answers have the larger part, since an endpoint that cannot answer
//! may read no further requests.
//!
//! Below the limits a connection gets no more than is free. So a few connections that nobody reads leave room to others, as
//! buffers with dynamic thresholds do in switches (Choudhury and Hahne, 1998). A connection at rest counts nothing.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

/// What each connection, and each request to an endpoint, may hold without being charged. It is of the order of its own state.
const FREE: usize = 4096;

/// Charges are multiples of this, so that small changes cost nothing.
const UNIT: usize = 4096;

/// The window of an answer from an HTTP/2 endpoint is one in so many bytes of what is free. So it takes as many answers that nobody
/// reads to fill an account from windows that have grown.
const WINDOWS: usize = 32;

/// Connections that wait are woken when one in so many bytes of the limit has become free.
const STEP: usize = 64;

/// The bytes that all connections of a party hold. Clones share it, on all threads.
#[derive(Debug, Clone)]
pub struct Account(Arc<Level>);

#[derive(Debug)]
struct Level {
    above: Option<Account>,
    limit: usize,
    held: AtomicUsize,
    /// The number of the next connection that waits.
    numbers: AtomicU64,
    waiting: Mutex<HashMap<u64, Waker>>,
    /// Those that wait are woken when less than this is held. 0: nobody waits.
    wake_below: AtomicUsize,
}

/// The limit that a connection goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// A half, for requests.
    Requests,
    /// All, for answers.
    Answers,
}

impl Level {
    fn limit(&self, part: Part) -> usize {
        match part {
            Part::Requests => self.limit / 2,
            Part::Answers => self.limit,
        }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, Waker>> {
        // Nothing panics while it is locked.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Account {
    /// An account with a limit in bytes.
    pub fn new(limit: usize) -> Self {
        Self::of(limit, None)
    }

    /// An account within this one, with a limit of its own.
    #[must_use]
    pub fn within(&self, limit: usize) -> Self {
        Self::of(limit, Some(self.clone()))
    }

    fn of(limit: usize, above: Option<Account>) -> Self {
        Account(Arc::new(Level {
            above,
            limit,
            held: AtomicUsize::new(0),
            numbers: AtomicU64::new(0),
            waiting: Mutex::default(),
            wake_below: AtomicUsize::new(0),
        }))
    }

    /// The limit.
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    /// Bytes that are held now.
    pub fn held(&self) -> usize {
        self.0.held.load(Ordering::SeqCst)
    }

    /// True if both are the same account.
    pub fn is(&self, other: &Account) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// True if there is another clone of it, or an account within it.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// The account and those above it.
    fn levels(&self) -> impl Iterator<Item = &Level> {
        std::iter::successors(Some(&*self.0), |level| {
            level.above.as_ref().map(|above| &*above.0)
        })
    }

    /// Bytes that are free in the account and in all above it.
    pub(crate) fn room(&self, part: Part) -> usize {
        let free = |level: &Level| {
            let held = level.held.load(Ordering::SeqCst);
            level.limit(part).saturating_sub(held)
        };
        self.levels().map(free).min().unwrap_or_default()
    }

    fn add(&self, bytes: usize) {
        for level in self.levels() {
            level.held.fetch_add(bytes, Ordering::SeqCst);
        }
    }

    /// Credits bytes. True if connections that wait should be told.
    fn subtract(&self, bytes: usize) -> bool {
        let mut tells = false;
        for level in self.levels() {
            let before = level.held.fetch_sub(bytes, Ordering::SeqCst);
            tells |= before - bytes < level.wake_below.load(Ordering::SeqCst);
        }
        tells
    }

    fn wait(&self, number: u64, waker: &Waker, part: Part) {
        for level in self.levels() {
            level.waiting().insert(number, waker.clone());
            let held = level.held.load(Ordering::SeqCst);
            let full = held.min(level.limit(part));
            let below = full.saturating_sub(level.limit / STEP).max(1);
            level.wake_below.fetch_max(below, Ordering::SeqCst);
        }
    }

    fn leave(&self, number: u64) {
        for level in self.levels() {
            level.waiting().remove(&number);
        }
    }

    fn tell(&self) {
        for level in self.levels() {
            let below = level.wake_below.load(Ordering::SeqCst);
            if level.held.load(Ordering::SeqCst) >= below {
                continue;
            }
            let waiting = {
                let mut waiting = level.waiting();
                level.wake_below.store(0, Ordering::SeqCst);
                std::mem::take(&mut *waiting)
            };
            waiting.into_values().for_each(Waker::wake);
        }
    }
}

/// Room that has become free. [`Freed::tell`] says so to connections that wait for it; no connection's state may be borrowed then.
#[derive(Debug)]
#[must_use]
pub(crate) struct Freed(Account);

impl Freed {
    pub(crate) fn tell(self) {
        self.0.tell();
    }
}

/// What one connection, or one request, is charged with. Its end credits all of it, and no connection's state may be borrowed then.
#[derive(Debug)]
pub(crate) struct Charge {
    account: Account,
    bytes: usize,
    /// Its number among those that wait.
    number: Option<u64>,
}

impl Charge {
    pub(crate) fn new(account: Account) -> Self {
        Charge {
            account,
            bytes: 0,
            number: None,
        }
    }

    fn due(held: usize) -> usize {
        match held <= FREE {
            true => 0,
            false => held.next_multiple_of(UNIT),
        }
    }

    /// Charges for `held` bytes in all, if they are more than before.
    #[inline]
    pub(crate) fn raise(&mut self, held: usize) {
        let due = Self::due(held);
        if due > self.bytes {
            self.account.add(due - self.bytes);
            self.bytes = due;
        }
    }

    /// Charges for `held` bytes in all.
    #[inline]
    pub(crate) fn set(&mut self, held: usize) -> Option<Freed> {
        let due = Self::due(held);
        if due >= self.bytes {
            self.raise(held);
            return None;
        }
        let tells = self.account.subtract(self.bytes - due);
        self.bytes = due;
        tells.then(|| Freed(self.account.clone()))
    }

    /// True if the peer may be read: less is held here than is free.
    pub(crate) fn has_room(&self, part: Part) -> bool {
        self.bytes < self.account.room(part)
    }

    /// True if the peer may be read. Otherwise the task is woken when there is more room.
    pub(crate) fn poll_room(&mut self, part: Part, cx: &Context<'_>) -> bool {
        if self.has_room(part) {
            return true;
        }
        let numbers = || self.account.0.numbers.fetch_add(1, Ordering::Relaxed);
        let number = *self.number.get_or_insert_with(numbers);
        self.account.wait(number, cx.waker(), part);
        // Room that became free before this woke nobody.
        self.has_room(part)
    }

    /// The window that an endpoint may have for one answer.
    pub(crate) fn window(&self) -> u32 {
        u32::try_from(self.account.room(Part::Answers) / WINDOWS).unwrap_or(u32::MAX)
    }

    /// Bytes that are free.
    pub(crate) fn room(&self, part: Part) -> usize {
        self.account.room(part)
    }

    /// True if the account has room for `held` bytes in all.
    #[inline]
    pub(crate) fn admits(&self, held: usize) -> bool {
        let due = Self::due(held);
        due <= self.bytes || due - self.bytes <= self.account.room(Part::Answers)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.account.leave(number);
        }
        if let Some(freed) = self.set(0) {
            freed.tell();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Wake;

    use proptest::prelude::*;

    use super::*;

    const MIB: usize = 1 << 20;

    /// Counts its wakes.
    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes as much as a connection may that is read by so many bytes at a time.
    fn fill(charge: &mut Charge, held: &mut usize, step: usize) {
        while charge.has_room(Part::Requests) {
            *held += step;
            charge.raise(*held);
        }
    }

    #[test]
    fn connections_that_nobody_reads_leave_room_to_others() {
        let account = Account::new(2 * MIB);
        let mut greedy: Vec<_> = (0..4).map(|_| Charge::new(account.clone())).collect();
        for charge in &mut greedy {
            fill(charge, &mut 0, UNIT);
        }
        assert!(account.held() < MIB, "{}", account.held());
        let mut late = Charge::new(account.clone());
        let mut held = 0;
        fill(&mut late, &mut held, UNIT);
        assert!(held >= 16 * 1024, "{held}");
        drop((late, greedy));
        assert_eq!(account.held(), 0);
    }

    #[test]
    fn answers_have_room_when_requests_have_none() {
        let account = Account::new(MIB);
        let mut requests = Charge::new(account.clone());
        requests.raise(MIB / 2);
        let mut answer = Charge::new(account.clone());
        assert!(!answer.has_room(Part::Requests));
        assert!(answer.has_room(Part::Answers) && answer.admits(MIB / 2));
        assert!(!answer.admits(MIB / 2 + 1));
        answer.raise(MIB / 2);
        assert!(!answer.has_room(Part::Answers) && answer.admits(MIB / 2));
    }

    #[test]
    fn a_byte_counts_in_every_account_above() {
        let process = Account::new(4 * MIB);
        let tenant = process.within(2 * MIB);
        let (one, other) = (tenant.within(MIB), tenant.within(MIB));
        let mut first = Charge::new(one.clone());
        first.raise(MIB);
        let mut second = Charge::new(other.clone());
        assert!(!second.has_room(Part::Requests), "its tenant has its half");
        second.raise(MIB);
        let stranger = Charge::new(process.within(MIB));
        assert!(!stranger.has_room(Part::Requests));
        assert_eq!((tenant.held(), process.held()), (2 * MIB, 2 * MIB));
        drop(first);
        assert!(stranger.has_room(Part::Requests));
        assert_eq!((one.held(), process.held()), (0, MIB));
        drop(second);
        assert_eq!(process.held(), 0);
    }

    #[test]
    fn little_is_not_charged() {
        let account = Account::new(MIB);
        let mut charge = Charge::new(account.clone());
        charge.raise(FREE);
        assert_eq!(account.held(), 0);
        charge.raise(FREE + 1);
        assert_eq!(account.held(), 2 * UNIT);
        assert!(charge.set(FREE).is_none());
        assert_eq!(account.held(), 0);
    }

    #[test]
    fn those_that_wait_are_woken_by_room_and_not_by_every_byte() {
        let account = Account::new(MIB);
        let mut holder = Charge::new(account.clone());
        holder.raise(MIB / 2);
        let task = Arc::new(Task::default());
        let waker = Waker::from(Arc::clone(&task));
        let cx = Context::from_waker(&waker);
        let mut waits = Charge::new(account.clone());
        for _ in 0..2 {
            assert!(!waits.poll_room(Part::Requests, &cx));
        }
        assert!(holder.set(MIB / 2 - UNIT).is_none(), "it is too little");
        let freed = holder.set(MIB / 4).expect("somebody waits");
        freed.tell();
        assert_eq!(task.0.load(Ordering::Relaxed), 1);
        assert!(waits.poll_room(Part::Requests, &cx));
        // Nobody waits any more.
        assert!(holder.set(0).is_none());
        holder.raise(MIB / 2);
        assert!(!waits.poll_room(Part::Requests, &cx));
        drop(waits);
        drop(holder);
        assert_eq!(task.0.load(Ordering::Relaxed), 1, "it has ended before");
    }

    proptest! {
        #[test]
        fn accounts_are_exact(
            steps in prop::collection::vec((0usize..4, 0usize..300_000), 0..100),
        ) {
            let process = Account::new(MIB);
            let peer = process.within(MIB / 2);
            let mut charges: Vec<_> = (0..4).map(|_| Charge::new(peer.clone())).collect();
            for (which, held) in steps {
                let freed = charges[which].set(held);
                prop_assert!(freed.is_none(), "nobody waits");
                let sum: usize = charges.iter().map(|charge| charge.bytes).sum();
                prop_assert_eq!(peer.held(), sum);
                prop_assert_eq!(process.held(), sum);
                prop_assert!(charges[which].bytes + FREE >= held);
            }
            drop(charges);
            prop_assert_eq!(process.held(), 0);
        }
    }
}
