//! Who shares a tunnel with whom, and what becomes of those who wait for a dial.

mod common;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use common::pooled::{Peer, identity, key, pool, says_hello};
use common::{local, request, serve};
use lateen_executor::{Executor, Group};
use lateen_hbone::{Pool, PoolError, PoolKey, RetryBudget, Settings, Status, Stream, Users};
use lateen_testkit::Ca;
use lateen_types::WorkloadUid;
use tokio::io::duplex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::spawn_local;

#[tokio::test]
async fn connections_of_a_kind_share_a_tunnel_and_others_do_not() {
    local(async {
        let (pool, peer) = (pool(), Peer::new(Settings::server()));
        let last = Cell::new(0);
        pool.number_with(move || last.replace(last.get() + 1) + 1);
        let base = key();
        let mut streams = vec![peer.connect(&pool, &base).await.unwrap()];
        streams.push(peer.connect(&pool, &base).await.unwrap());
        assert_eq!(
            (peer.dials.get(), pool.tunnels(), pool.streams()),
            (1, 1, 2)
        );
        let others = [
            PoolKey {
                source: identity("other"),
                ..key()
            },
            PoolKey {
                destinations: vec![identity("other")].into(),
                ..key()
            },
            PoolKey {
                address: "10.0.0.8:15008".parse().unwrap(),
                ..key()
            },
            PoolKey {
                pod: WorkloadUid("client-2".into()),
                ..key()
            },
        ];
        for (number, other) in others.iter().enumerate() {
            streams.push(peer.connect(&pool, other).await.unwrap());
            assert_eq!(peer.dials.get(), number + 2);
        }
        for stream in &mut streams {
            says_hello(stream).await;
        }
        let tunnels: Vec<_> = streams.iter().map(Stream::tunnel).collect();
        assert_eq!(tunnels, [1, 1, 2, 3, 4, 5]);
    })
    .await;
}

/// Returns true if a group that opened a tunnel, and uses it no more, pays for the streams of another group.
async fn pays_for_others(users: Users) -> bool {
    local(async {
        let executor = Executor::default();
        let (first, second) = (executor.group(), executor.group());
        let (pool, peer) = (pool(), Peer::new(Settings::server()));
        pool.share_among_groups();
        let run = |group: &Group, times: usize| {
            let (done, is_done) = oneshot::channel();
            let (pool, peer) = (pool.clone(), peer.clone());
            let key = PoolKey { users, ..key() };
            group.spawn(async move {
                for _ in 0..times {
                    says_hello(&mut peer.connect(&pool, &key).await.unwrap()).await;
                }
                let _ = done.send(());
            });
            is_done
        };
        let test = async {
            run(&first, 1).await.unwrap();
            // Tasks of the first stream end meanwhile.
            tokio::time::sleep(Duration::from_millis(50)).await;
            let before = first.used();
            assert!(!before.is_zero());
            run(&second, 100).await.unwrap();
            first.used() != before
        };
        let pays = executor.run_until(test).await;
        assert_eq!(peer.dials.get(), 1);
        pays
    })
    .await
}

#[tokio::test]
async fn tunnels_of_a_shared_pool_take_turns_of_no_group_that_uses_them() {
    assert!(!pays_for_others(Users::All).await);
    assert!(!pays_for_others(Users::Few).await);
}

#[tokio::test]
async fn the_tunnels_of_one_user_take_its_turns() {
    assert!(pays_for_others(Users::One).await);
}

#[tokio::test]
async fn a_crowd_dials_once() {
    local(async {
        let (pool, peer) = (pool(), Peer::new(Settings::server()));
        let streams = peer.crowd(&pool, 64).await;
        assert!(streams.iter().all(Result::is_ok));
        assert_eq!((peer.dials.get(), pool.tunnels()), (1, 1));
    })
    .await;
}

#[tokio::test]
async fn a_failed_dial_fails_all_who_waited_and_nobody_after() {
    local(async {
        let (pool, peer) = (pool(), Peer::new(Settings::server()));
        peer.failing.set(true);
        for result in peer.crowd(&pool, 16).await {
            let error = result.expect_err("nobody answered");
            assert!(
                matches!(&error, PoolError::Dial(e) if e.contains("refused")),
                "{error}"
            );
        }
        assert_eq!((peer.dials.get(), pool.tunnels()), (1, 0));
        peer.failing.set(false);
        says_hello(&mut peer.connect(&pool, &key()).await.unwrap()).await;
        assert_eq!(peer.dials.get(), 2);
    })
    .await;
}

#[tokio::test]
async fn a_dial_outlives_the_connection_that_began_it() {
    local(async {
        let (pool, peer) = (pool(), Peer::new(Settings::server()));
        let first = spawn_local({
            let (peer, pool) = (peer.clone(), pool.clone());
            async move { peer.connect(&pool, &key()).await }
        });
        while peer.dials.get() == 0 {
            tokio::task::yield_now().await;
        }
        let second = spawn_local({
            let (peer, pool) = (peer.clone(), pool.clone());
            async move { peer.connect(&pool, &key()).await }
        });
        tokio::task::yield_now().await;
        first.abort();
        says_hello(&mut second.await.unwrap().unwrap()).await;
        assert_eq!(peer.dials.get(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_refusal_is_not_repeated() {
    local(async {
        let pool = pool();
        let asked = Rc::new(Cell::new(0));
        let counter = Rc::clone(&asked);
        let dial = move || {
            let counter = Rc::clone(&counter);
            async move {
                let (near, far) = duplex(64 * 1024);
                let mut incoming = serve(far, Settings::server());
                spawn_local(async move {
                    while let Some(incoming) = incoming.recv().await {
                        counter.set(counter.get() + 1);
                        incoming.refuse(Status::Unauthorized);
                    }
                });
                Ok::<_, String>(near)
            }
        };
        let error = pool
            .connect(&key(), &request(), &RetryBudget::default(), dial)
            .await
            .expect_err("it was refused");
        assert!(error.to_string().contains("401"), "{error}");
        assert_eq!(asked.get(), 1);
        assert_eq!(pool.streams(), 0);
    })
    .await;
}

#[tokio::test]
async fn a_peer_that_closes_every_tunnel_is_given_up() {
    local(async {
        let pool = pool();
        let dials = Rc::new(Cell::new(0));
        let counter = Rc::clone(&dials);
        let dial = move || {
            counter.set(counter.get() + 1);
            async move { Ok::<_, String>(duplex(1024).0) }
        };
        pool.connect(&key(), &request(), &RetryBudget::default(), dial)
            .await
            .expect_err("nobody is there");
        assert!((1..=10).contains(&dials.get()), "{} dials", dials.get());
        while pool.tunnels() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_peer_that_refuses_our_certificate_is_asked_once_and_its_reason_is_told() {
    local(async {
        let (ours, theirs) = (Ca::new(), Ca::new());
        let server = theirs.credentials(&identity("server"));
        // Knows the server's authority, and has a certificate of another one.
        let mut stranger = ours.leaf(&identity("client")).issue();
        stranger.chain[1] = theirs.root().to_owned();
        let client = stranger.credentials();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        spawn_local(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                lateen_tls::accept(&server, socket)
                    .await
                    .expect_err("a stranger came in");
            }
        });
        let dials = Cell::new(0);
        for round in 1..=20 {
            let pool = Pool::<String>::new(Settings::client(), 100);
            let refused = pool
                .connect(&key(), &request(), &RetryBudget::default(), || {
                    dials.set(dials.get() + 1);
                    let client = client.clone();
                    async move {
                        let socket = TcpStream::connect(address)
                            .await
                            .map_err(|e| e.to_string())?;
                        let tls = lateen_tls::connect(&client, socket, &[identity("server")]).await;
                        tls.map(|(tls, _)| tls).map_err(|e| e.to_string())
                    }
                })
                .await
                .expect_err("the server refuses");
            let text = refused.to_string();
            assert!(text.contains("does not know the authority"), "{text}");
            assert_eq!(dials.get(), round, "{text}");
        }
    })
    .await;
}
