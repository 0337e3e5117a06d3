//! Peers that say nothing any more, on tunnels in use.

mod common;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use common::pooled::{Fault, Faulty, Peer, key, pool, says_hello};
use common::{echo, local, request, serve};
use lateen_hbone::{
    Connection, Incoming, Pool, RetryBudget, Settings, Stream, Tunnel, TunnelError, client,
};
use tokio::io::{AsyncReadExt, duplex};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::{Instant, sleep};

/// A peer whose first connection can fail.
#[derive(Clone)]
struct Failing {
    pool: Pool<String>,
    peer: Peer,
    fault: Fault,
    failed: Rc<Cell<bool>>,
}

impl Failing {
    fn new(fault: Fault) -> Self {
        Failing {
            pool: pool(),
            peer: Peer::new(Settings::server()),
            fault,
            failed: Rc::default(),
        }
    }

    async fn connect(&self) -> Stream {
        let dial = || {
            let this = self.clone();
            async move {
                let first = this.peer.dials.get() == 0;
                let failed = if first { this.failed } else { Rc::default() };
                Ok(Faulty(this.fault, this.peer.dial().await?, failed))
            }
        };
        let (key, request, retry_budget) = (key(), request(), RetryBudget::default());
        let connected = self.pool.connect(&key, &request, &retry_budget, dial);
        connected.await.unwrap().0
    }

    /// Opens a stream every 200 ms for so many seconds; returns how long the slowest took.
    async fn is_used(&self, seconds: u64) -> Duration {
        let mut uses = Vec::new();
        for _ in 0..seconds * 5 {
            let this = self.clone();
            uses.push(spawn_local(async move {
                let start = Instant::now();
                says_hello(&mut this.connect().await).await;
                start.elapsed()
            }));
            sleep(Duration::from_millis(200)).await;
        }
        let mut slowest = Duration::ZERO;
        for used in uses {
            slowest = slowest.max(used.await.unwrap());
        }
        slowest
    }
}

/// 5 s until it is asked and 3 s for an answer, whatever is opened meanwhile; what was open has 30 s, as ever.
#[tokio::test(start_paused = true)]
async fn requests_on_a_busy_tunnel_to_a_lost_node_go_elsewhere_within_seconds() {
    local(async {
        let node = Failing::new(Fault::Cut);
        let closed: Rc<RefCell<Vec<&str>>> = Rc::default();
        let noted = Rc::clone(&closed);
        node.pool
            .on_close(move |_, reason| noted.borrow_mut().push(reason.as_str()));
        let mut kept = node.connect().await;
        says_hello(&mut kept).await;
        assert!(node.is_used(12).await < Duration::from_millis(100));
        assert_eq!(node.peer.dials.get(), 1);
        node.failed.set(true);
        let lost = Instant::now();
        let slowest = node.is_used(12).await;
        assert!(slowest > Duration::from_secs(1), "it had no fault");
        assert!(slowest < Duration::from_secs(9), "{slowest:?}");
        assert_eq!(node.peer.dials.get(), 2);
        assert_eq!(closed.borrow().len(), 0, "it is open for what is open");
        kept.read(&mut [0; 1]).await.expect_err("its node is lost");
        assert!(lost.elapsed() > Duration::from_secs(15), "too soon");
        assert!(lost.elapsed() < Duration::from_secs(31), "too late");
        sleep(Duration::from_millis(1)).await;
        assert_eq!(closed.borrow()[..], ["unresponsive"]);
    })
    .await;
}

/// A path that is interrupted for ten seconds costs no stream.
#[tokio::test(start_paused = true)]
async fn what_is_open_outlives_a_silence_that_sends_requests_elsewhere() {
    local(async {
        let node = Failing::new(Fault::Stuck);
        let mut kept = node.connect().await;
        says_hello(&mut kept).await;
        node.failed.set(true);
        let slowest = node.is_used(10).await;
        assert!(slowest < Duration::from_secs(9), "{slowest:?}");
        assert_eq!(node.peer.dials.get(), 2);
        node.failed.set(false);
        says_hello(&mut kept).await;
        sleep(Duration::from_secs(60)).await;
        says_hello(&mut kept).await;
    })
    .await;
}

/// The peer dials its application before it answers, which may take long, and answers PINGs meanwhile.
#[tokio::test(start_paused = true)]
async fn an_answer_that_takes_long_is_waited_for() {
    local(async {
        let (pool, dials) = (pool(), Rc::new(Cell::new(0)));
        let dial = || {
            let dials = Rc::clone(&dials);
            async move {
                let (near, far) = duplex(64 * 1024);
                dials.set(dials.get() + 1);
                spawn_local(async move {
                    let mut connection = Connection::accept(far, Settings::server()).await.unwrap();
                    while let Ok(Some(incoming)) = connection.next().await {
                        spawn_local(async move {
                            sleep(Duration::from_secs(100)).await;
                            echo(incoming.accept(None).unwrap()).await;
                        });
                    }
                });
                Ok::<_, String>(near)
            }
        };
        for _ in 0..2 {
            let (key, request, retry_budget) = (key(), request(), RetryBudget::default());
            let connected = pool.connect(&key, &request, &retry_budget, dial);
            says_hello(&mut connected.await.unwrap().0).await;
        }
        assert_eq!(dials.get(), 1);
    })
    .await;
}

/// A tunnel that carries nothing, whose bytes stop while the flag is set, and its driver.
async fn idle_tunnel() -> (
    Tunnel,
    Rc<Cell<bool>>,
    JoinHandle<Result<(), TunnelError>>,
    mpsc::UnboundedReceiver<Incoming>,
) {
    let (near, far) = duplex(64 * 1024);
    let incoming = serve(far, Settings::server());
    let cut = Rc::<Cell<bool>>::default();
    let settings = Settings {
        idle_timeout: None,
        ..Settings::client()
    };
    let io = Faulty(Fault::Cut, near, Rc::clone(&cut));
    let (tunnel, driver) = client::handshake(io, settings).await.unwrap();
    (tunnel, cut, spawn_local(driver), incoming)
}

#[tokio::test(start_paused = true)]
async fn a_peer_is_asked_whether_it_answers_only_when_its_last_answer_is_old() {
    local(async {
        let (tunnel, cut, _driver, _incoming) = idle_tunnel().await;
        cut.set(true);
        sleep(Duration::from_millis(4900)).await;
        assert!(tunnel.answers().await, "nobody can know yet");
        cut.set(false);
        sleep(Duration::from_secs(1)).await;
        let asked = Instant::now();
        assert!(tunnel.answers().await, "it is there");
        assert!(asked.elapsed() < Duration::from_millis(100));
        // What it has just said counts for a while.
        cut.set(true);
        assert!(tunnel.answers().await);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_is_cut_off_does_not_answer_for_the_time_of_a_probe_and_keeps_the_tunnel_for_that_of_a_ping()
 {
    // Before the tunnel has asked by itself, and while it asks.
    for since in [6, 11] {
        local(async {
            let (tunnel, cut, driver, _incoming) = idle_tunnel().await;
            cut.set(true);
            sleep(Duration::from_secs(since)).await;
            let asked = Instant::now();
            assert!(!tunnel.answers().await, "nobody was there to answer");
            assert!(asked.elapsed() >= Duration::from_secs(3));
            assert!(asked.elapsed() < Duration::from_millis(3100));
            assert!(tunnel.alive(), "it has the time of a PING");
            let lost = driver.await.unwrap().expect_err("nobody answers");
            assert!(matches!(lost, TunnelError::Unresponsive), "{lost}");
            assert!(!tunnel.answers().await, "it is over");
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn who_asks_whether_a_peer_answers_is_told_at_once_when_the_tunnel_ends() {
    local(async {
        let (tunnel, cut, driver, _incoming) = idle_tunnel().await;
        cut.set(true);
        // It asks by itself after 10 s, and is lost 20 s later.
        sleep(Duration::from_secs(29)).await;
        let asked = Instant::now();
        assert!(!tunnel.answers().await);
        assert!(
            asked.elapsed() < Duration::from_millis(1100),
            "{:?}",
            asked.elapsed()
        );
        assert!(driver.is_finished());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_in_doubt_whose_peer_is_gone_ends_within_the_time_of_a_probe() {
    local(async {
        let (tunnel, cut, driver, _incoming) = idle_tunnel().await;
        sleep(Duration::from_secs(1)).await;
        cut.set(true);
        let doubted = Instant::now();
        tunnel.keep_probing();
        driver.await.unwrap().expect_err("nobody answers");
        assert!(doubted.elapsed() < Duration::from_secs(4));
    })
    .await;
}
