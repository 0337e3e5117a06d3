//! The time at which a process accepts from listeners that it has taken over, or from its own beside those of its predecessor. Until then the
//! predecessor serves: it has certificates, and this process is only fetching them.

use std::time::Duration;

use lateen_identity::Manager;
use lateen_types::Identity;
use tokio::time::{Instant, sleep_until, timeout};

/// Time between two looks at the certificate and at the listeners.
const LOOK: Duration = Duration::from_millis(200);

/// Time for which connections must have waited in listeners, at every look, before nobody else is taken to accept them.
const UNSERVED: Duration = Duration::from_secs(5);

/// The reason for which the wait has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The pod's certificate is there.
    Certified,
    /// There is no certificate, and connections wait that nobody accepts: the predecessor is gone, or it does nothing.
    Unserved,
    /// The pod is not in service any more.
    Released,
}

/// Waits until a pod's listeners are to be accepted from. A certificate that is refused or does not come is no reason as long as the
/// predecessor serves: it would refuse what that one can still serve. `in_service` says whether the pod still is, and `waiting` whether a
/// connection waits in its listeners.
pub async fn may_accept(
    certificates: &Manager,
    identity: &Identity,
    in_service: impl Fn() -> bool,
    waiting: impl Fn() -> bool,
) -> Outcome {
    let mut unserved_since = None;
    loop {
        let look = Instant::now();
        if !in_service() {
            return Outcome::Released;
        }
        if matches!(timeout(LOOK, certificates.get(identity)).await, Ok(Ok(_))) {
            return Outcome::Certified;
        }
        if waiting() {
            let since = *unserved_since.get_or_insert(look);
            if since.elapsed() >= UNSERVED {
                return Outcome::Unserved;
            }
        } else {
            unserved_since = None;
        }
        sleep_until(look + LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;
    use std::time::SystemTime;

    use lateen_identity::{IssueError, Issued, Issuer};
    use lateen_testkit::{Ca, identity};
    use lateen_tls::{Credentials, Rules};
    use tokio::runtime::Handle;
    use tokio::sync::watch;

    use super::*;

    /// Refuses everybody until it is told otherwise.
    struct Refusing(Ca, watch::Receiver<bool>);

    impl Issuer for Refusing {
        fn issue<'a>(&'a self, identity: &'a Identity) -> Issued<'a> {
            Box::pin(async move {
                if *self.1.borrow() {
                    return Err(IssueError::Unreachable("connection refused".to_owned()));
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

    fn refusing() -> (watch::Sender<bool>, Manager) {
        let (refuse, refused) = watch::channel(true);
        let issuer = Arc::new(Refusing(Ca::new(), refused));
        (refuse, Manager::new(issuer, Handle::current()))
    }

    const LONG: Duration = Duration::from_secs(600);

    #[tokio::test(start_paused = true)]
    async fn a_refused_certificate_leaves_connections_to_the_predecessor() {
        let (refuse, certificates) = refusing();
        let web = identity("web");
        certificates.want(&web);
        let begin = Instant::now();
        // The predecessor accepts: what waits at one look does not at the next.
        let looks = Cell::new(0);
        let waiting = || {
            looks.set(looks.get() + 1);
            looks.get() % 2 == 0
        };
        let mut wait = Box::pin(may_accept(&certificates, &web, || true, waiting));
        let early = timeout(LONG, &mut wait).await;
        assert!(early.is_err(), "{early:?} after {:?}", begin.elapsed());
        refuse.send_replace(false);
        let outcome = timeout(LONG, wait).await.expect("it is certified now");
        assert_eq!(outcome, Outcome::Certified);
    }

    #[tokio::test(start_paused = true)]
    async fn connections_that_nobody_accepts_do_not_wait_for_a_certificate() {
        let (_refuse, certificates) = refusing();
        let web = identity("web");
        certificates.want(&web);
        let begin = Instant::now();
        let gone = begin + Duration::from_secs(60);
        let waiting = || Instant::now() >= gone;
        let outcome = may_accept(&certificates, &web, || true, waiting).await;
        assert_eq!(outcome, Outcome::Unserved);
        let after = begin.elapsed() - Duration::from_secs(60);
        assert!(
            after >= UNSERVED && after <= UNSERVED + LOOK * 2,
            "{after:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_is_released_is_not_waited_for() {
        let (_refuse, certificates) = refusing();
        let web = identity("web");
        certificates.want(&web);
        let release = Instant::now() + Duration::from_secs(60);
        let in_service = || Instant::now() < release;
        let wait = may_accept(&certificates, &web, in_service, || false);
        let outcome = timeout(LONG, wait).await.expect("it ends");
        assert_eq!(outcome, Outcome::Released);
    }

    #[tokio::test]
    async fn a_certificate_that_comes_is_enough() {
        let (refuse, certificates) = refusing();
        refuse.send_replace(false);
        let web = identity("web");
        certificates.want(&web);
        let outcome = may_accept(&certificates, &web, || true, || true).await;
        assert_eq!(outcome, Outcome::Certified);
    }
}
