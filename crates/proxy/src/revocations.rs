//! The file of revocation lists (`CRL_PATH`): read at the start, read again when it changes, and enforced on tunnels that
//! are open. A file that becomes unreadable changes nothing but what is said about it.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lateen_admin::Readiness;
use lateen_telemetry::Metrics;
use lateen_tls::{RevocationError, RevocationLists, Revocations};
use tokio::time::sleep;

use crate::worker::Mailbox;

/// The readiness part that remarks are made under.
const PART: &str = "revocation lists";
/// How often the file is looked at: mounted files are replaced by links, which watches miss.
const LOOK: Duration = Duration::from_secs(1);

/// Why the lists cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// No file, or one that may not be read.
    #[error("CRL_PATH={}: {source}; mount the revocation lists there, or unset it", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// Not what it should be.
    #[error("CRL_PATH={}: {source}; it must hold PEM blocks \"X509 CRL\", or be empty", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: RevocationError,
    },
}

/// The lists in a file.
///
/// # Errors
/// See [`Unusable`].
pub fn read(path: &Path) -> Result<RevocationLists, Unusable> {
    let bytes = std::fs::read(path).map_err(|source| Unusable::Read {
        path: path.to_owned(),
        source,
    })?;
    RevocationLists::parse(&bytes).map_err(|source| Unusable::Parse {
        path: path.to_owned(),
        source,
    })
}

/// What keeps the lists up to date.
pub struct Keeper {
    /// The file.
    pub path: PathBuf,
    /// The lists in force.
    pub revocations: Revocations,
    /// Told to cut.
    pub workers: Vec<Mailbox>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Told what is wrong.
    pub readiness: Readiness,
}

/// What tells one state of a file from another.
type Seen = Option<(u64, u64, i64, i64, u64)>;

fn seen(path: &Path) -> Seen {
    let of = |m: Metadata| (m.dev(), m.ino(), m.mtime(), m.mtime_nsec(), m.size());
    std::fs::metadata(path).map(of).ok()
}

impl Keeper {
    /// Looks at the file for ever.
    pub async fn run(self) {
        // It was read before it was looked at: once more, in case it changed in between.
        let mut last: Seen = None;
        let mut trouble = None;
        let mut stale = String::new();
        loop {
            let now = seen(&self.path);
            if now != last || (now.is_none() && trouble.is_none()) {
                last = now;
                trouble = self.reload();
            }
            let old = self.stale(SystemTime::now());
            if old != stale {
                if !old.is_empty() {
                    tracing::warn!(
                        lists = old,
                        "revocation lists are stale and go on being used; have the authority's next list mounted"
                    );
                }
                stale = old;
            }
            self.readiness
                .remark(PART, remark(trouble.as_deref(), &stale));
            sleep(LOOK).await;
        }
    }

    /// Reads the file; answers what is wrong with it.
    fn reload(&self) -> Option<String> {
        let outcome = read(&self.path);
        self.metrics.revocation_lists_read(outcome.is_ok());
        match outcome {
            Ok(lists) => {
                tracing::info!(
                    lists = lists.infos().len(),
                    revoked = lists.revoked(),
                    "revocation lists in force"
                );
                self.metrics.revoked_certificates(lists.revoked());
                self.revocations.replace(lists);
                for worker in &self.workers {
                    worker.cut_revoked();
                }
                None
            }
            Err(error) => {
                tracing::warn!(%error, "revocation lists cannot be read; those from before stay in force");
                Some(error.to_string())
            }
        }
    }

    /// The authorities whose next list is overdue.
    fn stale(&self, now: SystemTime) -> String {
        let lists = self.revocations.lists();
        let stale: Vec<&str> = lists
            .infos()
            .iter()
            .filter(|info| info.stale_at(now))
            .map(|info| info.issuer.as_str())
            .collect();
        self.metrics.stale_revocation_lists(stale.len());
        stale.join("; ")
    }
}

fn remark(trouble: Option<&str>, stale: &str) -> Option<String> {
    match (trouble, stale) {
        (Some(trouble), _) => Some(format!("those from before stay in force: {trouble}")),
        (None, "") => None,
        (None, stale) => Some(format!("stale: {stale}")),
    }
}
