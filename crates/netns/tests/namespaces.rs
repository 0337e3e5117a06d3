//! Sockets in real network namespaces. Needs root.

mod support;

use std::collections::HashSet;
use std::io::{ErrorKind, Write as _};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use lateen_accept::{Accepted, Acceptor, FdQuota, acceptor};
use lateen_netns::{DnsAt, Kind, Listeners, NamespaceThread, Netns, Options, SocketPool};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::SockRef;
use support::{TestPod, cookie};

fn home_cookie() -> u64 {
    cookie(&std::net::UdpSocket::bind("127.0.0.1:0").unwrap())
}

#[tokio::test]
async fn listeners_live_in_the_pod_and_nowhere_else() {
    let pod = TestPod::new();
    let thread = NamespaceThread::start().unwrap();
    let listeners = thread
        .open_listeners(&pod.netns, Options::default())
        .await
        .unwrap();
    let there = pod.cookie();
    assert_ne!(there, home_cookie());
    for (listener, port) in [
        (&listeners.outbound, 15001),
        (&listeners.plaintext, 15006),
        (&listeners.hbone, 15008),
    ] {
        assert_eq!(cookie(listener), there);
        let address = SockRef::from(listener)
            .local_addr()
            .unwrap()
            .as_socket()
            .unwrap();
        assert_eq!(address, std::net::SocketAddr::from(([0, 0, 0, 0], port)));
        pod.run(move || TcpStream::connect(("127.0.0.1", port)).unwrap());
        let from_home = TcpStream::connect(("127.0.0.1", port)).unwrap_err();
        assert_eq!(from_home.kind(), ErrorKind::ConnectionRefused);
    }
}

#[tokio::test]
async fn dns_sockets_are_the_pods_own_business() {
    let pod = TestPod::new();
    let thread = NamespaceThread::start().unwrap();
    for (ipv6, at) in [
        (true, vec!["127.0.0.1:15053", "[::1]:15053"]),
        (false, vec!["127.0.0.1:15053"]),
    ] {
        let options = Options {
            dns: Some(DnsAt::default()),
            ipv6,
            ..Options::default()
        };
        let dns = thread
            .open_listeners(&pod.netns, options)
            .await
            .unwrap()
            .dns;
        for sockets in [&dns.udp, &dns.tcp] {
            let addresses: Vec<_> = sockets
                .iter()
                .map(|socket| {
                    assert_eq!(cookie(socket), pod.cookie());
                    assert_eq!(SockRef::from(socket).mark().unwrap(), 0x539);
                    let address = SockRef::from(socket).local_addr().unwrap();
                    address.as_socket().unwrap().to_string()
                })
                .collect();
            assert_eq!(addresses, at);
        }
    }
}

#[tokio::test]
async fn a_pod_with_ipv6_switched_off_is_served_over_ipv4() {
    let pod = TestPod::new();
    pod.run(|| std::fs::write("/proc/sys/net/ipv6/conf/lo/disable_ipv6", "1").unwrap());
    let options = Options {
        dns: Some(DnsAt::default()),
        ipv6: true,
        ..Options::default()
    };
    let thread = NamespaceThread::start().unwrap();
    let listeners = thread.open_listeners(&pod.netns, options).await.unwrap();
    assert_eq!(listeners.dns.udp.len(), 1);
    assert_eq!(listeners.dns.tcp.len(), 1);
}

#[tokio::test]
async fn a_datagram_socket_of_the_pool_is_the_pods_and_marked() {
    let pod = TestPod::new();
    let thread = NamespaceThread::start().unwrap();
    let pool = SocketPool::new(pod.netns.clone(), Options::default(), thread);
    for kind in [Kind::Datagram, Kind::Datagram6] {
        let socket = pool.take(kind).await.unwrap();
        assert_eq!(cookie(&socket), pod.cookie());
        let socket = SockRef::from(&socket);
        assert_eq!(socket.mark().unwrap(), 0x539);
        assert_eq!(socket.r#type().unwrap(), socket2::Type::DGRAM);
    }
}

#[tokio::test]
async fn accepted_sockets_inherit_what_their_listener_was_given() {
    let pod = TestPod::new();
    let thread = NamespaceThread::start().unwrap();
    let listeners = thread
        .open_listeners(&pod.netns, Options::default())
        .await
        .unwrap();
    let _client = pod.run(|| TcpStream::connect("127.0.0.1:15006").unwrap());
    let listener = std::net::TcpListener::from(listeners.plaintext);
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    let (accepted, _) = loop {
        match listener.accept() {
            Err(error)
                if error.kind() == ErrorKind::WouldBlock
                    && std::time::Instant::now() < deadline =>
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            outcome => break outcome.unwrap(),
        }
    };
    let accepted = SockRef::from(&accepted);
    assert!(accepted.tcp_nodelay().unwrap());
    assert!(accepted.keepalive().unwrap());
    assert_eq!(
        accepted.tcp_keepalive_time().unwrap(),
        Duration::from_secs(180)
    );
    assert_eq!(accepted.tcp_keepalive_retries().unwrap(), 9);
    assert_eq!(accepted.mark().unwrap(), 0x539);
}

/// How a socket's connection is kept from congesting its path.
fn congestion(socket: &impl AsFd) -> String {
    let name = SockRef::from(socket).tcp_congestion().unwrap();
    let name = String::from_utf8(name).unwrap();
    name.trim_end_matches('\0').to_owned()
}

#[tokio::test]
async fn connections_to_the_pods_own_applications_are_not_paced_and_others_are_as_the_node_says() {
    let pod = TestPod::new();
    // The files are those of the thread's own namespace.
    let node = pod.run(|| {
        let allowed = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control");
        let allowed = allowed.unwrap();
        let other = allowed.split_whitespace().find(|name| *name != "reno");
        let other = other.expect("a kernel that has more than reno").to_owned();
        std::fs::write("/proc/sys/net/ipv4/tcp_congestion_control", &other).unwrap();
        other
    });
    let node = &*node;
    let thread = NamespaceThread::start().unwrap();
    let options = Options::default();
    let listeners = thread.open_listeners(&pod.netns, options).await.unwrap();
    let all = [&listeners.outbound, &listeners.plaintext, &listeners.hbone];
    assert_eq!(all.map(congestion), ["reno", node, node]);
    let pool = SocketPool::new(pod.netns.clone(), options, thread);
    for (kind, expected) in [
        (Kind::Transparent, "reno"),
        (Kind::Transparent6, "reno"),
        (Kind::Outbound, node),
        (Kind::Outbound6, node),
    ] {
        let socket = pool.take(kind).await.unwrap();
        assert_eq!(congestion(&socket), expected, "{kind:?}");
    }
    // A listener of a process that did not know of this.
    let outbound = SockRef::from(&listeners.outbound);
    outbound.set_tcp_congestion(node.as_bytes()).unwrap();
    let taken_over = Listeners::adopt(listeners.duplicates().unwrap(), &options).unwrap();
    assert_eq!(congestion(&taken_over.outbound), "reno");
    // What it accepts is as it is.
    let _client = pod.run(|| TcpStream::connect("127.0.0.1:15001").unwrap());
    let listener = std::net::TcpListener::from(taken_over.outbound);
    listener.set_nonblocking(false).unwrap();
    assert_eq!(congestion(&listener.accept().unwrap().0), "reno");
}

#[tokio::test]
async fn a_taken_port_is_said_to_be_taken() {
    let pod = TestPod::new();
    let thread = NamespaceThread::start().unwrap();
    let options = Options {
        reuse_port: false,
        ..Options::default()
    };
    let _first = thread.open_listeners(&pod.netns, options).await.unwrap();
    let error = thread
        .open_listeners(&pod.netns, options)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    assert!(error.to_string().contains("bind 0.0.0.0:15001"), "{error}");
}

/// The number of connections that wait in a listener, which it gives up.
fn drain(listener: &OwnedFd) -> usize {
    let listener = SockRef::from(listener);
    std::iter::from_fn(|| listener.accept().ok()).count()
}

/// Connects to each port of a pod's listeners a number of times. The clients leave; what they have opened waits to be accepted.
fn knock(pod: &TestPod, times: usize) {
    pod.run(move || {
        for port in [15001, 15006, 15008] {
            for _ in 0..times {
                TcpStream::connect(("127.0.0.1", port)).unwrap();
            }
        }
    });
}

/// The three listeners of a process.
fn three(listeners: &Listeners) -> [&OwnedFd; 3] {
    [&listeners.outbound, &listeners.plaintext, &listeners.hbone]
}

#[tokio::test]
async fn a_new_process_gets_no_connection_before_it_takes_its_share() {
    let thread = NamespaceThread::start().unwrap();
    for ipv6 in [false, true] {
        let pod = TestPod::new();
        let options = Options {
            ipv6,
            ..Options::default()
        };
        let open = || thread.open_listeners(&pod.netns, options);
        let old = open().await.unwrap();
        assert!(!old.shared, "nobody listened before");
        let new = open().await.unwrap();
        assert!(new.shared);
        knock(&pod, 40);
        assert_eq!(three(&old).map(drain), [40; 3]);
        assert_eq!(three(&new).map(drain), [0; 3]);
        new.take_share().unwrap();
        knock(&pod, 100);
        for (old, new) in three(&old).into_iter().zip(three(&new)) {
            let (old, new) = (drain(old), drain(new));
            assert_eq!(old + new, 100);
            assert!(old > 0 && new > 0, "{old} and {new}");
        }
        new.take_share()
            .expect("a share that it has can be taken again");
    }
}

#[tokio::test]
async fn a_new_process_gets_every_connection_when_the_old_one_closes() {
    let (pod, thread) = (TestPod::new(), NamespaceThread::start().unwrap());
    let open = || thread.open_listeners(&pod.netns, Options::default());
    let old = open().await.unwrap();
    let new = open().await.unwrap();
    drop(old);
    knock(&pod, 40);
    assert_eq!(three(&new).map(drain), [40; 3]);
    // It is the first one of its successor.
    let next = open().await.unwrap();
    assert!(next.shared);
    knock(&pod, 40);
    assert_eq!(three(&new).map(drain), [40; 3]);
}

#[tokio::test]
async fn connections_of_a_process_that_has_closed_its_listeners_are_no_listeners() {
    let (pod, thread) = (TestPod::new(), NamespaceThread::start().unwrap());
    let open = || thread.open_listeners(&pod.netns, Options::default());
    let old = open().await.unwrap();
    let _client = pod.run(|| TcpStream::connect("127.0.0.1:15001").unwrap());
    let _accepted = SockRef::from(&old.outbound).accept().unwrap();
    drop(old);
    assert!(!open().await.unwrap().shared);
}

#[tokio::test]
async fn the_pool_hands_out_marked_sockets_of_the_pod_each_once() {
    let pod = TestPod::new();
    let thread = NamespaceThread::start().unwrap();
    let pool = SocketPool::new(pod.netns.clone(), Options::default(), thread);
    let there = pod.cookie();
    let mut taken: Vec<OwnedFd> = Vec::new();
    for _ in 0..100 {
        taken.push(pool.take(Kind::Outbound).await.unwrap());
    }
    taken.push(pool.take(Kind::Transparent).await.unwrap());
    let distinct: HashSet<_> = taken.iter().map(AsRawFd::as_raw_fd).collect();
    assert_eq!(distinct.len(), taken.len());
    for socket in &taken {
        assert_eq!(cookie(socket), there);
        let socket = SockRef::from(socket);
        assert_eq!(socket.mark().unwrap(), 0x539);
        assert!(socket.tcp_nodelay().unwrap());
        assert!(socket.nonblocking().unwrap());
    }
    assert!(!SockRef::from(&taken[0]).ip_transparent_v4().unwrap());
    assert!(SockRef::from(&taken[100]).ip_transparent_v4().unwrap());
}

#[tokio::test]
async fn one_clients_address_may_use_a_port_once_for_each_destination() {
    let pod = TestPod::new();
    // So few that two destinations cannot do with ports of their own.
    pod.run(|| {
        // The file is that of the thread's own namespace.
        std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", "40000 40003").unwrap();
    });
    let thread = NamespaceThread::start().unwrap();
    let pool = SocketPool::new(pod.netns.clone(), Options::default(), thread);
    let client: std::net::SocketAddr = "192.0.2.7:0".parse().unwrap();
    let mut ports = Vec::new();
    let mut held = Vec::new();
    for destination in [8080, 8081].map(|port| std::net::SocketAddr::from(([127, 0, 0, 1], port))) {
        for _ in 0..3 {
            let socket = socket2::Socket::from(pool.take(Kind::Transparent).await.unwrap());
            socket.bind(&client.into()).unwrap();
            let unbound = socket.local_addr().unwrap().as_socket().unwrap();
            assert_eq!(unbound, client, "bind takes no port");
            // In progress for ever: no way leads back to such a client. It has its port all the same.
            let _ = socket.connect(&destination.into());
            ports.push(socket.local_addr().unwrap().as_socket().unwrap().port());
            held.push(socket);
        }
    }
    assert!(
        ports.iter().all(|port| (40000..=40003).contains(port)),
        "{ports:?}"
    );
}

#[tokio::test]
async fn towards_the_application_sockets_bind_addresses_that_are_not_the_pods() {
    let pod = TestPod::new();
    let thread = NamespaceThread::start().unwrap();
    let pool = SocketPool::new(pod.netns.clone(), Options::default(), thread);
    for (kind, client) in [
        (Kind::Transparent, "192.0.2.7:0"),
        (Kind::Transparent6, "[2001:db8::7]:0"),
    ] {
        let client: std::net::SocketAddr = client.parse().unwrap();
        let socket = socket2::Socket::from(pool.take(kind).await.unwrap());
        socket.bind(&client.into()).unwrap();
        let bound = socket.local_addr().unwrap().as_socket().unwrap();
        assert_eq!(bound, client);
    }
}

#[tokio::test]
async fn many_takers_at_once_all_get_a_socket() {
    let pod = TestPod::new();
    let thread = NamespaceThread::start().unwrap();
    let pool = SocketPool::new(pod.netns.clone(), Options::default(), thread);
    let takers: Vec<_> = (0..200)
        .map(|_| {
            let pool = pool.clone();
            tokio::spawn(async move { pool.take(Kind::Transparent).await.unwrap() })
        })
        .collect();
    let there = pod.cookie();
    for taker in takers {
        assert_eq!(cookie(&taker.await.unwrap()), there);
    }
}

#[tokio::test]
async fn an_idle_pool_is_given_back_and_serves_again() {
    let pod = TestPod::new();
    let thread = NamespaceThread::start().unwrap();
    let pool = SocketPool::new(pod.netns.clone(), Options::default(), thread);
    drop(pool.take(Kind::Outbound).await.unwrap());
    let now = std::time::Instant::now();
    let minutes = |count: u64| now + Duration::from_secs(60 * count);
    // Somebody came; nobody did.
    assert_eq!((pool.tidy(now), pool.tidy(now)), (0, 0));
    assert_eq!(pool.tidy(minutes(4)), 0);
    let mut closed = 0;
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    // The refill may still be under way.
    while closed < 5 && std::time::Instant::now() < deadline {
        closed += pool.tidy(minutes(6));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(closed >= 5, "{closed} sockets were closed");
    let there = pod.cookie();
    for _ in 0..20 {
        assert_eq!(cookie(&pool.take(Kind::Outbound).await.unwrap()), there);
    }
}

/// One thread makes the sockets of all pods, on demand of all at the same time.
#[tokio::test]
async fn sockets_of_pods_that_dial_at_the_same_time_are_never_mixed_up() {
    let pods: Vec<_> = (0..4).map(|_| TestPod::new()).collect();
    let thread = NamespaceThread::start().unwrap();
    let pools = pods
        .iter()
        .map(|pod| SocketPool::new(pod.netns.clone(), Options::default(), thread.clone()));
    let pools: Vec<_> = pools.collect();
    let kinds = [Kind::Outbound, Kind::Transparent, Kind::Datagram];
    for round in 0..100 {
        let takers = pools.iter().map(|pool| {
            let pool = pool.clone();
            tokio::spawn(async move { pool.take(kinds[round % kinds.len()]).await.unwrap() })
        });
        // All are under way before the first is waited for.
        let takers: Vec<_> = takers.collect();
        for (taker, pod) in takers.into_iter().zip(&pods) {
            let made = Netns::of_socket(taker.await.unwrap().as_fd()).unwrap();
            assert_eq!(made.id(), pod.netns.id(), "round {round}");
        }
    }
}

#[tokio::test]
async fn sixteen_connections_to_four_pods_load_two_workers_evenly() {
    let pods: Vec<_> = (0..4).map(|_| TestPod::new()).collect();
    let thread = NamespaceThread::start().unwrap();
    let (send, accepted) = mpsc::channel();
    let sinks = (0..2)
        .map(|_| {
            let send = send.clone();
            Box::new(move |connection: Accepted<usize>| send.send(connection).unwrap())
                as acceptor::Sink<usize>
        })
        .collect();
    let acceptor = Acceptor::start(sinks, None, |error| panic!("{error}")).unwrap();
    let mut registered = Vec::new();
    for (index, pod) in pods.iter().enumerate() {
        let listeners = thread
            .open_listeners(&pod.netns, Options::default())
            .await
            .unwrap();
        let quota = FdQuota::new(index.to_string(), 1000);
        registered.push(
            acceptor
                .register(listeners.outbound, index, &quota, 2)
                .unwrap(),
        );
    }
    // Uneven over the pods, so that only a common view of the load can balance them.
    let clients: Vec<_> = [7, 1, 5, 3]
        .into_iter()
        .zip(&pods)
        .map(|(count, pod)| {
            pod.run(move || {
                (0..count)
                    .map(|_| TcpStream::connect("127.0.0.1:15001").unwrap())
                    .collect::<Vec<_>>()
            })
        })
        .collect();
    let held: Vec<_> = (0..16).map(|_| accepted.recv().unwrap()).collect();
    assert_eq!(acceptor.loads().read(), [8, 8]);
    for connection in &held {
        assert_eq!(
            cookie(&connection.stream.as_fd()),
            pods[connection.tag].cookie()
        );
    }
    drop(clients);
}

#[tokio::test]
async fn a_crowd_of_visits_is_turned_away_and_keeps_nobody_from_sockets() {
    let pod = TestPod::new();
    let thread = NamespaceThread::start().unwrap();
    let pool = SocketPool::new(pod.netns.clone(), Options::default(), thread);
    let there = pool.visit(|| Netns::current().unwrap().id()).await;
    assert_eq!(there.unwrap(), pod.netns.id());
    let (go_on, held) = mpsc::channel::<()>();
    let mut first = Box::pin(pool.visit(move || held.recv().is_err()));
    let mut now = Context::from_waker(Waker::noop());
    assert!(first.as_mut().poll(&mut now).is_pending());
    let (mut waiting, mut busy) = (Vec::new(), 0);
    for _ in 0..200 {
        let mut visit = Box::pin(pool.visit(|| ()));
        match visit.as_mut().poll(&mut now) {
            Poll::Pending => waiting.push(visit),
            Poll::Ready(Err(error)) if error.kind() == ErrorKind::ResourceBusy => busy += 1,
            Poll::Ready(other) => panic!("{other:?}"),
        }
    }
    assert!(busy > 0 && !waiting.is_empty());
    // With somebody in the pod's namespace for as long as it takes.
    let socket = pool.take(Kind::Outbound).await.unwrap();
    assert_eq!(cookie(&socket), pod.cookie());
    drop(go_on);
    assert!(first.await.unwrap());
    for visit in waiting {
        visit.await.unwrap();
    }
}

#[test]
fn a_reader_is_woken_by_as_many_bytes_as_were_asked_for_or_by_the_end() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let stream = listener.accept().unwrap().0;
    stream.set_nonblocking(true).unwrap();
    // What is there, whoever is woken by it.
    let there = |bytes: usize| {
        while !matches!(stream.peek(&mut [0; 4096]), Ok(n) if n >= bytes) {
            std::thread::yield_now();
        }
    };
    let wakes = |time: PollTimeout| {
        let mut events = [PollFd::new(stream.as_fd(), PollFlags::POLLIN)];
        poll(&mut events, time).unwrap() == 1
    };
    lateen_os::wake_at(&stream, 1000);
    peer.write_all(&[7; 999]).unwrap();
    there(999);
    assert!(!wakes(PollTimeout::ZERO));
    peer.write_all(&[7]).unwrap();
    there(1000);
    assert!(wakes(PollTimeout::ZERO));
    lateen_os::wake_at(&stream, 2000);
    assert!(!wakes(PollTimeout::ZERO));
    lateen_os::wake_at(&stream, 1);
    assert!(wakes(PollTimeout::ZERO));
    lateen_os::wake_at(&stream, 2000);
    drop(peer);
    assert!(wakes(PollTimeout::from(10_000u16)));
}
