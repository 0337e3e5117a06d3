//! Source of this proxy's certificates, counts of its requests for them, and their state for readiness and metrics.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lateen_admin::Readiness;
use lateen_identity::{
    Behalf, CaClient, CaError, CaSettings, Issued, Issuer, Manager, State, TokenSource,
};
use lateen_telemetry::{Metrics, rfc3339};
use lateen_tls::{Called, ControlConnector, Roots, Rules};
use lateen_types::Identity;

use crate::settings::Common;

/// The certificate authority that the settings name; on whose `behalf` it is asked depends on the role.
///
/// # Errors
/// The address or a header cannot be used.
pub fn authority(
    settings: &Common,
    behalf: Behalf,
    rules: &Rules,
    metrics: &Arc<Metrics>,
) -> Result<Arc<dyn Issuer>, CaError> {
    let ca = &settings.ca;
    let client = CaClient::new(CaSettings {
        address: ca.address.clone(),
        connector: ControlConnector::new(Roots::parse(&ca.roots), ca.alternative_name.as_deref())
            .to(Called::Authority)
            .complying(rules.compliance),
        behalf,
        token: settings
            .token
            .clone()
            .map_or(TokenSource::None, TokenSource::File),
        cluster: settings.cluster_id.to_string(),
        ttl: settings.certificate_ttl,
        headers: ca.headers.clone(),
        rules: rules.clone(),
    })?;
    Ok(Arc::new(Counted {
        issuer: client,
        metrics: Arc::clone(metrics),
    }))
}

struct Counted {
    issuer: CaClient,
    metrics: Arc<Metrics>,
}

impl Issuer for Counted {
    fn issue<'a>(&'a self, identity: &'a Identity) -> Issued<'a> {
        Box::pin(async move {
            let outcome = self.issuer.issue(identity).await;
            self.metrics.certificate_requested(outcome.is_ok());
            outcome
        })
    }
}

/// The readiness part that remarks are made under.
const PART: &str = "certificates";
/// How often the state is told although nothing changed: what was valid may have run out.
const LOOK: Duration = Duration::from_secs(10);

/// How long a first certificate may take before somebody is told that it is missing.
const SLOW: Duration = Duration::from_secs(5);

/// Tells for ever how it stands with the certificates, to the counters and to whoever asks whether the proxy is ready.
pub async fn report(manager: Manager, metrics: Arc<Metrics>, readiness: Readiness) {
    let mut changes = manager.changes();
    loop {
        let standing = Standing::of(&manager.states(), SystemTime::now());
        metrics.certificates_expire(standing.first_expiry);
        for (state, identities) in standing.counts {
            metrics.certificates_held(state, identities);
        }
        readiness.remark(PART, standing.remark);
        // The manager outlives this task, and a change that is late by the interval is no harm either.
        let _ = tokio::time::timeout(LOOK, changes.changed()).await;
    }
}

/// How it stands with all certificates.
#[derive(Debug, PartialEq, Eq)]
struct Standing {
    counts: [(&'static str, usize); 5],
    /// On those that are not as they should be; `None` if all are.
    remark: Option<String>,
    /// When the first of the certificates expires, if there are any.
    first_expiry: Option<SystemTime>,
}

impl Standing {
    fn of(states: &[(lateen_types::Identity, State)], now: SystemTime) -> Self {
        let mut counts = [
            ("valid", 0),
            ("fetching", 0),
            ("stale", 0),
            ("expired", 0),
            ("missing", 0),
        ];
        // The one with the least time left speaks for all: there may be hundreds.
        let mut worst: Option<(SystemTime, String)> = None;
        let mut worse = |key: SystemTime, text: &dyn Fn() -> String| {
            if worst.as_ref().is_none_or(|(worst, _)| key < *worst) {
                worst = Some((key, text()));
            }
        };
        let certificates = states.iter().filter_map(|(_, state)| state.credentials());
        let first_expiry = certificates.map(|held| held.not_after()).min();
        let mut slow = 0;
        for (identity, state) in states {
            let index = match state {
                State::Ready(_) => 0,
                State::Fetching { since } => {
                    if now.duration_since(*since).unwrap_or_default() >= SLOW {
                        slow += 1;
                        // One that failed says why: it goes first.
                        worse(SystemTime::UNIX_EPOCH + SLOW, &|| {
                            format!(
                                "{identity}: there is none yet; it is waited for since {}, and the certificate authority \
                                 has not answered",
                                rfc3339(*since)
                            )
                        });
                    }
                    1
                }
                State::Failing { kept, error, since } => {
                    let until = kept.as_ref().map(|kept| kept.not_after());
                    let end = match until {
                        None => "there is none".to_owned(),
                        Some(until) if until < now => format!("expired {}", rfc3339(until)),
                        Some(until) => format!("expires {}", rfc3339(until)),
                    };
                    let key = until.unwrap_or(SystemTime::UNIX_EPOCH);
                    worse(key, &|| {
                        format!(
                            "{identity}: {end}; renewal fails since {}: {error}",
                            rfc3339(*since)
                        )
                    });
                    match until {
                        None => 4,
                        Some(until) if until < now => 3,
                        Some(_) => 2,
                    }
                }
            };
            counts[index].1 += 1;
        }
        let failing: usize = counts[2..].iter().map(|(_, identities)| identities).sum();
        let lacking = failing + slow;
        Standing {
            counts,
            first_expiry,
            remark: worst.map(|(_, worst)| match lacking {
                1 => worst,
                more => format!("{more} are not to be had, first of them {worst}"),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lateen_identity::IssueError;
    use lateen_telemetry::BuildInfo;
    use lateen_testkit::{Ca, identity};
    use lateen_tls::Credentials;
    use tokio::sync::watch;

    #[test]
    fn the_certificate_with_the_least_time_left_speaks_for_all() {
        let now = SystemTime::now();
        let ca = Ca::new();
        let failing = |name: &str, minutes: Option<u64>| {
            let kept = minutes.map(|minutes| {
                let until = now + Duration::from_secs(60 * minutes);
                let hour = Duration::from_secs(3600);
                let leaf = ca.leaf(&identity(name)).valid(now - hour, until);
                leaf.issue().credentials()
            });
            let state = State::Failing {
                kept,
                error: Arc::new(IssueError::Timeout(10)),
                since: now,
            };
            (identity(name), state)
        };
        let well = (
            identity("well"),
            State::Ready(ca.credentials(&identity("well"))),
        );
        assert_eq!(Standing::of(std::slice::from_ref(&well), now).remark, None);
        let states = [well, failing("late", Some(50)), failing("soon", Some(5))];
        let standing = Standing::of(&states, now);
        assert_eq!(standing.counts[0], ("valid", 1));
        assert_eq!(standing.counts[2], ("stale", 2));
        let first = standing.first_expiry.expect("there are some");
        let left = first.duration_since(now).expect("not yet").as_secs();
        assert!((299..=300).contains(&left), "{left} s");
        let remark = standing.remark.unwrap();
        for part in ["2 are not to be had", "sa/soon: expires", "did not answer"] {
            assert!(remark.contains(part), "{remark}");
        }
        let later = now + Duration::from_secs(600);
        assert_eq!(Standing::of(&states, later).counts[3], ("expired", 1));
        let none = Standing::of(&[failing("new", None)], now);
        assert_eq!(none.counts[4], ("missing", 1));
        assert_eq!(none.first_expiry, None);
        assert!(none.remark.unwrap().contains("there is none"));
    }

    #[test]
    fn a_first_certificate_that_does_not_come_is_told_before_anything_has_failed() {
        let now = SystemTime::now();
        let fetching = |name: &str, seconds: u64| {
            let since = now - Duration::from_secs(seconds);
            (identity(name), State::Fetching { since })
        };
        let standing = Standing::of(&[fetching("new", 1)], now);
        assert_eq!(
            (standing.counts[1], standing.remark),
            (("fetching", 1), None)
        );
        let standing = Standing::of(&[fetching("new", 1), fetching("old", 60)], now);
        assert_eq!(standing.counts[1], ("fetching", 2));
        let remark = standing.remark.unwrap();
        assert!(
            remark.contains("sa/old: there is none yet") && remark.contains("has not answered"),
            "{remark}"
        );
    }

    /// Answers nothing as long as it is stuck.
    struct Stuck(Ca, watch::Receiver<bool>);

    impl Issuer for Stuck {
        fn issue<'a>(&'a self, identity: &'a Identity) -> Issued<'a> {
            Box::pin(async move {
                if *self.1.borrow() {
                    tokio::time::sleep(Duration::from_secs(20)).await;
                    return Err(IssueError::Timeout(20));
                }
                let key = lateen_tls::KeyPair::generate()?;
                let now = SystemTime::now();
                let hour = Duration::from_secs(3600);
                let chain = self
                    .0
                    .sign(&key.csr_pem(identity)?, now - hour, now + hour)
                    .expect("the request is ours");
                Ok(Credentials::with_rules(key, &chain, &Rules::default())?)
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_authority_that_is_stuck_is_told_with_the_reason_until_it_answers() {
        let (stick, stuck) = watch::channel(true);
        let issuer = Arc::new(Stuck(Ca::new(), stuck));
        let manager = Manager::new(issuer, tokio::runtime::Handle::current());
        let readiness = Readiness::waiting_for([]);
        let metrics = Arc::new(Metrics::new(
            &BuildInfo {
                component: "ztunnel",
                tag: "0",
            },
            || vec![0],
        ));
        let telling = tokio::spawn(report(
            manager.clone(),
            Arc::clone(&metrics),
            readiness.clone(),
        ));
        manager.want(&identity("web"));
        let told = |part: &'static str| {
            let readiness = readiness.clone();
            async move {
                let within = tokio::time::timeout(Duration::from_secs(300), async {
                    while !readiness
                        .remarks()
                        .iter()
                        .any(|(_, text)| text.contains(part))
                    {
                        tokio::time::sleep(Duration::from_secs(1)).await;
                    }
                });
                within
                    .await
                    .unwrap_or_else(|_| panic!("nobody says: {part}"));
            }
        };
        told("sa/web: there is none; renewal fails since").await;
        told("certificate authority did not answer within 20 s").await;
        let held = |state: &str| {
            let line = format!("lateen_certificates{{state=\"{state}\"}} 1");
            metrics.render().lines().any(|had| had == line)
        };
        assert!(held("missing"), "{}", metrics.render());
        stick.send_replace(false);
        let within = tokio::time::timeout(Duration::from_secs(600), async {
            while !readiness.remarks().is_empty() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        within.await.expect("it answers now");
        assert!(manager.get(&identity("web")).await.is_ok());
        assert!(held("valid"), "{}", metrics.render());
        let since = manager
            .get(&identity("web"))
            .await
            .map(|held| held.not_after().duration_since(SystemTime::UNIX_EPOCH));
        let line = format!(
            "lateen_certificates_first_expiry_timestamp_seconds {}",
            since.expect("as before").expect("after 1970").as_secs()
        );
        assert!(
            metrics.render().lines().any(|had| had == line),
            "{line}: {}",
            metrics.render()
        );
        telling.abort();
    }
}
