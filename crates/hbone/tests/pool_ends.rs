//! Tunnels of a pool that are retired, idle or cut, and dials that are retired.

mod common;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use common::pooled::{Fault, Faulty, Peer, key, pool, says_hello};
use common::{echo, local, request};
use lateen_hbone::{Connection, Pool, PoolError, PoolKey, RetryBudget, Settings, TunnelError};
use lateen_types::WorkloadUid;
use tokio::io::{AsyncReadExt, duplex};
use tokio::task::spawn_local;

#[tokio::test]
async fn a_tunnel_told_to_go_away_is_replaced_and_its_streams_go_on() {
    local(async {
        let (pool, peer) = (pool(), Peer::new(Settings::server()));
        let mut old = peer.connect(&pool, &key()).await.unwrap();
        let carrier = old.carrier();
        assert!(!carrier.is_leaving());
        // The server's loop ends, its connection shuts down in order.
        peer.connections.borrow_mut().pop().unwrap().abort();
        let mut new = peer.connect(&pool, &key()).await.unwrap();
        says_hello(&mut new).await;
        while peer.dials.get() == 1 {
            // GOAWAY was not there yet: the first tunnel took it.
            new = peer.connect(&pool, &key()).await.unwrap();
        }
        assert!(carrier.is_leaving() && old.is_leaving() && !new.is_leaving());
        says_hello(&mut new).await;
        says_hello(&mut old).await;
        drop(old);
        while pool.tunnels() > 1 {
            tokio::task::yield_now().await;
        }
        assert_eq!(peer.dials.get(), 2);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_tunnel_is_released_after_five_minutes() {
    local(async {
        let (pool, peer) = (pool(), Peer::new(Settings::server()));
        let mut stream = peer.connect(&pool, &key()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(900)).await;
        says_hello(&mut stream).await;
        assert_eq!(pool.tunnels(), 1);
        drop(stream);
        tokio::time::sleep(Duration::from_secs(280)).await;
        assert_eq!(pool.tunnels(), 1);
        tokio::time::sleep(Duration::from_secs(40)).await;
        assert_eq!(pool.tunnels(), 0);
        says_hello(&mut peer.connect(&pool, &key()).await.unwrap()).await;
        assert_eq!(peer.dials.get(), 2);
    })
    .await;
}

#[tokio::test]
async fn released_tunnels_finish_their_streams() {
    local(async {
        let (pool, peer) = (pool(), Peer::new(Settings::server()));
        let mut old = peer.connect(&pool, &key()).await.unwrap();
        let other = PoolKey {
            pod: WorkloadUid("client-2".into()),
            ..key()
        };
        let kept = peer.connect(&pool, &other).await.unwrap();
        pool.retire(|of| of.pod == key().pod);
        assert!(old.is_leaving() && !kept.is_leaving());
        assert_eq!(pool.tunnels(), 1);
        says_hello(&mut old).await;
        says_hello(&mut peer.connect(&pool, &key()).await.unwrap()).await;
        assert_eq!(peer.dials.get(), 3);
        says_hello(&mut old).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_retired_dial_serves_nobody() {
    local(async {
        let (pool, peer) = (pool(), Peer::new(Settings::server()));
        let asking = {
            let (pool, peer) = (pool.clone(), peer.clone());
            spawn_local(async move { peer.connect(&pool, &key()).await })
        };
        // The dial is under way when its certificate is replaced.
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(pool.retire(|_| true), 0);
        let mut stream = asking.await.unwrap().unwrap();
        says_hello(&mut stream).await;
        assert_eq!((peer.dials.get(), pool.tunnels()), (2, 1));
        // Existing streams go on; the next one gets a new tunnel.
        assert_eq!(pool.retire(|_| true), 1);
        let mut next = peer.connect(&pool, &key()).await.unwrap();
        says_hello(&mut stream).await;
        says_hello(&mut next).await;
        assert_eq!(peer.dials.get(), 3);
    })
    .await;
}

/// The peer counts handshakes that fail; one whose tunnel nobody wants any more is none of them.
#[tokio::test(start_paused = true)]
async fn the_peer_of_a_retired_dial_sees_an_orderly_end() {
    local(async {
        let pool: Pool<String> = pool();
        let (said, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let dial = move || {
            let said = said.clone();
            async move {
                tokio::time::sleep(Duration::from_millis(5)).await;
                let (near, far) = duplex(64 * 1024);
                spawn_local(async move {
                    let served = async {
                        // What many announce, and what is assumed before.
                        let settings = Settings {
                            max_streams: 100,
                            ..Settings::server()
                        };
                        let mut tunnel = Connection::accept(far, settings).await?;
                        while let Some(incoming) = tunnel.next().await? {
                            spawn_local(echo(incoming.accept(None).unwrap()));
                        }
                        Ok::<_, TunnelError>(())
                    };
                    // The test has heard enough, perhaps.
                    let _ = said.send(served.await.map_err(|error| error.to_string()));
                });
                Ok(near)
            }
        };
        let asking = {
            let pool = pool.clone();
            spawn_local(async move {
                pool.connect(&key(), &request(), &RetryBudget::default(), dial)
                    .await
            })
        };
        tokio::time::sleep(Duration::from_millis(1)).await;
        pool.retire(|_| true);
        let (mut stream, _) = asking.await.unwrap().unwrap();
        says_hello(&mut stream).await;
        // Long before it would be closed for being idle.
        let ended = tokio::time::timeout(Duration::from_secs(5), heard.recv()).await;
        assert_eq!(ended, Ok(Some(Ok(()))), "the first one");
    })
    .await;
}

/// What is counted as opened when its dial is done is counted as closed, also when it served nobody.
#[tokio::test(start_paused = true)]
async fn whoever_is_told_of_ends_is_told_of_tunnels_that_came_to_nothing() {
    local(async {
        let (pool, peer) = (pool(), Peer::new(Settings::server()));
        let closed: Rc<RefCell<Vec<&str>>> = Rc::default();
        let noted = Rc::clone(&closed);
        pool.on_close(move |_, reason| noted.borrow_mut().push(reason.as_str()));

        // No HTTP/2 comes about: the peer is gone when the dial is done.
        let gone = || async { Ok::<_, String>(duplex(64).0) };
        let error = pool
            .connect(&key(), &request(), &RetryBudget::default(), gone)
            .await
            .expect_err("nobody is there");
        assert!(matches!(error, PoolError::Handshake(_)), "{error}");
        assert_eq!(closed.borrow()[..], ["lost"]);

        // Retired as it was dialled; the next one serves.
        let asking = {
            let (pool, peer) = (pool.clone(), peer.clone());
            spawn_local(async move { peer.connect(&pool, &key()).await })
        };
        tokio::time::sleep(Duration::from_millis(1)).await;
        pool.retire(|_| true);
        let mut stream = asking.await.unwrap().unwrap();
        says_hello(&mut stream).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!((peer.dials.get(), pool.tunnels()), (2, 1));
        assert_eq!(closed.borrow()[..], ["lost", "done"]);

        // Retired as it was dialled, and the peer is gone.
        drop(stream);
        pool.retire(|_| true);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(closed.borrow()[..], ["lost", "done", "done"]);
        let asking = spawn_local({
            let pool = pool.clone();
            async move {
                let dial = || async {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    Ok::<_, String>(duplex(64).0)
                };
                pool.connect(&key(), &request(), &RetryBudget::default(), dial)
                    .await
            }
        });
        tokio::time::sleep(Duration::from_millis(1)).await;
        pool.retire(|_| true);
        let error = asking.await.unwrap().expect_err("nobody is there");
        assert!(matches!(error, PoolError::Handshake(_)), "{error}");
        assert_eq!(
            closed.borrow()[..],
            ["lost", "done", "done", "lost", "lost"]
        );

        // A dial that fails made no tunnel.
        peer.failing.set(true);
        peer.connect(&pool, &key()).await.expect_err("it fails");
        assert_eq!(closed.borrow().len(), 5);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_that_died_while_idle_costs_seconds() {
    local(async {
        let (pool, peer) = (pool(), Peer::new(Settings::server()));
        let cuts: Rc<RefCell<Vec<Rc<Cell<bool>>>>> = Rc::default();
        let closed: Rc<RefCell<Vec<&str>>> = Rc::default();
        let noted = Rc::clone(&closed);
        pool.on_close(move |_, reason| noted.borrow_mut().push(reason.as_str()));
        let connect = async || {
            let dial = || {
                let (peer, cuts) = (peer.clone(), Rc::clone(&cuts));
                async move {
                    let cut = Rc::new(Cell::new(false));
                    cuts.borrow_mut().push(Rc::clone(&cut));
                    Ok::<_, String>(Faulty(Fault::Cut, peer.dial().await?, cut))
                }
            };
            pool.connect(&key(), &request(), &RetryBudget::default(), dial)
                .await
                .unwrap()
                .0
        };
        drop(connect().await);
        // Idle, just after a PING was answered.
        tokio::time::sleep(Duration::from_millis(10_100)).await;
        cuts.borrow()[0].set(true);
        tokio::time::sleep(Duration::from_secs(6)).await;
        let start = tokio::time::Instant::now();
        let mut stream = connect().await;
        says_hello(&mut stream).await;
        assert!(
            start.elapsed() < Duration::from_secs(4),
            "{:?}",
            start.elapsed()
        );
        assert_eq!(
            (peer.dials.get(), &closed.borrow()[..]),
            (2, &["unresponsive"][..])
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_tunnel_that_lives_is_used_again() {
    local(async {
        let (pool, peer) = (pool(), Peer::new(Settings::server()));
        for _ in 0..5 {
            let mut stream = peer.connect(&pool, &key()).await.unwrap();
            says_hello(&mut stream).await;
            drop(stream);
            tokio::time::sleep(Duration::from_secs(20)).await;
        }
        assert_eq!(peer.dials.get(), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_is_open_on_a_tunnel_that_is_doubted_ends_soon_after_its_peer() {
    local(async {
        let (pool, peer) = (pool(), Peer::new(Settings::server()));
        let cut: Rc<Cell<bool>> = Rc::default();
        let dial = || {
            let (peer, cut) = (peer.clone(), Rc::clone(&cut));
            async move { Ok::<_, String>(Faulty(Fault::Cut, peer.dial().await?, cut)) }
        };
        let (mut stream, _) = pool
            .connect(&key(), &request(), &RetryBudget::default(), dial)
            .await
            .unwrap();
        says_hello(&mut stream).await;
        // Out of use, and doubted all the same.
        assert_eq!(pool.retire(|_| true), 1);
        assert_eq!(
            (pool.keep_probing(|_| false), pool.keep_probing(|_| true)),
            (0, 1)
        );
        // As long as the peer is there nothing ends.
        tokio::time::sleep(Duration::from_secs(60)).await;
        says_hello(&mut stream).await;
        cut.set(true);
        let start = tokio::time::Instant::now();
        let mut rest = Vec::new();
        let ended = stream.read_to_end(&mut rest).await;
        assert!(ended.is_err(), "nobody said that this was all: {ended:?}");
        assert!(
            start.elapsed() < Duration::from_secs(5),
            "{:?}",
            start.elapsed()
        );
    })
    .await;
}
