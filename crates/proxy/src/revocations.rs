//! File of revocation lists (`CRL_PATH`): read at the start, read again when it changes, and enforced on open tunnels.
//!
//! A file that becomes unreadable, or a list that disappears from it, changes only the reports about the file. A file is
//! emptied before it is written, and stays empty if the disk is full. Only the authority's next list lifts a revocation, once
//! the file no longer changes.

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

/// Reads the file of revocation lists again when it changes.
pub struct Reloader {
    /// The file.
    pub path: PathBuf,
    /// The lists in force.
    pub revocations: Revocations,
    /// Ends the tunnels whose peer is revoked by now.
    pub cut: Box<dyn Fn() + Send + Sync>,
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

impl Reloader {
    /// Looks at the file for ever.
    pub async fn run(self) {
        // It was read before it was looked at: once more, in case it changed in between.
        let mut last: Seen = None;
        let mut trouble = None;
        let mut moving = false;
        let mut stale = String::new();
        loop {
            let now = seen(&self.path);
            if now != last || moving || (now.is_none() && trouble.is_none()) {
                let settled = now == last;
                last = now;
                match self.reload(settled) {
                    Some(outcome) => (moving, trouble) = (false, outcome),
                    None => moving = true,
                }
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

    /// Reads the file; answers what is wrong with it, if anything. `None`: it revokes less than before, and has to stand
    /// still first.
    fn reload(&self, settled: bool) -> Option<Option<String>> {
        let before = self.revocations.lists();
        let outcome = read(&self.path).map(|lists| lists.after(&before));
        if let Ok((lists, _)) = &outcome
            && lists.revoked() < before.revoked()
            && !settled
        {
            return None;
        }
        let whole = |missing: &[String]| missing.is_empty();
        self.metrics
            .revocation_lists_read(outcome.as_ref().is_ok_and(|(_, missing)| whole(missing)));
        Some(match outcome {
            Ok((lists, missing)) => {
                tracing::info!(
                    lists = lists.infos().len(),
                    revoked = lists.revoked(),
                    "revocation lists in force"
                );
                self.metrics.revoked_certificates(lists.revoked());
                self.revocations.replace(lists);
                (self.cut)();
                (!whole(&missing)).then(|| {
                    let trouble = gone(&self.path, &missing);
                    tracing::warn!(
                        error = trouble,
                        "revocation lists are missing; those from before stay in force"
                    );
                    trouble
                })
            }
            Err(error) => {
                tracing::warn!(%error, "revocation lists cannot be read; those from before stay in force");
                Some(error.to_string())
            }
        })
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

fn gone(path: &Path, missing: &[String]) -> String {
    format!(
        "CRL_PATH={}: it has no list of {} any more; put the authority's next list there, with nothing on it if nothing is \
         revoked, or restart the proxy if the authority is gone",
        path.display(),
        missing.join("; ")
    )
}

fn remark(trouble: Option<&str>, stale: &str) -> Option<String> {
    match (trouble, stale) {
        (Some(trouble), _) => Some(format!("those from before stay in force: {trouble}")),
        (None, "") => None,
        (None, stale) => Some(format!("stale: {stale}")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use lateen_telemetry::BuildInfo;
    use lateen_testkit::Ca;
    use tempfile::TempDir;

    use super::*;

    /// A file that is looked at, and what is said about it. The clock stands still but for the looks.
    struct Watched {
        _dir: TempDir,
        path: PathBuf,
        revocations: Revocations,
        metrics: Arc<Metrics>,
        readiness: Readiness,
    }

    impl Watched {
        fn start(content: &str) -> Self {
            let build = BuildInfo {
                component: "ztunnel",
                tag: "test",
            };
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("crl.pem");
            fs::write(&path, content).unwrap();
            let watched = Watched {
                _dir: dir,
                path,
                revocations: Revocations::default(),
                metrics: Arc::new(Metrics::new(&build, Vec::new)),
                readiness: Readiness::waiting_for([]),
            };
            watched
                .revocations
                .replace(read(&watched.path).expect("the first one is usable"));
            let reloader = Reloader {
                path: watched.path.clone(),
                revocations: watched.revocations.clone(),
                cut: Box::new(|| {}),
                metrics: Arc::clone(&watched.metrics),
                readiness: watched.readiness.clone(),
            };
            tokio::spawn(reloader.run());
            watched
        }

        /// As mounted files are replaced: by another one in one step.
        fn replace(&self, content: &str) {
            let next = self.path.with_extension("new");
            fs::write(&next, content).unwrap();
            fs::rename(&next, &self.path).unwrap();
        }

        async fn looked(&self) {
            // One to see that it changed, one to see that it stands still.
            sleep(3 * LOOK).await;
        }

        fn remark(&self) -> String {
            let remarks = self.readiness.remarks();
            let ours = remarks.into_iter().find(|(part, _)| *part == PART);
            ours.map(|(_, text)| text).unwrap_or_default()
        }

        fn metric(&self, line: &str) -> bool {
            self.metrics.render().lines().any(|one| one == line)
        }
    }

    fn due(seconds: i64) -> SystemTime {
        let now = SystemTime::now();
        let by = Duration::from_secs(seconds.unsigned_abs());
        if seconds < 0 { now - by } else { now + by }
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_changed_is_read_and_one_that_did_not_is_left() {
        let ca = Ca::new();
        let watched = Watched::start("");
        watched.looked().await;
        assert!(watched.metric("lateen_revoked_certificates 0"));
        watched.replace(&ca.revoke(&[7, 8], due(3600)));
        watched.looked().await;
        assert_eq!(watched.revocations.lists().revoked(), 2);
        assert!(watched.metric("lateen_revoked_certificates 2"));
        let reads = "lateen_revocation_list_reads_total{outcome=\"read\"} 2";
        assert!(watched.metric(reads), "{}", watched.metrics.render());
        for _ in 0..5 {
            watched.looked().await;
        }
        assert!(watched.metric(reads), "{}", watched.metrics.render());
        assert_eq!(watched.remark(), "");
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_read_leaves_the_lists_in_force_and_is_told() {
        let ca = Ca::new();
        let watched = Watched::start(&ca.revoke(&[7], due(3600)));
        watched.looked().await;
        watched.replace("no list at all");
        watched.looked().await;
        assert_eq!(watched.revocations.lists().revoked(), 1);
        assert!(watched.metric("lateen_revoked_certificates 1"));
        assert!(watched.metric("lateen_revocation_list_reads_total{outcome=\"failed\"} 1"));
        let remark = watched.remark();
        for part in ["those from before stay in force", "CRL_PATH=", "X509 CRL"] {
            assert!(remark.contains(part), "{remark}");
        }
        fs::remove_file(&watched.path).unwrap();
        watched.looked().await;
        assert_eq!(watched.revocations.lists().revoked(), 1);
        let remark = watched.remark();
        assert!(remark.contains("mount the revocation lists"), "{remark}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_revoked_is_taken_back_by_the_authoritys_next_list_alone() {
        let (ca, other) = (Ca::new(), Ca::new());
        let both = ca.revoke(&[7], due(3600)) + &other.revoke(&[8, 9], due(3600));
        let watched = Watched::start(&both);
        watched.looked().await;
        // Emptied in place, as by a copy that found no room; one list is missing; nobody's list.
        for (content, revoked) in [
            (String::new(), 3),
            (ca.revoke(&[5, 6, 7], due(3600)), 5),
            ("\n".to_owned(), 5),
        ] {
            fs::write(&watched.path, &content).unwrap();
            watched.looked().await;
            assert_eq!(watched.revocations.lists().revoked(), revoked, "{content}");
            let remark = watched.remark();
            for part in ["those from before stay in force", "CRL_PATH=", "next list"] {
                assert!(remark.contains(part), "{remark}");
            }
        }
        assert!(watched.metric("lateen_revocation_list_reads_total{outcome=\"failed\"} 3"));
        let none = ca.revoke(&[], due(3600)) + &other.revoke(&[], due(3600));
        watched.replace(&none);
        watched.looked().await;
        assert_eq!(watched.revocations.lists().revoked(), 0);
        assert_eq!(watched.remark(), "");
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_revokes_less_must_stand_still_first() {
        let ca = Ca::new();
        let watched = Watched::start(&ca.revoke(&[7, 8], due(3600)));
        watched.looked().await;
        for _ in 0..3 {
            watched.replace(&ca.revoke(&[8], due(3600)));
            sleep(LOOK).await;
            assert_eq!(watched.revocations.lists().revoked(), 2);
        }
        watched.looked().await;
        assert_eq!(watched.revocations.lists().revoked(), 1);
        assert_eq!(watched.remark(), "");
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_is_overdue_is_told_and_goes_on_being_used() {
        let ca = Ca::new();
        let watched = Watched::start(&ca.revoke(&[7], due(-60)));
        watched.looked().await;
        assert!(watched.metric("lateen_stale_revocation_lists 1"));
        assert!(
            watched.remark().starts_with("stale: "),
            "{}",
            watched.remark()
        );
        assert_eq!(watched.revocations.lists().revoked(), 1);
        watched.replace(&ca.revoke(&[7], due(3600)));
        watched.looked().await;
        assert!(watched.metric("lateen_stale_revocation_lists 0"));
        assert_eq!(watched.remark(), "");
    }

    #[test]
    fn a_file_that_cannot_be_used_names_the_variable_and_the_cure() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("crl.pem");
        let text = read(&path).unwrap_err().to_string();
        assert!(
            text.contains("CRL_PATH=") && text.contains("unset it"),
            "{text}"
        );
        fs::write(&path, "x").unwrap();
        let text = read(&path).unwrap_err().to_string();
        assert!(text.contains("or be empty"), "{text}");
    }
}
