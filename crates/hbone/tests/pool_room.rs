//! When a pool dials once more: limits on the streams of a tunnel, tunnels that are congested or stalled.

mod common;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use common::pooled::{Fault, Faulty, Peer, key, pool, says_hello};
use common::{echo, local, path, request, serve};
use lateen_hbone::{Budget, Pool, PoolError, PoolKey, RetryBudget, Settings, Stream, Users};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::spawn_local;

#[tokio::test]
async fn a_peer_that_allows_one_stream_gets_one_a_tunnel() {
    local(async {
        let one = Settings {
            max_streams: 1,
            ..Settings::server()
        };
        let (pool, peer) = (pool(), Peer::new(one));
        let mut streams = Vec::new();
        for result in peer.crowd(&pool, 5).await {
            streams.push(result.unwrap());
        }
        for stream in &mut streams {
            says_hello(stream).await;
        }
        assert_eq!(
            (peer.dials.get(), pool.tunnels(), pool.streams()),
            (5, 5, 5)
        );
        // A place that came free is taken before a tunnel is dialled.
        drop(streams.pop());
        let mut again = peer.connect(&pool, &key()).await.unwrap();
        says_hello(&mut again).await;
        assert_eq!(peer.dials.get(), 5);
    })
    .await;
}

#[tokio::test]
async fn our_own_limit_opens_a_second_tunnel() {
    local(async {
        let (pool, peer) = (
            Pool::new(Settings::client(), 10),
            Peer::new(Settings::server()),
        );
        let streams: Vec<_> = peer
            .crowd(&pool, 25)
            .await
            .into_iter()
            .map(Result::unwrap)
            .collect();
        assert_eq!(
            (peer.dials.get(), pool.tunnels(), pool.streams()),
            (3, 3, 25)
        );
        drop(streams);
        assert_eq!(pool.streams(), 0);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_congested_tunnel_gets_a_spare() {
    local(async {
        let settings = Settings {
            tunnel_send_buffer: 1 << 20,
            ..Settings::client()
        };
        let (pool, dials) = (Pool::new(settings, 100), Cell::new(0));
        let cut = Rc::new(Cell::new(false));
        let connect = async || {
            let dial = || {
                dials.set(dials.get() + 1);
                let (near, far) = path(Duration::from_millis(1));
                let mut incoming = serve(far, Settings::server());
                spawn_local(async move {
                    while let Some(incoming) = incoming.recv().await {
                        spawn_local(echo(incoming.accept(None).unwrap()));
                    }
                });
                let near = Faulty(Fault::Stuck, near, Rc::clone(&cut));
                async move { Ok::<_, String>(near) }
            };
            pool.connect(&key(), &request(), &RetryBudget::default(), dial)
                .await
        };
        let mut streams = Vec::new();
        for _ in 0..40 {
            streams.push(connect().await.unwrap().0);
        }
        assert_eq!(dials.get(), 1);
        // So much goes through that the peer grants a large window.
        let (mut reader, mut writer) = tokio::io::split(streams.pop().unwrap());
        let (sent, mut got) = (vec![2; 16 << 20], vec![0; 16 << 20]);
        let (wrote, read) = tokio::join!(writer.write_all(&sent), reader.read_exact(&mut got));
        wrote.unwrap();
        read.unwrap();
        // The path takes nothing for a while: what the streams write piles up.
        cut.set(true);
        for mut stream in streams {
            spawn_local(async move { while stream.write_all(&[1; 64 * 1024]).await.is_ok() {} });
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        cut.set(false);
        // The path of the first tunnel stays stuck until somebody wakes it; new requests get another.
        let _waits = tokio::time::timeout(Duration::from_millis(50), connect()).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(dials.get(), 2);
        let mut stream = connect().await.unwrap().0;
        says_hello(&mut stream).await;
    })
    .await;
}

/// Applications that read nothing keep the whole window of their tunnel: who comes later gets another one.
#[tokio::test(start_paused = true)]
async fn a_tunnel_whose_window_is_withheld_gets_no_more_streams() {
    local(async {
        let (pool, dials) = (pool(), Rc::new(Cell::new(0)));
        let connect = async || {
            let dial = || {
                dials.set(dials.get() + 1);
                let silent = dials.get() == 1;
                let (near, far) = duplex(64 * 1024);
                let settings = Settings {
                    connection_window: 1 << 20,
                    ..Settings::server()
                };
                let mut incoming = serve(far, settings);
                spawn_local(async move {
                    let mut unread = Vec::new();
                    while let Some(incoming) = incoming.recv().await {
                        let stream = incoming.accept(None).unwrap();
                        if silent {
                            unread.push(stream);
                        } else {
                            spawn_local(echo(stream));
                        }
                    }
                });
                async move { Ok::<_, String>(near) }
            };
            pool.connect(&key(), &request(), &RetryBudget::default(), dial)
                .await
                .unwrap()
                .0
        };
        let mut stalled = Vec::new();
        for _ in 0..40 {
            let mut stream = connect().await;
            stalled.push(spawn_local(async move {
                while stream.write_all(&[1; 64 * 1024]).await.is_ok() {}
            }));
        }
        assert_eq!(dials.get(), 1);
        tokio::time::sleep(Duration::from_secs(5)).await;
        let mut streams = vec![connect().await, connect().await];
        for stream in &mut streams {
            says_hello(stream).await;
        }
        // A peer that gives its window back may have had all of it.
        let (mut reader, mut writer) = tokio::io::split(streams.pop().unwrap());
        let (sent, mut got) = (vec![2; 256 * 1024], vec![0; 256 * 1024]);
        let (wrote, read) = tokio::join!(writer.write_all(&sent), reader.read_exact(&mut got));
        wrote.unwrap();
        read.unwrap();
        tokio::time::sleep(Duration::from_secs(5)).await;
        says_hello(&mut connect().await).await;
        assert_eq!(dials.get(), 2);
        assert!(stalled.iter().all(|stream| !stream.is_finished()));
    })
    .await;
}

/// The same in the other direction: streams that are not read here keep the window that the peer was given.
#[tokio::test(start_paused = true)]
async fn a_tunnel_whose_streams_nobody_reads_gets_no_more_streams() {
    local(async {
        let key = key();
        let settings = Settings {
            budget: Budget::new(1 << 20),
            ..Settings::client()
        };
        let (pool, dials) = (Pool::new(settings, 100), Cell::new(0));
        let connect = async || {
            let dial = || {
                dials.set(dials.get() + 1);
                let pours = dials.get() == 1;
                let (near, far) = duplex(64 * 1024);
                let mut incoming = serve(far, Settings::server());
                spawn_local(async move {
                    while let Some(incoming) = incoming.recv().await {
                        let mut stream = incoming.accept(None).unwrap();
                        if pours {
                            spawn_local(async move {
                                while stream.write_all(&[1; 64 * 1024]).await.is_ok() {}
                            });
                        } else {
                            spawn_local(echo(stream));
                        }
                    }
                });
                async move { Ok::<_, String>(near) }
            };
            pool.connect(&key, &request(), &RetryBudget::default(), dial)
                .await
                .unwrap()
                .0
        };
        let mut unread = Vec::new();
        for _ in 0..20 {
            unread.push(connect().await);
        }
        assert_eq!(dials.get(), 1);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(unread.iter().all(Stream::is_held_up));
        let mut stream = connect().await;
        says_hello(&mut stream).await;
        assert_eq!(dials.get(), 2);
        // The first one has room again, once its streams are let go.
        drop(unread);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!connect().await.is_held_up());
        assert_eq!(dials.get(), 2);
    })
    .await;
}

/// One owner of all streams waits for its own reading.
#[tokio::test(start_paused = true)]
async fn streams_of_one_owner_that_are_not_read_open_no_tunnel() {
    local(async {
        let settings = Settings {
            budget: Budget::new(1 << 20),
            ..Settings::client()
        };
        let (pool, dials) = (Pool::<String>::new(settings, 100), Cell::new(0));
        let owned = PoolKey {
            users: Users::Few,
            ..key()
        };
        let connect = async || {
            let dial = || {
                dials.set(dials.get() + 1);
                let (near, far) = duplex(64 * 1024);
                let mut incoming = serve(far, Settings::server());
                spawn_local(async move {
                    while let Some(incoming) = incoming.recv().await {
                        let mut stream = incoming.accept(None).unwrap();
                        spawn_local(async move {
                            while stream.write_all(&[1; 64 * 1024]).await.is_ok() {}
                        });
                    }
                });
                async move { Ok(near) }
            };
            pool.connect(&owned, &request(), &RetryBudget::default(), dial)
                .await
                .unwrap()
                .0
        };
        let mut unread = Vec::new();
        for _ in 0..20 {
            unread.push(connect().await);
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(unread.iter().all(Stream::is_held_up));
        unread.push(connect().await);
        assert_eq!(dials.get(), 1);
    })
    .await;
}

/// What [`Peer::dial`] does, of a peer that lets each tunnel have so many streams.
fn stingy(dials: &Rc<Cell<usize>>, streams: u32) -> impl Fn() -> StingyDial + use<> {
    let dials = Rc::clone(dials);
    move || {
        dials.set(dials.get() + 1);
        Box::pin(async move {
            let (near, far) = duplex(16 * 1024);
            let settings = Settings {
                max_streams: streams,
                ..Settings::server()
            };
            let mut incoming = serve(far, settings);
            spawn_local(async move {
                while let Some(incoming) = incoming.recv().await {
                    spawn_local(echo(incoming.accept(None).unwrap()));
                }
            });
            Ok(near)
        })
    }
}

type StingyDial = std::pin::Pin<Box<dyn Future<Output = Result<DuplexStream, String>>>>;

#[tokio::test]
async fn a_peer_that_allows_no_streams_is_dialled_a_few_times() {
    local(async {
        let (pool, dials) = (pool(), Rc::default());
        let reasons = Rc::new(RefCell::new(Vec::new()));
        let seen = Rc::clone(&reasons);
        pool.on_close(move |_, reason| seen.borrow_mut().push(reason.as_str()));
        for round in 1..=3 {
            let (key, request, none) = (key(), request(), RetryBudget::default());
            let asked = pool.connect(&key, &request, &none, stingy(&dials, 0));
            let asked = tokio::time::timeout(Duration::from_secs(60), asked).await;
            let error = asked.expect("it is given up").map(drop).unwrap_err();
            assert!(error.to_string().contains("allows no streams"), "{error}");
            assert!(dials.get() <= 3 * round, "{} dials", dials.get());
        }
        // None of them is any use to anybody.
        for _ in 0..3_000 {
            if pool.tunnels() == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(pool.tunnels(), 0);
        assert_eq!(*reasons.borrow(), vec!["no_streams"; dials.get()]);
    })
    .await;
}

#[tokio::test]
async fn a_peer_with_one_stream_for_each_tunnel_gets_only_so_many_tunnels() {
    local(async {
        let (pool, dials) = (pool(), Rc::default());
        let dial = stingy(&dials, 1);
        let mut streams = Vec::new();
        let error = loop {
            assert!(streams.len() < 1_000, "there is no end to it");
            match pool
                .connect(&key(), &request(), &RetryBudget::default(), &dial)
                .await
            {
                Ok((stream, _)) => streams.push(stream),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, PoolError::Full), "{error}");
        assert_eq!(pool.tunnels(), 256);
        assert_eq!(streams.len(), 256);
        says_hello(&mut streams[0]).await;
        streams.pop();
        let again = pool
            .connect(&key(), &request(), &RetryBudget::default(), &dial)
            .await;
        says_hello(&mut again.unwrap().0).await;
    })
    .await;
}
