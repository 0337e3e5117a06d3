//! Memory accounts: bytes of messages that a party's connections hold, with a limit on them.
//!
//! An account counts these bytes:
//!
//! - heads of requests, from their first byte to the end of the exchange;
//! - content and trailers that came and were not passed on;
//! - heads of answers over HTTP/1 that have not ended;
//! - output that waits for the wire.
//!
//! It is charged when bytes come, and credited when they leave. Every byte of an account counts in the accounts above it, such as
//! those of the peer's namespace and of the process. Two limits hold in each account:
//!
//! | limit | HTTP/1 | HTTP/2 |
//! |---|---|---|
//! | requests hold a half | requests are read by what is not charged | the window of a connection is 64 KiB |
//! | all | everything is read by what is not charged | a request that brings more, or whose answer does, is ended; new ones are refused |
//! | an eighth more | – | a connection ends that holds more than 4 KiB of a header block that has not ended |
//!
//! A connection of HTTP/2 is always read: its frames may be what frees memory, such as WINDOW_UPDATE. And one connection to an endpoint
//! carries requests of many peers, who must not wait for each other. Answers have the larger part, since an endpoint that cannot answer
//! may read no further requests. Requests are counted apart as well, so that clients who read slowly stop no requests.
//!
//! A header block of HTTP/2 is part of its connection's compression state. It cannot be left out, and its request can be refused only
//! when all of it has come. So incomplete blocks may go beyond the limit by an eighth.
//!
//! Open requests of HTTP/2 connections are counted beside the bytes: each account has as many as its limit has times 2 KiB. So calls that
//! say nothing take no room from content. The first of each connection is free.
//!
//! 4 KiB of each connection are not charged. While no more of it are held, HTTP/1 is read though the account is full. So peers that fill an
//! account delay others, and do not stop them.
//!
//! A head for the client goes to the output at once, and trailers do behind the content. 4 KiB of output may always wait. Beyond them, a
//! head or trailers are refused if the account has no room, and an informational head is left out.
//!
//! Below the limits a connection gets no more than is free. So a few connections that nobody reads leave room to others, as
//! buffers with dynamic thresholds do in switches (Choudhury and Hahne, 1998). A connection at rest counts no bytes. The connections
//! themselves are a third count, see [`Account::connect`].

mod connections;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

pub use connections::OpenConnection;

/// Bytes that each connection, and each request to an endpoint, may hold without a charge. The state of a connection is about as large.
pub(crate) const FREE: usize = 4096;

/// Bytes of an account's limit for which it may have one open request of HTTP/2, beside the first of each connection. Its state in a proxy
/// takes about twice as much, and a client opens it with some twenty bytes.
const OPEN: usize = 2048;

/// Charges are multiples of this, so that small changes cost nothing.
const UNIT: usize = 4096;

/// The window of an answer from an HTTP/2 endpoint is one in so many bytes of what is free. So it takes as many answers that nobody
/// reads to fill an account from windows that have grown.
const WINDOWS: usize = 32;

/// Header blocks that have not ended may go beyond a limit by one in so many of its bytes, and always by [`LEAST_BEYOND`].
const BEYOND: usize = 8;

/// Bytes that hold a header block of usual limits.
const LEAST_BEYOND: usize = 64 * 1024;

/// Heads and trailers that wait for endpoints of HTTP/2 may have one in so many bytes of the limit of an account that is full.
const BLOCKS: usize = 8;

/// Connections that wait are woken when one in so many bytes of the limit has become free.
const STEP: usize = 64;

/// The number of the next connection that waits. It is one in all accounts, since a connection may wait in several at once.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// The bytes that all connections of a party hold. Clones share it, on all threads.
#[derive(Debug, Clone)]
pub struct Account(Arc<Level>);

#[derive(Debug)]
struct Level {
    above: Option<Account>,
    limit: usize,
    /// All bytes that are held.
    all: Tally,
    /// Those of requests among them.
    requests: Tally,
    /// Bytes of heads and trailers that endpoints of HTTP/2 leave unread.
    blocks: AtomicUsize,
    /// Open requests of connections of HTTP/2, without the first of each.
    open: AtomicUsize,
    /// Open connections of clients, see [`Account::connect`].
    connections: AtomicUsize,
    /// Connections that wait for room in this account, by their numbers.
    waiting: Mutex<HashMap<u64, Waker>>,
    /// Connections of the account, and of accounts within it, that wait for room in any account.
    waits: AtomicUsize,
}

/// Bytes that are counted together.
#[derive(Debug, Default)]
struct Tally {
    held: AtomicUsize,
    /// Those that wait are woken when less than this is held. 0: nobody waits.
    wake_below: AtomicUsize,
}

/// Bytes that a connection or a request holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) requests: usize,
    pub(crate) answers: usize,
}

impl Held {
    pub(crate) fn all(self) -> usize {
        self.requests + self.answers
    }
}

/// The limit that a connection goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// A half, for requests, and no more than answers leave.
    Requests,
    /// All, for answers.
    Answers,
}

impl Tally {
    fn held(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }

    fn add(&self, bytes: usize) {
        self.held.fetch_add(bytes, Ordering::SeqCst);
    }

    /// Credits bytes. True if connections that wait should be told.
    fn subtract(&self, bytes: usize) -> bool {
        let before = self.held.fetch_sub(bytes, Ordering::SeqCst);
        before - bytes < self.wake_below.load(Ordering::SeqCst)
    }

    /// Has those that wait be told when `step` bytes of a limit are free, or of what is held within it.
    fn wait(&self, limit: usize, step: usize) {
        let full = self.held().min(limit);
        // If nothing is held here, nothing can become free here.
        if full > 0 {
            let below = full.saturating_sub(step).max(1);
            self.wake_below.fetch_max(below, Ordering::SeqCst);
        }
    }

    fn tells(&self) -> bool {
        self.held() < self.wake_below.load(Ordering::SeqCst)
    }
}

impl Level {
    /// Bytes that are free.
    fn room(&self, part: Part) -> usize {
        let free = self.limit.saturating_sub(self.all.held());
        match part {
            Part::Requests => free.min((self.limit / 2).saturating_sub(self.requests.held())),
            Part::Answers => free,
        }
    }

    /// True if so many bytes of a header block may come, although they may go beyond the limit.
    fn admits_beyond(&self, bytes: usize) -> bool {
        let beyond = (self.limit / BEYOND).max(LEAST_BEYOND);
        self.all.held() + bytes <= self.limit + beyond
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
            all: Tally::default(),
            requests: Tally::default(),
            blocks: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            waiting: Mutex::default(),
            waits: AtomicUsize::new(0),
        }))
    }

    /// The limit.
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    /// Bytes that are held now.
    pub fn held(&self) -> usize {
        self.0.all.held()
    }

    /// Connections of the account, and of accounts within it, that are not read before there is more room.
    pub fn waiting(&self) -> usize {
        self.0.waits.load(Ordering::Relaxed)
    }

    /// True if both are the same account.
    pub fn is(&self, other: &Account) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// True if both are the same account, or within the same one.
    pub fn is_beside(&self, other: &Account) -> bool {
        self.family() == other.family()
    }

    /// The account above, or else this one.
    pub(crate) fn family(&self) -> *const () {
        let family = self.0.above.as_ref().unwrap_or(self);
        Arc::as_ptr(&family.0).cast()
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
        let free = self.levels().map(|level| level.room(part));
        free.min().unwrap_or_default()
    }

    /// True if the account, or one above it, has no room for requests.
    pub fn is_full(&self) -> bool {
        self.room(Part::Requests) == 0
    }

    /// Charges for so many bytes of frames that wait to be written, and for those of header blocks among them.
    pub(crate) fn charge_frames(&self, bytes: usize, blocks: usize) {
        self.add(bytes, bytes);
        for level in self.levels() {
            level.blocks.fetch_add(blocks, Ordering::Relaxed);
        }
    }

    /// Credits what [`Account::charge_frames`] has charged.
    pub(crate) fn credit_frames(&self, bytes: usize, blocks: usize) -> Option<Freed> {
        for level in self.levels() {
            level.blocks.fetch_sub(blocks, Ordering::Relaxed);
        }
        self.subtract(bytes, bytes).then(|| Freed(self.clone()))
    }

    /// True if heads and trailers that wait for endpoints of HTTP/2 have one in so many bytes of the limit of the account above.
    pub fn has_many_blocks(&self) -> bool {
        let Level { limit, blocks, .. } = &*self.0.above.as_ref().unwrap_or(self).0;
        blocks.load(Ordering::Relaxed) > limit / BLOCKS
    }

    /// Charges for bytes, and for those of requests among them.
    fn add(&self, all: usize, requests: usize) {
        for level in self.levels() {
            level.all.add(all);
            if requests > 0 {
                level.requests.add(requests);
            }
        }
    }

    /// Credits bytes, and those of requests among them. True if connections that wait should be told.
    fn subtract(&self, all: usize, requests: usize) -> bool {
        let mut tells = false;
        for level in self.levels() {
            tells |= all > 0 && level.all.subtract(all);
            tells |= requests > 0 && level.requests.subtract(requests);
        }
        tells
    }

    /// Counts a connection among those that wait, until [`Account::leave`].
    fn enter(&self) -> u64 {
        for level in self.levels() {
            level.waits.fetch_add(1, Ordering::Relaxed);
        }
        NUMBERS.fetch_add(1, Ordering::Relaxed)
    }

    /// Has a connection that holds so many bytes woken when there is room. It waits where it has none: room elsewhere would not help.
    /// `before` gets the wakers that it waited with before. False if all room that it lacked became free meanwhile, which woke nobody.
    fn wait(
        &self,
        number: u64,
        waker: &Waker,
        (part, held): (Part, usize),
        before: &mut Vec<Waker>,
    ) -> bool {
        let mut waits = false;
        for level in self.levels() {
            if level.room(part) > held {
                continue;
            }
            before.extend(level.waiting().insert(number, waker.clone()));
            let step = level.limit / STEP;
            level.all.wait(level.limit, step);
            if part == Part::Requests {
                level.requests.wait(level.limit / 2, step);
            }
            waits |= level.room(part) <= held;
        }
        waits
    }

    /// Takes a connection from among those that wait. `before` gets its wakers.
    fn leave(&self, number: u64, before: &mut Vec<Waker>) {
        for level in self.levels() {
            before.extend(level.waiting().remove(&number));
            level.waits.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn tell(&self) {
        for level in self.levels() {
            if !level.all.tells() && !level.requests.tells() {
                continue;
            }
            let waiting = {
                let mut waiting = level.waiting();
                for tally in [&level.all, &level.requests] {
                    tally.wake_below.store(0, Ordering::SeqCst);
                }
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

/// The bytes that one connection or one request is charged with. A drop credits all of them; no connection's state may be borrowed then.
#[derive(Debug)]
pub(crate) struct Charge {
    account: Account,
    bytes: usize,
    /// Those of requests among them.
    requests: usize,
    /// Open requests of a connection of HTTP/2 but the first.
    open: usize,
    /// Its number among those that wait. None: it does not wait.
    number: Option<u64>,
}

impl Charge {
    pub(crate) fn new(account: Account) -> Self {
        Charge {
            account,
            bytes: 0,
            requests: 0,
            open: 0,
            number: None,
        }
    }

    /// The account that is charged.
    pub(crate) fn account(&self) -> &Account {
        &self.account
    }

    fn due(held: usize) -> usize {
        match held <= FREE {
            true => 0,
            false => held.next_multiple_of(UNIT),
        }
    }

    /// Charges for what is held in all, as far as it is more than before.
    #[inline]
    pub(crate) fn raise(&mut self, held: Held) {
        self.add(Self::due(held.all()), Self::due(held.requests));
    }

    /// Charges for what is held in all.
    #[inline]
    pub(crate) fn set(&mut self, held: Held) -> Option<Freed> {
        self.set_due(Self::due(held.all()), Self::due(held.requests))
    }

    /// Charges for what a request that is over has left in the queue, as far as it is more than before. Nothing of it is free: an endpoint could
    /// collect many such requests.
    pub(crate) fn raise_left(&mut self, bytes: usize) {
        let due = bytes.next_multiple_of(UNIT);
        self.add(due, due);
    }

    /// The same as [`Charge::raise_left`], also if it is less.
    pub(crate) fn set_left(&mut self, bytes: usize) -> Option<Freed> {
        let due = bytes.next_multiple_of(UNIT);
        self.set_due(due, due)
    }

    /// Charges so many bytes, and those of requests among them, as far as they are more than before.
    #[inline]
    fn add(&mut self, all: usize, requests: usize) {
        let (all, requests) = (all.max(self.bytes), requests.max(self.requests));
        if (all, requests) != (self.bytes, self.requests) {
            self.account.add(all - self.bytes, requests - self.requests);
            (self.bytes, self.requests) = (all, requests);
        }
    }

    #[inline]
    fn set_due(&mut self, all: usize, requests: usize) -> Option<Freed> {
        self.add(all, requests);
        if (all, requests) == (self.bytes, self.requests) {
            return None;
        }
        let tells = self
            .account
            .subtract(self.bytes - all, self.requests - requests);
        (self.bytes, self.requests) = (all, requests);
        tells.then(|| Freed(self.account.clone()))
    }

    /// Counts the open requests of a connection of HTTP/2, of which the first is free.
    #[inline]
    pub(crate) fn set_open(&mut self, requests: usize) {
        let open = requests.saturating_sub(1);
        if open == self.open {
            return;
        }
        for level in self.account.levels() {
            // Nobody waits for room here: a request without it is refused.
            level.open.fetch_add(open, Ordering::Relaxed);
            level.open.fetch_sub(self.open, Ordering::Relaxed);
        }
        self.open = open;
    }

    /// True if a connection of HTTP/2 may have so many open requests.
    #[inline]
    pub(crate) fn admits_open(&self, requests: usize) -> bool {
        let more = requests.saturating_sub(1).saturating_sub(self.open);
        let fits = |level: &Level| level.open.load(Ordering::Relaxed) + more <= level.limit / OPEN;
        more == 0 || self.account.levels().all(fits)
    }

    /// The bytes that count for a part of the account.
    fn held(&self, part: Part) -> usize {
        match part {
            Part::Requests => self.requests,
            Part::Answers => self.bytes,
        }
    }

    /// True if the account has room: less is held here than is free.
    pub(crate) fn has_room(&self, part: Part) -> bool {
        self.held(part) < self.account.room(part)
    }

    /// True if the account has room. Otherwise the task is woken when there is more.
    ///
    /// `before` gets wakers that are needed no more: no connection's state may be borrowed when they are dropped.
    pub(crate) fn poll_room(
        &mut self,
        part: Part,
        cx: &Context<'_>,
        before: &mut Vec<Waker>,
    ) -> bool {
        // The account that was full may have room by now, and another one none.
        while !self.has_room(part) {
            let number = *self.number.get_or_insert_with(|| self.account.enter());
            let held = self.held(part);
            if self.account.wait(number, cx.waker(), (part, held), before) {
                return false;
            }
        }
        self.leave(before);
        true
    }

    /// Waits for room no more. `before` gets its wakers, as in [`Charge::poll_room`].
    #[inline]
    pub(crate) fn leave(&mut self, before: &mut Vec<Waker>) {
        if let Some(number) = self.number.take() {
            self.account.leave(number, before);
        }
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

    /// True if the account has room for `held` bytes in all, of which the last are the head of a new request. The charge for its header
    /// block may have gone beyond the limit.
    #[inline]
    pub(crate) fn admits_head(&self, held: usize) -> bool {
        let due = Self::due(held);
        let fits = |level: &Level| level.all.held() - self.bytes + due <= level.limit;
        due == 0 || self.account.levels().all(fits)
    }

    /// True if the account has room for `held` bytes in all, of which the last are those of a header block that has not ended.
    pub(crate) fn admits_block(&self, held: usize) -> bool {
        let more = Self::due(held).saturating_sub(self.bytes);
        more == 0 || self.account.levels().all(|level| level.admits_beyond(more))
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.leave(&mut Vec::new());
        self.set_open(0);
        if let Some(freed) = self.set(Held::default()) {
            freed.tell();
        }
    }
}

#[cfg(test)]
mod tests;
