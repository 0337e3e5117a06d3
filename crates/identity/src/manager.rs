//! Certificates in use: one fetch for each identity, renewed while a pod needs the identity.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use lateen_tls::Credentials;
use lateen_types::Identity;
use parking_lot::RwLock;
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::Instant;

use crate::issuer::{IssueError, Issuer};
use crate::schedule;

/// Requests to the authority at one time.
const MAX_FETCHES: usize = 8;

/// The wall clock, as an argument.
pub trait Clock: Send + Sync + 'static {
    /// Now.
    fn now(&self) -> SystemTime;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }
}

/// How it stands with one identity.
#[derive(Debug, Clone)]
pub enum State {
    /// The first fetch is under way.
    Fetching {
        /// Since when somebody wants it.
        since: SystemTime,
    },
    /// There is a certificate; its renewal is due at half of its life.
    Ready(Arc<Credentials>),
    /// The last fetch failed and the next one is to come.
    Failing {
        /// The certificate from before, which may still be valid.
        kept: Option<Arc<Credentials>>,
        /// Why the last fetch failed.
        error: Arc<IssueError>,
        /// When the first of these failures was.
        since: SystemTime,
    },
}

impl State {
    /// The certificate, if there is one; it may have expired.
    pub fn credentials(&self) -> Option<&Arc<Credentials>> {
        match self {
            State::Fetching { .. } => None,
            State::Ready(credentials) => Some(credentials),
            State::Failing { kept, .. } => kept.as_ref(),
        }
    }
}

/// Why a connection cannot be made in a workload's name.
#[derive(Debug, Clone, thiserror::Error)]
pub enum FetchError {
    /// There never was a certificate.
    #[error("no certificate for {identity}: {cause}")]
    Unavailable {
        /// Whose.
        identity: Identity,
        /// Why the last fetch failed.
        cause: Arc<IssueError>,
    },
    /// There was one, and it could not be renewed in time.
    #[error("certificate of {identity} expired and cannot be renewed: {cause}")]
    Expired {
        /// Whose.
        identity: Identity,
        /// Why the last fetch failed.
        cause: Arc<IssueError>,
    },
    /// Nobody wants the identity any more.
    #[error("no certificate for {identity}: its last workload left this node")]
    Forgotten {
        /// Whose.
        identity: Identity,
    },
}

/// Keeps the certificates of this node. Clones share them; any thread may ask.
#[derive(Clone)]
pub struct Manager(Arc<Shared>);

struct Shared {
    issuer: Arc<dyn Issuer>,
    clock: Arc<dyn Clock>,
    runtime: Handle,
    permits: Semaphore,
    entries: RwLock<HashMap<Identity, Arc<Entry>>>,
    /// Goes up with every fetch that ended, and with every identity that is forgotten.
    changes: watch::Sender<u64>,
}

struct Entry {
    state: watch::Sender<State>,
    /// Asked for since the last renewal.
    used: AtomicBool,
    /// Workloads on this node with the identity.
    wanted: AtomicUsize,
    /// Wakes the task before its time.
    hurry: Arc<Notify>,
}

impl Manager {
    /// Fetches run on `runtime`.
    pub fn new(issuer: Arc<dyn Issuer>, runtime: Handle) -> Self {
        Manager::with_clock(issuer, runtime, Arc::new(SystemClock))
    }

    /// As [`Manager::new`], with a clock of the caller's.
    pub fn with_clock(issuer: Arc<dyn Issuer>, runtime: Handle, clock: Arc<dyn Clock>) -> Self {
        Manager(Arc::new(Shared {
            issuer,
            clock,
            runtime,
            permits: Semaphore::new(MAX_FETCHES),
            entries: RwLock::new(HashMap::new()),
            changes: watch::Sender::new(0),
        }))
    }

    /// A valid certificate of `identity`, at once if there is one; else waits for the fetch that is under way or starts it.
    ///
    /// # Errors
    /// The last fetch failed and the next one has not begun; nobody waits for a retry.
    pub async fn get(&self, identity: &Identity) -> Result<Arc<Credentials>, FetchError> {
        let entry = self.entry(identity, 0);
        entry.used.store(true, Ordering::Relaxed);
        let mut state = entry.state.subscribe();
        let hurry = Arc::clone(&entry.hurry);
        // Held on to, the sender would keep a forgotten entry's waiters waiting.
        drop(entry);
        loop {
            {
                let state = state.borrow_and_update();
                if let Some(answer) = self.answer(identity, &state) {
                    return answer;
                }
                // Past its time before renewal was due: the machine slept, and timers with it.
                if matches!(*state, State::Ready(_)) {
                    hurry.notify_one();
                }
            }
            if state.changed().await.is_err() {
                return Err(FetchError::Forgotten {
                    identity: identity.clone(),
                });
            }
        }
    }

    /// A workload with this identity runs here: fetch ahead and keep renewing. Counts.
    pub fn want(&self, identity: &Identity) {
        self.entry(identity, 1);
    }

    /// Takes one [`Manager::want`] back; with the last the certificate is dropped. Connections keep theirs.
    pub fn forget(&self, identity: &Identity) {
        let mut entries = self.0.entries.write();
        let Some(entry) = entries.get(identity) else {
            return;
        };
        let wanted = entry.wanted.load(Ordering::Relaxed);
        entry
            .wanted
            .store(wanted.saturating_sub(1), Ordering::Relaxed);
        if wanted <= 1 {
            entries.remove(identity);
            self.0.changed();
        }
    }

    /// Sees a change whenever a state of [`Manager::states`] changed.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// The [`Credentials::generation`] of the certificate at hand, valid or not.
    pub fn generation(&self, identity: &Identity) -> Option<u64> {
        let entries = self.0.entries.read();
        let state = entries.get(identity)?.state.borrow();
        state
            .credentials()
            .map(|credentials| credentials.generation())
    }

    /// Every identity and how it stands, for the dump; in no order.
    pub fn states(&self) -> Vec<(Identity, State)> {
        let entries = self.0.entries.read();
        let states = entries
            .iter()
            .map(|(identity, entry)| (identity.clone(), entry.state.borrow().clone()));
        states.collect()
    }

    /// The answer that a state gives now; `None` to wait.
    fn answer(
        &self,
        identity: &Identity,
        state: &State,
    ) -> Option<Result<Arc<Credentials>, FetchError>> {
        let now = self.0.clock.now();
        match state {
            State::Ready(credentials) if credentials.valid_at(now) => {
                Some(Ok(Arc::clone(credentials)))
            }
            State::Fetching { .. } | State::Ready(_) => None,
            State::Failing { kept, error, .. } => Some(match kept {
                Some(kept) if kept.valid_at(now) => Ok(Arc::clone(kept)),
                Some(_) => Err(FetchError::Expired {
                    identity: identity.clone(),
                    cause: Arc::clone(error),
                }),
                None => Err(FetchError::Unavailable {
                    identity: identity.clone(),
                    cause: Arc::clone(error),
                }),
            }),
        }
    }

    /// The identity's entry, wanted `more` times more; made and started if there is none.
    fn entry(&self, identity: &Identity, more: usize) -> Arc<Entry> {
        if more == 0
            && let Some(entry) = self.0.entries.read().get(identity)
        {
            return Arc::clone(entry);
        }
        let mut entries = self.0.entries.write();
        let entry = entries.entry(identity.clone()).or_insert_with(|| {
            let entry = Arc::new(Entry {
                state: watch::Sender::new(State::Fetching {
                    since: self.0.clock.now(),
                }),
                used: AtomicBool::new(true),
                wanted: AtomicUsize::new(0),
                hurry: Arc::new(Notify::new()),
            });
            self.0.runtime.spawn(keep(
                Arc::downgrade(&self.0),
                identity.clone(),
                Arc::downgrade(&entry),
                Arc::clone(&entry.hurry),
            ));
            entry
        });
        entry.wanted.fetch_add(more, Ordering::Relaxed);
        Arc::clone(entry)
    }
}

impl Shared {
    fn changed(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }
}

/// When the next fetch is due.
struct Due {
    /// By the clock that nobody steps.
    wait: Duration,
    /// By the wall clock, which the certificate's life is written in.
    at: Option<SystemTime>,
}

/// Fetches and renews one identity until nobody holds its entry.
async fn keep(shared: Weak<Shared>, identity: Identity, entry: Weak<Entry>, hurry: Arc<Notify>) {
    let mut failures = 0;
    loop {
        let Some(due) = fetch(&shared, &identity, &entry, &mut failures).await else {
            return;
        };
        wait_for(due, &shared, &entry, &hurry).await;
        if abandoned(&shared, &identity, &entry) {
            return;
        }
    }
}

/// Waits until a fetch is due by either clock, or hurried.
async fn wait_for(due: Due, shared: &Weak<Shared>, entry: &Weak<Entry>, hurry: &Notify) {
    let deadline = Instant::now() + due.wait;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        let look = left.min(schedule::LOOK);
        if tokio::time::timeout(look, hurry.notified()).await.is_ok() {
            return;
        }
        let (Some(shared), Some(entry)) = (shared.upgrade(), entry.upgrade()) else {
            return;
        };
        let now = shared.clock.now();
        let stepped = match (&*entry.state.borrow(), due.at) {
            (State::Ready(credentials), Some(at)) => now >= at || !credentials.valid_at(now),
            _ => false,
        };
        if stepped && !deadline.saturating_duration_since(Instant::now()).is_zero() {
            tracing::info!("the wall clock was stepped: a certificate is renewed before its time");
            return;
        }
    }
}

/// One fetch; returns when the next is due.
async fn fetch(
    shared: &Weak<Shared>,
    identity: &Identity,
    entry: &Weak<Entry>,
    failures: &mut u32,
) -> Option<Due> {
    let shared = shared.upgrade()?;
    let permit = shared.permits.acquire().await.ok()?;
    if entry.strong_count() == 0 {
        return None;
    }
    let result = shared.issuer.issue(identity).await;
    drop(permit);
    let now = shared.clock.now();
    let result = result.and_then(|credentials| acceptable(credentials, identity, now));
    let entry = entry.upgrade()?;
    let due = match result {
        Ok(credentials) => {
            *failures = 0;
            let at = schedule::renew_at(
                credentials.not_before(),
                credentials.not_after(),
                now,
                rand::random(),
            );
            let wait = at.duration_since(now).unwrap_or_default();
            tracing::debug!(%identity, serial = credentials.serial(), renew_in = ?wait, "certificate issued");
            entry
                .state
                .send_replace(State::Ready(Arc::new(credentials)));
            Due { wait, at: Some(at) }
        }
        Err(error) => {
            *failures += 1;
            let wait = schedule::backoff(*failures, rand::random());
            tracing::warn!(%identity, %error, retry_in = ?wait, "certificate not issued");
            entry.state.send_modify(|state| {
                *state = State::Failing {
                    kept: state.credentials().cloned(),
                    error: Arc::new(error),
                    since: match state {
                        State::Failing { since, .. } => *since,
                        _ => now,
                    },
                };
            });
            Due { wait, at: None }
        }
    };
    shared.changed();
    Some(due)
}

fn acceptable(
    credentials: Credentials,
    identity: &Identity,
    now: SystemTime,
) -> Result<Credentials, IssueError> {
    if credentials.identity() != identity {
        return Err(IssueError::WrongIdentity {
            presented: credentials.identity().clone(),
        });
    }
    if !credentials.valid_at(now) {
        return Err(IssueError::NotValidNow);
    }
    Ok(credentials)
}

/// True if the entry is gone, or is to go because it was made for one connection and is used no more.
fn abandoned(shared: &Weak<Shared>, identity: &Identity, entry: &Weak<Entry>) -> bool {
    let (Some(shared), Some(entry)) = (shared.upgrade(), entry.upgrade()) else {
        return true;
    };
    let mut entries = shared.entries.write();
    let current = entries.get(identity);
    if !current.is_some_and(|current| Arc::ptr_eq(current, &entry)) {
        return true;
    }
    let used = entry.used.swap(false, Ordering::Relaxed);
    if used || entry.wanted.load(Ordering::Relaxed) > 0 {
        return false;
    }
    entries.remove(identity);
    shared.changed();
    true
}
