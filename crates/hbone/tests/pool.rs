//! Who shares a tunnel with whom, and for how long.

mod common;

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use common::{echo, local, request, serve};
use lateen_hbone::{Connection, Pool, PoolError, PoolKey, Settings, Status, Stream, TunnelError};
use lateen_testkit::Ca;
use lateen_types::Identity;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;

fn identity(name: &str) -> Identity {
    Identity::new("cluster.local", "default", name).unwrap()
}

fn key() -> PoolKey {
    PoolKey {
        source: identity("client"),
        destinations: vec![identity("server")].into(),
        address: "10.0.0.7:15008".parse::<SocketAddr>().unwrap(),
        source_ip: "10.0.0.1".parse::<IpAddr>().unwrap(),
    }
}

/// A peer that answers dials, counts them, and serves echo on every stream.
#[derive(Clone)]
struct Peer {
    dials: Rc<Cell<usize>>,
    settings: Settings,
    failing: Rc<Cell<bool>>,
    delay: Duration,
    /// Dropping one shuts that connection down.
    connections: Rc<RefCell<Vec<tokio::task::AbortHandle>>>,
}

impl Peer {
    fn new(settings: Settings) -> Self {
        Peer {
            dials: Rc::default(),
            settings,
            failing: Rc::default(),
            delay: Duration::from_millis(5),
            connections: Rc::default(),
        }
    }

    async fn dial(self) -> Result<DuplexStream, String> {
        self.dials.set(self.dials.get() + 1);
        tokio::time::sleep(self.delay).await;
        if self.failing.get() {
            return Err("dial 10.0.0.7:15008: refused".to_owned());
        }
        let (near, far) = duplex(64 * 1024);
        let mut incoming = serve(far, self.settings.clone());
        let serving = spawn_local(async move {
            while let Some(incoming) = incoming.recv().await {
                spawn_local(echo(incoming.accept(None).unwrap()));
            }
        });
        self.connections.borrow_mut().push(serving.abort_handle());
        Ok(near)
    }

    async fn connect(
        &self,
        pool: &Pool<String>,
        key: &PoolKey,
    ) -> Result<Stream, PoolError<String>> {
        let dial = || self.clone().dial();
        let (stream, _) = pool.connect(key, &request(), dial).await?;
        Ok(stream)
    }

    /// As many streams as asked for, all asked for at once.
    async fn crowd(
        &self,
        pool: &Pool<String>,
        count: usize,
    ) -> Vec<Result<Stream, PoolError<String>>> {
        let asking: Vec<_> = (0..count)
            .map(|_| {
                let (peer, pool) = (self.clone(), pool.clone());
                spawn_local(async move { peer.connect(&pool, &key()).await })
            })
            .collect();
        let mut all = Vec::new();
        for asked in asking {
            all.push(asked.await.unwrap());
        }
        all
    }
}

fn pool() -> Pool<String> {
    Pool::new(Settings::client(), 100)
}

async fn says_hello(stream: &mut Stream) {
    stream.write_all(b"hello").await.unwrap();
    let mut got = [0; 5];
    stream.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"hello");
}

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
                source_ip: "10.0.0.2".parse().unwrap(),
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

#[tokio::test]
async fn a_tunnel_told_to_go_away_is_replaced_and_its_streams_go_on() {
    local(async {
        let (pool, peer) = (pool(), Peer::new(Settings::server()));
        let mut old = peer.connect(&pool, &key()).await.unwrap();
        // The server's loop ends, its connection shuts down in order.
        peer.connections.borrow_mut().pop().unwrap().abort();
        let mut new = peer.connect(&pool, &key()).await.unwrap();
        says_hello(&mut new).await;
        while peer.dials.get() == 1 {
            // GOAWAY was not there yet: the first tunnel took it.
            new = peer.connect(&pool, &key()).await.unwrap();
        }
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
            .connect(&key(), &request(), dial)
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
        pool.connect(&key(), &request(), dial)
            .await
            .expect_err("nobody is there");
        assert!((1..=10).contains(&dials.get()), "{} dials", dials.get());
        while pool.tunnels() > 0 {
            tokio::task::yield_now().await;
        }
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
            source_ip: "10.0.0.2".parse().unwrap(),
            ..key()
        };
        let _kept = peer.connect(&pool, &other).await.unwrap();
        pool.retire(|key| key.source_ip == IpAddr::from([10, 0, 0, 1]));
        assert_eq!(pool.tunnels(), 1);
        says_hello(&mut old).await;
        says_hello(&mut peer.connect(&pool, &key()).await.unwrap()).await;
        assert_eq!(peer.dials.get(), 3);
        says_hello(&mut old).await;
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
                .connect(&key(), &request(), || {
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
            spawn_local(async move { pool.connect(&key(), &request(), dial).await })
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

/// A connection that can be cut without a word, as when the peer's node loses its power.
struct Cut(DuplexStream, Rc<Cell<bool>>);

impl tokio::io::AsyncRead for Cut {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buf: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        if self.1.get() {
            return std::task::Poll::Pending;
        }
        std::pin::Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl tokio::io::AsyncWrite for Cut {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buf: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        if self.1.get() {
            return std::task::Poll::Ready(Ok(buf.len()));
        }
        std::pin::Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.0).poll_shutdown(cx)
    }
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
                    Ok::<_, String>(Cut(peer.dial().await?, cut))
                }
            };
            pool.connect(&key(), &request(), dial).await.unwrap().0
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
            async move { Ok::<_, String>(Cut(peer.dial().await?, cut)) }
        };
        let (mut stream, _) = pool.connect(&key(), &request(), dial).await.unwrap();
        says_hello(&mut stream).await;
        // Out of use, and doubted all the same.
        assert_eq!(pool.retire(|_| true), 1);
        assert_eq!((pool.doubt(|_| false), pool.doubt(|_| true)), (0, 1));
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

#[tokio::test(start_paused = true)]
async fn a_congested_tunnel_gets_a_spare() {
    local(async {
        let (pool, peer) = (pool(), Peer::new(Settings::server()));
        let cut = Rc::new(Cell::new(false));
        let connect = async || {
            let dial = || {
                let (peer, cut) = (peer.clone(), Rc::clone(&cut));
                async move { Ok::<_, String>(Stuck(peer.dial().await?, cut)) }
            };
            pool.connect(&key(), &request(), dial).await
        };
        let mut streams = Vec::new();
        for _ in 0..12 {
            streams.push(connect().await.unwrap().0);
        }
        assert_eq!(peer.dials.get(), 1);
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
        assert_eq!(peer.dials.get(), 2);
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
                let mut incoming = serve(far, Settings::server());
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
            pool.connect(&key(), &request(), dial).await.unwrap().0
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

/// A connection that takes nothing while the flag is set, and does not say when it does again.
struct Stuck(DuplexStream, Rc<Cell<bool>>);

impl tokio::io::AsyncRead for Stuck {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buf: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl tokio::io::AsyncWrite for Stuck {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buf: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        if self.1.get() {
            return std::task::Poll::Pending;
        }
        std::pin::Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.0).poll_shutdown(cx)
    }
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
            let (key, request) = (key(), request());
            let asked = pool.connect(&key, &request, stingy(&dials, 0));
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
            match pool.connect(&key(), &request(), &dial).await {
                Ok((stream, _)) => streams.push(stream),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, PoolError::Full), "{error}");
        assert_eq!(pool.tunnels(), 256);
        assert_eq!(streams.len(), 256);
        says_hello(&mut streams[0]).await;
        streams.pop();
        let again = pool.connect(&key(), &request(), &dial).await;
        says_hello(&mut again.unwrap().0).await;
    })
    .await;
}
