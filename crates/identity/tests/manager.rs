//! When the manager asks, whom it makes wait, and what it keeps; in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use lateen_identity::{Clock, FetchError, IssueError, Issued, Issuer, Manager, State};
use lateen_testkit::{Ca, identity};
use lateen_tls::{Credentials, KeyPair};
use lateen_types::Identity;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

const HOUR: Duration = Duration::from_secs(3600);

/// The wall clock of a test: it moves with tokio's, and may be stepped.
#[derive(Clone)]
struct TestClock(Instant, Arc<AtomicI64>);

impl TestClock {
    /// By this many seconds.
    fn step(&self, seconds: i64) {
        self.1.fetch_add(seconds, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> SystemTime {
        let start = 1_900_000_000 + self.1.load(Ordering::SeqCst);
        SystemTime::UNIX_EPOCH + Duration::from_secs(start as u64) + self.0.elapsed()
    }
}

/// An authority that takes ten milliseconds, and does as it is told.
struct Authority {
    ca: Ca,
    clock: TestClock,
    life: Duration,
    asked: AtomicUsize,
    running: AtomicUsize,
    most: AtomicUsize,
    behaviour: Mutex<Behaviour>,
}

#[derive(Clone)]
enum Behaviour {
    Works,
    Fails,
    CertifiesAnother,
    SendsExpired,
}

impl Authority {
    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    fn will(&self, behaviour: Behaviour) {
        *self.behaviour.lock() = behaviour;
    }

    async fn certify(&self, identity: &Identity) -> Result<Credentials, IssueError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(running, Ordering::SeqCst);
        sleep(Duration::from_millis(10)).await;
        self.running.fetch_sub(1, Ordering::SeqCst);
        let behaviour = self.behaviour.lock().clone();
        let now = self.clock.now();
        let (identity, from) = match behaviour {
            Behaviour::Fails => return Err(IssueError::Unreachable("connection refused".into())),
            Behaviour::CertifiesAnother => (lateen_testkit::identity("another"), now),
            Behaviour::SendsExpired => (identity.clone(), now - self.life - HOUR),
            Behaviour::Works => (identity.clone(), now),
        };
        let bundle = self
            .ca
            .leaf(&identity)
            .valid(from, from + self.life)
            .issue();
        let key = KeyPair::from_pem(&bundle.key)?;
        Ok(Credentials::from_issued(key, &bundle.chain)?)
    }
}

impl Issuer for Authority {
    fn issue<'a>(&'a self, identity: &'a Identity) -> Issued<'a> {
        Box::pin(self.certify(identity))
    }
}

/// A manager and its authority, whose certificates live for `life`.
fn manager(life: Duration) -> (Manager, Arc<Authority>) {
    let clock = TestClock(Instant::now(), Arc::default());
    let authority = Arc::new(Authority {
        ca: Ca::new(),
        clock: clock.clone(),
        life,
        asked: AtomicUsize::new(0),
        running: AtomicUsize::new(0),
        most: AtomicUsize::new(0),
        behaviour: Mutex::new(Behaviour::Works),
    });
    let manager = Manager::with_clock(authority.clone(), Handle::current(), Arc::new(clock));
    (manager, authority)
}

#[tokio::test(start_paused = true)]
async fn a_crowd_waits_for_one_fetch() {
    let (manager, authority) = manager(24 * HOUR);
    let asking: Vec<_> = (0..100)
        .map(|_| {
            let manager = manager.clone();
            tokio::spawn(async move {
                manager
                    .get(&identity("web"))
                    .await
                    .unwrap()
                    .serial()
                    .to_owned()
            })
        })
        .collect();
    let mut serials = Vec::new();
    for asked in asking {
        serials.push(asked.await.unwrap());
    }
    serials.dedup();
    assert_eq!((serials.len(), authority.asked()), (1, 1));
    // And from now on nobody waits.
    let before = Instant::now();
    manager.get(&identity("web")).await.unwrap();
    assert_eq!((before.elapsed(), authority.asked()), (Duration::ZERO, 1));
}

#[tokio::test(start_paused = true)]
async fn at_most_eight_fetches_run_at_once() {
    let (manager, authority) = manager(24 * HOUR);
    let names: Vec<Identity> = (0..50).map(|n| identity(&format!("w{n}"))).collect();
    names.iter().for_each(|name| manager.want(name));
    for name in &names {
        assert_eq!(manager.get(name).await.unwrap().identity(), name);
    }
    assert_eq!(
        (authority.asked(), authority.most.load(Ordering::SeqCst)),
        (50, 8)
    );
}

#[tokio::test(start_paused = true)]
async fn a_wanted_certificate_is_fetched_ahead_and_renewed_at_half_life() {
    let (manager, authority) = manager(24 * HOUR);
    manager.want(&identity("web"));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(authority.asked(), 1);
    let first = manager.get(&identity("web")).await.unwrap();
    assert_eq!(
        manager.generation(&identity("web")),
        Some(first.generation())
    );
    let mut changes = manager.changes();
    changes.mark_unchanged();
    // Up to a twentieth of its life before half of it.
    sleep(24 * HOUR * 45 / 100 - Duration::from_secs(2)).await;
    assert_eq!(
        (authority.asked(), changes.has_changed().unwrap()),
        (1, false)
    );
    sleep(24 * HOUR / 20 + Duration::from_secs(2)).await;
    assert_eq!(
        (authority.asked(), changes.has_changed().unwrap()),
        (2, true)
    );
    let second = manager.get(&identity("web")).await.unwrap();
    assert_ne!(first.serial(), second.serial());
    assert!(manager.generation(&identity("web")) > Some(first.generation()));
    sleep(120 * HOUR).await;
    assert!(
        (12..=13).contains(&authority.asked()),
        "{}",
        authority.asked()
    );
}

#[tokio::test(start_paused = true)]
async fn certificates_that_live_seconds_are_there_all_the_time() {
    let (manager, authority) = manager(Duration::from_secs(5));
    manager.want(&identity("web"));
    manager.get(&identity("web")).await.unwrap();
    for _ in 0..600 {
        sleep(Duration::from_millis(100)).await;
        let before = Instant::now();
        manager.get(&identity("web")).await.unwrap();
        assert_eq!(before.elapsed(), Duration::ZERO, "somebody had to wait");
    }
    assert!(
        (20..=32).contains(&authority.asked()),
        "{}",
        authority.asked()
    );
}

#[tokio::test(start_paused = true)]
async fn an_hour_without_the_control_plane_is_survived_and_told() {
    let hour_and_half = HOUR + HOUR / 2;
    let (manager, authority) = manager(hour_and_half * 2);
    for name in ["web", "api"] {
        manager.want(&identity(name));
        manager.get(&identity(name)).await.unwrap();
    }
    // Away from just before the renewal.
    sleep(hour_and_half * 9 / 10 - Duration::from_secs(60)).await;
    authority.will(Behaviour::Fails);
    let asked = authority.asked();
    for _ in 0..60 {
        sleep(Duration::from_secs(60)).await;
        for name in ["web", "api"] {
            manager.get(&identity(name)).await.expect("it is valid");
        }
    }
    let tried = authority.asked() - asked;
    assert!(
        (300..1200).contains(&tried),
        "{tried} tries for two in an hour"
    );
    for (_, state) in manager.states() {
        let State::Failing { kept, error, since } = state else {
            panic!("{state:?}");
        };
        let now = authority.clock.now();
        let failing = now.duration_since(since).unwrap();
        assert!(
            (50 * 60..=60 * 60).contains(&failing.as_secs()),
            "{failing:?}"
        );
        assert!(kept.unwrap().not_after() > now && error.to_string().contains("unreachable"));
    }
    authority.will(Behaviour::Works);
    sleep(Duration::from_secs(16)).await;
    let well = |(_, state): &(Identity, State)| matches!(state, State::Ready(_));
    assert!(manager.states().iter().all(well));
}

#[tokio::test(start_paused = true)]
async fn a_wall_clock_stepped_forward_has_certificates_renewed_at_once() {
    let (manager, authority) = manager(24 * HOUR);
    manager.want(&identity("web"));
    let first = manager.get(&identity("web")).await.unwrap();
    authority.clock.step(20 * 3600);
    sleep(Duration::from_secs(62)).await;
    assert_eq!(authority.asked(), 2);
    // Past its end: nobody is given it meanwhile.
    authority.clock.step(30 * 3600);
    let second = manager.get(&identity("web")).await.unwrap();
    assert!(second.generation() > first.generation());
    assert!(second.valid_at(authority.clock.now()));
    assert_eq!(authority.asked(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_wall_clock_stepped_back_leaves_renewal_on_time() {
    let (manager, authority) = manager(24 * HOUR);
    manager.want(&identity("web"));
    sleep(HOUR).await;
    // Still within the certificate's life: renewal does not wait for the wall clock to catch up.
    authority.clock.step(-1800);
    sleep(11 * HOUR).await;
    assert_eq!(authority.asked(), 2);
    // To before its life: it is of no use, and another one is asked for.
    authority.clock.step(-20 * 3600);
    sleep(Duration::from_secs(62)).await;
    assert_eq!(authority.asked(), 3);
    let got = manager.get(&identity("web")).await.unwrap();
    assert!(got.valid_at(authority.clock.now()));
    // And not again and again.
    sleep(HOUR).await;
    assert_eq!(authority.asked(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_valid_certificate_survives_failures_until_it_expires() {
    let (manager, authority) = manager(24 * HOUR);
    manager.want(&identity("web"));
    let first = manager.get(&identity("web")).await.unwrap();
    authority.will(Behaviour::Fails);
    sleep(23 * HOUR).await;
    assert!(authority.asked() > 10, "renewal was not tried again");
    let kept = manager.get(&identity("web")).await.unwrap();
    assert_eq!(kept.serial(), first.serial());
    sleep(2 * HOUR).await;
    let error = manager.get(&identity("web")).await.expect_err("it expired");
    assert!(matches!(error, FetchError::Expired { .. }), "{error}");
    assert!(error.to_string().contains("connection refused"), "{error}");
    authority.will(Behaviour::Works);
    sleep(Duration::from_secs(16)).await;
    assert_ne!(
        manager.get(&identity("web")).await.unwrap().serial(),
        first.serial()
    );
}

#[tokio::test(start_paused = true)]
async fn failures_are_told_at_once_and_tried_again_with_growing_waits() {
    let (manager, authority) = manager(24 * HOUR);
    authority.will(Behaviour::Fails);
    manager.want(&identity("web"));
    let error = manager.get(&identity("web")).await.expect_err("it fails");
    assert!(matches!(error, FetchError::Unavailable { .. }), "{error}");
    for part in [
        "spiffe://cluster.local/ns/default/sa/web",
        "connection refused",
    ] {
        assert!(error.to_string().contains(part), "{error}");
    }
    let before = Instant::now();
    manager
        .get(&identity("web"))
        .await
        .expect_err("it still fails");
    assert_eq!(before.elapsed(), Duration::ZERO);
    sleep(Duration::from_secs(10)).await;
    // Waits of 0.1 to 6.4 s, shortened by up to half.
    let early = authority.asked();
    assert!((6..=9).contains(&early), "{early}");
    sleep(Duration::from_secs(600)).await;
    let late = authority.asked() - early;
    assert!((40..=81).contains(&late), "{late} in ten minutes");
    authority.will(Behaviour::Works);
    sleep(Duration::from_secs(16)).await;
    manager.get(&identity("web")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn certificates_of_others_and_of_other_times_are_not_taken() {
    let (manager, authority) = manager(24 * HOUR);
    authority.will(Behaviour::CertifiesAnother);
    let error = manager
        .get(&identity("web"))
        .await
        .expect_err("it is another's");
    assert!(error.to_string().contains("sa/another"), "{error}");
    authority.will(Behaviour::SendsExpired);
    let error = manager
        .get(&identity("api"))
        .await
        .expect_err("it is expired");
    assert!(error.to_string().contains("clock"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_certificate_is_forgotten_with_the_last_workload() {
    let (manager, authority) = manager(24 * HOUR);
    let web = identity("web");
    manager.want(&web);
    manager.want(&web);
    manager.get(&web).await.unwrap();
    manager.forget(&web);
    assert_eq!(manager.states().len(), 1);
    manager.forget(&web);
    assert_eq!(manager.states().len(), 0);
    // More than was wanted.
    manager.forget(&web);
    sleep(48 * HOUR).await;
    assert_eq!(authority.asked(), 1);
    manager.get(&web).await.unwrap();
    assert_eq!(authority.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_forgotten_workload_is_told() {
    let (manager, _authority) = manager(24 * HOUR);
    let web = identity("web");
    manager.want(&web);
    let waiting = tokio::spawn({
        let (manager, web) = (manager.clone(), web.clone());
        async move { manager.get(&web).await }
    });
    tokio::task::yield_now().await;
    manager.forget(&web);
    let error = waiting.await.unwrap().expect_err("nobody has it");
    assert!(matches!(error, FetchError::Forgotten { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_certificate_that_nobody_wants_is_renewed_only_while_it_is_used() {
    let (manager, authority) = manager(24 * HOUR);
    let web = identity("web");
    for _ in 0..4 {
        manager.get(&web).await.unwrap();
        sleep(11 * HOUR).await;
    }
    assert_eq!(manager.states().len(), 1);
    let asked = authority.asked();
    assert!(asked >= 4, "{asked}");
    sleep(48 * HOUR).await;
    assert_eq!(manager.states().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn states_say_how_it_stands() {
    let (manager, authority) = manager(24 * HOUR);
    manager.want(&identity("web"));
    assert!(matches!(
        manager.states()[..],
        [(_, State::Fetching { .. })]
    ));
    manager.get(&identity("web")).await.unwrap();
    assert!(matches!(manager.states()[..], [(_, State::Ready(_))]));
    authority.will(Behaviour::Fails);
    sleep(12 * HOUR + Duration::from_secs(1)).await;
    let states = manager.states();
    let [(_, state @ State::Failing { .. })] = &states[..] else {
        panic!("{states:?}");
    };
    assert!(state.credentials().is_some());
}

#[test]
fn other_threads_may_ask() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (manager, ready) = runtime.block_on(async {
        let (manager, _) = manager(24 * HOUR);
        (manager.clone(), manager)
    });
    let worker = std::thread::spawn(move || {
        let worker = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        worker.block_on(async {
            manager
                .get(&identity("web"))
                .await
                .unwrap()
                .identity()
                .clone()
        })
    });
    let got = runtime.block_on(async {
        let worker = tokio::task::spawn_blocking(move || worker.join().unwrap());
        let got = worker.await.unwrap();
        ready.get(&got).await.unwrap();
        got
    });
    assert_eq!(got, identity("web"));
}
