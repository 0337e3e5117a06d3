//! Which requests are sent again when no answer comes, and how often.

mod common;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use common::pooled::{key, pool, says_hello};
use common::{echo, local, request, wire};
use lateen_hbone::{ConnectError, Connection, Pool, PoolError, RetryBudget, Settings, Stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::spawn_local;

fn on_a_tunnel(error: PoolError<String>) -> Rc<ConnectError> {
    match error {
        PoolError::Connect(error) => error,
        other => panic!("{other}"),
    }
}

/// What a peer does with each connection's first request.
#[derive(Clone, Copy)]
enum Fate {
    /// Serves it and all others.
    Serves,
    /// Serves it, takes the next one and dies with that.
    ServesThenDies,
    /// Takes it and dies, as a pod that is deleted does.
    Dies,
    /// Sends GOAWAY and closes; the number is the last stream that it says it looked at.
    GoesAway(u32),
    /// Sends RST_STREAM with this code and closes.
    Resets(u32),
}

/// A peer whose connections meet these fates, the last of them again and again. Counts connections and requests.
#[derive(Clone)]
struct Fated {
    fates: Rc<RefCell<Vec<Fate>>>,
    dials: Rc<Cell<usize>>,
    asked: Rc<Cell<usize>>,
}

impl Fated {
    fn new(fates: &[Fate]) -> Self {
        Fated {
            fates: Rc::new(RefCell::new(fates.iter().rev().copied().collect())),
            dials: Rc::default(),
            asked: Rc::default(),
        }
    }

    async fn connect(&self, pool: &Pool<String>) -> Result<Stream, PoolError<String>> {
        self.connect_after(pool, &RetryBudget::default()).await
    }

    /// For a connection that was asked for before.
    async fn connect_after(
        &self,
        pool: &Pool<String>,
        retry_budget: &RetryBudget,
    ) -> Result<Stream, PoolError<String>> {
        let dial = || {
            let peer = self.clone();
            async move {
                let (near, far) = duplex(64 * 1024);
                peer.dials.set(peer.dials.get() + 1);
                spawn_local(async move { peer.meet(far).await });
                Ok(near)
            }
        };
        let (stream, _) = pool.connect(&key(), &request(), retry_budget, dial).await?;
        Ok(stream)
    }

    async fn meet(self, mut far: DuplexStream) {
        let fate = {
            let mut fates = self.fates.borrow_mut();
            let fate = *fates.last().unwrap();
            if fates.len() > 1 {
                fates.pop();
            }
            fate
        };
        let last_words = match fate {
            Fate::GoesAway(last) => {
                let payload = [last.to_be_bytes(), 0u32.to_be_bytes()].concat();
                wire::frame(wire::GOAWAY, 0, 0, &payload)
            }
            Fate::Resets(code) => wire::frame(wire::RST_STREAM, 0, 1, &code.to_be_bytes()),
            Fate::Serves | Fate::ServesThenDies | Fate::Dies => {
                let mut connection = Connection::accept(far, Settings::server()).await.unwrap();
                let mut served = 0;
                while let Ok(Some(incoming)) = connection.next().await {
                    self.asked.set(self.asked.get() + 1);
                    match fate {
                        Fate::Dies => return,
                        Fate::ServesThenDies if served > 0 => return,
                        _ => drop(spawn_local(echo(incoming.accept(None).unwrap()))),
                    }
                    served += 1;
                }
                return;
            }
        };
        let mut preface = [0; wire::PREFACE.len()];
        far.read_exact(&mut preface).await.unwrap();
        let settings = wire::frame(wire::SETTINGS, 0, 0, &[]);
        far.write_all(&settings).await.unwrap();
        while let Some((kind, ..)) = wire::read_frame(&mut far).await {
            if kind == wire::HEADERS {
                self.asked.set(self.asked.get() + 1);
                far.write_all(&last_words).await.unwrap();
                return;
            }
        }
    }
}

#[tokio::test]
async fn a_request_that_nobody_looked_at_is_repeated_and_served() {
    local(async {
        for fate in [Fate::GoesAway(0), Fate::Resets(7)] {
            let (pool, peer) = (pool(), Fated::new(&[fate, fate, Fate::Serves]));
            says_hello(&mut peer.connect(&pool).await.unwrap()).await;
            assert_eq!(peer.asked.get(), 3);
            // Not for ever.
            let (pool, peer) = (self::pool(), Fated::new(&[fate]));
            let error = on_a_tunnel(peer.connect(&pool).await.expect_err("it is sent away"));
            assert!(error.unprocessed(), "{error}");
            assert_eq!(peer.asked.get(), 3);
        }
    })
    .await;
}

#[tokio::test]
async fn a_request_that_a_new_tunnel_died_of_is_not_repeated() {
    local(async {
        // CANCEL, and a GOAWAY that says that the request was looked at.
        for fate in [Fate::Dies, Fate::GoesAway(1), Fate::Resets(8)] {
            let (pool, peer) = (pool(), Fated::new(&[fate, Fate::Serves]));
            let error = on_a_tunnel(peer.connect(&pool).await.expect_err("nobody answers"));
            assert!(error.unanswered(), "{error}");
            assert!(error.to_string().contains("may have seen"), "{error}");
            assert_eq!((peer.dials.get(), peer.asked.get()), (1, 1), "{error}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_request_lost_with_a_tunnel_that_had_served_is_repeated_once() {
    local(async {
        let (pool, peer) = (pool(), Fated::new(&[Fate::ServesThenDies, Fate::Serves]));
        says_hello(&mut peer.connect(&pool).await.unwrap()).await;
        says_hello(&mut peer.connect(&pool).await.unwrap()).await;
        assert_eq!((peer.dials.get(), peer.asked.get()), (2, 3));

        let (pool, peer) = (
            self::pool(),
            Fated::new(&[Fate::ServesThenDies, Fate::Dies]),
        );
        says_hello(&mut peer.connect(&pool).await.unwrap()).await;
        peer.connect(&pool).await.expect_err("it dies again");
        assert_eq!((peer.dials.get(), peer.asked.get()), (2, 3));
    })
    .await;
}

/// What was lost elsewhere counts: another endpoint's tunnel that had served gives no second repeat.
#[tokio::test]
async fn a_connection_is_asked_for_once_more_wherever_it_was_lost() {
    local(async {
        let fates = [Fate::ServesThenDies, Fate::Serves];
        let retry_budget = RetryBudget::default();
        let (pool, peer) = (pool(), Fated::new(&[Fate::Dies]));
        peer.connect_after(&pool, &retry_budget)
            .await
            .expect_err("nobody answers");
        assert!(retry_budget.may_repeat(), "one more");
        let (pool, peer) = (self::pool(), Fated::new(&fates));
        says_hello(&mut peer.connect(&pool).await.unwrap()).await;
        peer.connect_after(&pool, &retry_budget)
            .await
            .expect_err("that was the one");
        assert!(!retry_budget.may_repeat(), "no more");
        assert_eq!((peer.dials.get(), peer.asked.get()), (1, 2));

        // What is proven unprocessed counts for nothing.
        let retry_budget = RetryBudget::default();
        let (pool, peer) = (self::pool(), Fated::new(&[Fate::GoesAway(0)]));
        peer.connect_after(&pool, &retry_budget)
            .await
            .expect_err("it is sent away");
        let (pool, peer) = (self::pool(), Fated::new(&fates));
        says_hello(&mut peer.connect(&pool).await.unwrap()).await;
        says_hello(&mut peer.connect_after(&pool, &retry_budget).await.unwrap()).await;
        assert_eq!((peer.dials.get(), peer.asked.get()), (2, 3));
    })
    .await;
}

/// A tunnel whose peer closed it while nobody looked: the request waits in line behind the news, and has not left.
#[tokio::test]
async fn a_request_that_never_left_is_repeated_however_often() {
    local(async {
        let (near, far) = duplex(64 * 1024);
        let (tunnel, driver) = lateen_hbone::client::handshake(near, Settings::client())
            .await
            .unwrap();
        let driver = spawn_local(driver);
        let mut server = Connection::accept(far, Settings::server()).await.unwrap();
        let next = tokio::time::timeout(Duration::from_millis(50), server.next()).await;
        assert!(next.is_err(), "nothing was asked");
        let request = request();
        let mut asking = std::pin::pin!(tunnel.connect(&request));
        // Asked for, before the driver runs again.
        assert!(poll_once(asking.as_mut()).is_pending());
        drop(server);
        let error = asking.await.expect_err("nobody is there");
        assert!(error.unprocessed(), "{error}");
        let _ = driver.await.unwrap();
    })
    .await;
}

fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> std::task::Poll<F::Output> {
    future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
}
