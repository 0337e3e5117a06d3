//! The part of readiness that the certificates of the pods in service make. A process that replaces another one is ready when it can serve
//! all that its predecessor serves.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, SystemTime};

use lateen_identity::{IssueError, Manager, State};
use lateen_types::Identity;
use tokio::time::{Instant, timeout};

/// The readiness part that stands for the certificates of the pods in service. It is reached once, when the process starts.
pub const READY: &str = "certificates";

/// Time for which the authority must have refused an identity permission before the identity is waited for no longer. An authority that has
/// just started may not know the identity's pod yet.
const DENIED: Duration = Duration::from_secs(20);

/// Time between two looks at the certificates while none changes.
const LOOK: Duration = Duration::from_millis(200);

/// Resolves once every identity of `wanted` has a certificate. Identities that the authority has refused permission for some time do not
/// count, if another one has a certificate: that authority answers, and grants what it may. `tell` is given what is waited for, in words.
pub async fn all(
    certificates: &Manager,
    wanted: impl Fn() -> BTreeSet<Identity>,
    mut tell: impl FnMut(&str),
) {
    let mut changes = certificates.changes();
    let mut denied = HashMap::new();
    let mut said = String::new();
    loop {
        let states: HashMap<_, _> = certificates.states().into_iter().collect();
        let Some(waits) = awaited(&wanted(), &states, &mut denied, SystemTime::now()) else {
            return;
        };
        if waits != said {
            tell(&waits);
            said = waits;
        }
        // The manager outlives this task.
        let _ = timeout(LOOK, changes.changed()).await;
    }
}

/// Names the certificate that is waited for, of several the first; `None` if none is. `denied` keeps since when each identity is refused permission.
fn awaited(
    wanted: &BTreeSet<Identity>,
    states: &HashMap<Identity, State>,
    denied: &mut HashMap<Identity, Instant>,
    now: SystemTime,
) -> Option<String> {
    let mut certified = wanted.is_empty();
    let (mut waits, mut refused) = (None, None);
    for identity in wanted {
        let state = states.get(identity);
        let held = state.and_then(State::credentials);
        if held.is_some_and(|held| held.valid_at(now)) {
            certified = true;
            denied.remove(identity);
            continue;
        }
        let Some(State::Failing { error, .. }) = state else {
            waits.get_or_insert_with(|| format!("waiting for the certificate of {identity}"));
            continue;
        };
        let is_over = is_denied(error) && {
            let since = denied.entry(identity.clone());
            since.or_insert_with(Instant::now).elapsed() >= DENIED
        };
        if !is_denied(error) {
            denied.remove(identity);
        }
        let of = if is_over { &mut refused } else { &mut waits };
        of.get_or_insert_with(|| format!("waiting for the certificate of {identity}: {error}"));
    }
    denied.retain(|identity, _| wanted.contains(identity));
    match certified {
        true => waits,
        false => waits.or(refused),
    }
}

/// True if the authority has judged the request and refuses permission.
fn is_denied(error: &IssueError) -> bool {
    matches!(error, IssueError::Refused { code, .. } if code == "PermissionDenied")
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use lateen_identity::{Issued, Issuer};
    use lateen_testkit::{Ca, identity};
    use lateen_tls::{Credentials, Rules};
    use tokio::runtime::Handle;
    use tokio::time::sleep;

    use super::*;

    /// The answer of an authority for an identity that it does not certify.
    #[derive(Clone, Copy)]
    enum Answer {
        Denied,
        Away,
        Silent,
    }

    /// Certifies everybody but those who are named.
    struct Authority(Ca, Arc<Mutex<HashMap<Identity, Answer>>>);

    impl Issuer for Authority {
        fn issue<'a>(&'a self, identity: &'a Identity) -> Issued<'a> {
            Box::pin(async move {
                let answer = self.1.lock().unwrap().get(identity).copied();
                match answer {
                    Some(Answer::Denied) => {
                        return Err(IssueError::Refused {
                            code: "PermissionDenied".to_owned(),
                            message: "no pod of it runs on the node".to_owned(),
                        });
                    }
                    Some(Answer::Away) => {
                        return Err(IssueError::Unreachable("connection refused".to_owned()));
                    }
                    Some(Answer::Silent) => std::future::pending().await,
                    None => {}
                }
                let key = lateen_tls::KeyPair::generate()?;
                let (now, hour) = (SystemTime::now(), Duration::from_secs(3600));
                let chain = self
                    .0
                    .sign(&key.csr_pem(identity)?, now - hour, now + hour)
                    .expect("the request is ours");
                Ok(Credentials::with_rules(key, &chain, &Rules::default())?)
            })
        }
    }

    struct Rig {
        answers: Arc<Mutex<HashMap<Identity, Answer>>>,
        certificates: Manager,
        wanted: BTreeSet<Identity>,
        said: Mutex<Vec<String>>,
    }

    impl Rig {
        fn new(wanted: &[(&str, Option<Answer>)]) -> Self {
            let answers: HashMap<_, _> = wanted
                .iter()
                .filter_map(|(name, answer)| Some((identity(name), (*answer)?)))
                .collect();
            let answers = Arc::new(Mutex::new(answers));
            let authority = Authority(Ca::new(), Arc::clone(&answers));
            let certificates = Manager::new(Arc::new(authority), Handle::current());
            let wanted: BTreeSet<_> = wanted.iter().map(|(name, _)| identity(name)).collect();
            for identity in &wanted {
                certificates.want(identity);
            }
            Self {
                answers,
                certificates,
                wanted,
                said: Mutex::default(),
            }
        }

        /// Waits until it is ready, and returns the time that this took; `None` if it is not within an hour.
        async fn ready(&self) -> Option<Duration> {
            let begin = Instant::now();
            let wanted = || self.wanted.clone();
            let tell = |text: &str| self.said.lock().unwrap().push(text.to_owned());
            let all = all(&self.certificates, wanted, tell);
            let within = timeout(Duration::from_secs(3600), all).await;
            within.ok().map(|()| begin.elapsed())
        }

        fn said(&self, part: &str) -> bool {
            self.said
                .lock()
                .unwrap()
                .iter()
                .any(|text| text.contains(part))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pods_with_certificates_are_ready_at_once() {
        for rig in [Rig::new(&[]), Rig::new(&[("web", None), ("shop", None)])] {
            let took = rig.ready().await.expect("it is ready");
            assert!(took <= LOOK * 2, "{took:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_authority_that_is_away_or_silent_holds_readiness() {
        for answer in [Answer::Away, Answer::Silent] {
            let rig = Rig::new(&[("web", None), ("shop", Some(answer))]);
            assert_eq!(rig.ready().await, None);
            assert!(rig.said("sa/shop"));
            rig.answers.lock().unwrap().clear();
            if matches!(answer, Answer::Away) {
                assert!(rig.said("connection refused"));
                assert!(rig.ready().await.is_some(), "the authority is back");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_identity_that_is_denied_holds_readiness_for_a_while() {
        let rig = Rig::new(&[("web", None), ("shop", Some(Answer::Denied))]);
        let took = rig.ready().await.expect("the others are served");
        assert!(took >= DENIED && took <= DENIED + LOOK * 10, "{took:?}");
        assert!(rig.said("no pod of it runs"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_denial_that_is_taken_back_holds_readiness_no_longer() {
        let rig = Rig::new(&[("web", None), ("shop", Some(Answer::Denied))]);
        let take_back = async {
            sleep(Duration::from_secs(3)).await;
            rig.answers.lock().unwrap().clear();
        };
        let (took, ()) = tokio::join!(rig.ready(), take_back);
        let took = took.expect("all are served");
        assert!(took < DENIED, "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_authority_that_denies_everybody_holds_readiness() {
        let denied = Some(Answer::Denied);
        for wanted in [&[("web", denied)][..], &[("web", denied), ("shop", denied)]] {
            let rig = Rig::new(wanted);
            assert_eq!(rig.ready().await, None);
        }
    }
}
