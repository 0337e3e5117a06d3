//! Where this proxy's certificates come from, and how it stands with them, counted and told.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lateen_admin::Readiness;
use lateen_identity::{CaClient, CaError, CaSettings, Issued, Issuer, Manager, State, TokenSource};
use lateen_telemetry::{Metrics, rfc3339};
use lateen_tls::{ControlConnector, Roots, Rules};
use lateen_types::Identity;

use crate::settings::Settings;

/// The certificate authority that the settings name.
///
/// # Errors
/// The address or a header cannot be used.
pub fn authority(
    settings: &Settings,
    rules: &Rules,
    metrics: &Arc<Metrics>,
) -> Result<Arc<dyn Issuer>, CaError> {
    let ca = &settings.ca;
    let client = CaClient::new(CaSettings {
        address: ca.address.clone(),
        connector: ControlConnector::new(Roots::parse(&ca.roots), ca.alternative_name.as_deref())
            .complying(rules.compliance),
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

/// Tells for ever how it stands with the certificates, to the counters and to whoever asks whether the proxy is ready.
pub async fn report(manager: Manager, metrics: Arc<Metrics>, readiness: Readiness) {
    let mut changes = manager.changes();
    loop {
        let standing = Standing::of(&manager.states(), SystemTime::now());
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
        for (identity, state) in states {
            let index = match state {
                State::Ready(_) => 0,
                State::Fetching => 1,
                State::Failing { kept, error, since } => {
                    let until = kept.as_ref().map(|kept| kept.not_after());
                    let end = match until {
                        None => "there is none".to_owned(),
                        Some(until) if until < now => format!("expired {}", rfc3339(until)),
                        Some(until) => format!("expires {}", rfc3339(until)),
                    };
                    let key = until.unwrap_or(SystemTime::UNIX_EPOCH);
                    if worst.as_ref().is_none_or(|(worst, _)| key < *worst) {
                        let text = format!(
                            "{identity}: {end}; renewal fails since {}: {error}",
                            rfc3339(*since)
                        );
                        worst = Some((key, text));
                    }
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
        Standing {
            counts,
            remark: worst.map(|(_, worst)| match failing {
                1 => worst,
                more => format!("{more} cannot be renewed, first of them {worst}"),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lateen_identity::IssueError;
    use lateen_testkit::{Ca, identity};

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
        let remark = standing.remark.unwrap();
        for part in ["2 cannot be renewed", "sa/soon: expires", "did not answer"] {
            assert!(remark.contains(part), "{remark}");
        }
        let later = now + Duration::from_secs(600);
        assert_eq!(Standing::of(&states, later).counts[3], ("expired", 1));
        let none = Standing::of(&[failing("new", None)], now);
        assert_eq!(none.counts[4], ("missing", 1));
        assert!(none.remark.unwrap().contains("there is none"));
    }
}
