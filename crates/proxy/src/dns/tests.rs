//! A pod's server between a client and resolvers, over real sockets. Needs root: sockets are marked.

mod ending;
mod rig;

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lateen_config::{Batch, Store, resource_kinds};
use lateen_dns::{Code, Family};
use lateen_netns::{DnsSockets, NamespaceThread, Netns, Options, SocketPool};
use lateen_telemetry::{BuildInfo, Metrics};
use lateen_testkit::wds;
use lateen_types::Identity;
use lateen_zds::PodInfo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, LocalSet, spawn_local};
use tokio::time::timeout;

use super::cache::Cache;
use super::resolvers::{File, Resolvers};
use super::server::{self, Common, Naming};
use super::upstream::{From, Upstream, framed};
use super::{Lookups, ResolveError};
use crate::current::Current;
use crate::pod::Pod;
use rig::*;

const SHED_DESCRIPTORS: &str = "lateen_dns_shed_total{reason=\"descriptors\"}";
#[tokio::test]
async fn the_mesh_answers_for_its_names_and_a_resolver_for_others() {
    local(async {
        let fake = Fake::start(|question, _| {
            // Letters as some servers have them, and before the reply one that is somebody's guess.
            let lower = question.to_ascii_lowercase();
            let mut guess = reply(question, 0, &[[10, 9, 9, 9]]);
            guess[0] ^= 1;
            let mut honest = reply(&lower, 0, &[[10, 0, 0, 7]]);
            honest[..2].copy_from_slice(&question[..2]);
            vec![guess, vec![], honest]
        })
        .await;
        let rig = Rig::new(&[fake.address]);
        let served = rig.serve("a");
        let mesh = served.ask(&question(7, "WEB.default", Family::V4)).await;
        assert_eq!(addresses(&mesh), [ip(1)]);
        assert_eq!(fake.asked(), (0, 0));

        let asked = question(7, "wWw.Example.org", Family::V4);
        let other = served.ask(&asked).await;
        assert_eq!(addresses(&other), [ip(7)]);
        let end = question_end(&asked);
        assert_eq!(other[..2], asked[..2]);
        assert_eq!(other[12..end], asked[12..end], "the client's own letters");
        assert_eq!(fake.asked(), (1, 0));
        assert_eq!(rig.metric("istio_dns_requests_total{"), 2);
        assert_eq!(rig.metric("istio_dns_upstream_requests_total{"), 1);
        assert_eq!(rig.metric("istio_dns_upstream_failures_total{"), 0);
        assert_eq!(
            rig.metric("istio_dns_upstream_request_duration_seconds_count{"),
            1
        );
        served.task.abort();
        fake.stop();
    })
    .await;
}

#[tokio::test]
async fn questions_on_one_connection_are_answered_whole_and_as_they_come() {
    local(async {
        let fake = Fake::start(|question, tcp| match tcp {
            false => vec![cut(question)],
            true => vec![reply(question, 0, &[[10, 0, 0, 7]; 200])],
        })
        .await;
        let rig = Rig::new(&[fake.address]);
        let served = rig.serve("a");
        let long = question(1, "long.example", Family::V4);
        assert!(
            lateen_dns::truncated(&served.ask(&long).await),
            "over UDP a client is told to come again"
        );
        assert_eq!(fake.asked(), (1, 0));

        let mut client = TcpStream::connect(served.address).await.unwrap();
        let mut both = framed(&long);
        both.extend_from_slice(&framed(&question(2, "web", Family::V4)));
        // In pieces: a message may arrive byte by byte.
        for piece in both.chunks(5) {
            client.write_all(piece).await.unwrap();
            tokio::task::yield_now().await;
        }
        client.shutdown().await.unwrap();
        let mut replies = Vec::new();
        for _ in 0..2 {
            replies.push(timeout(SOON, hear(&mut client)).await.expect("a reply"));
        }
        replies.sort_by_key(|reply| reply[1]);
        assert!(!lateen_dns::truncated(&replies[0]));
        assert!(replies[0].len() > 200 * 16);
        assert_eq!(addresses(&replies[1]), [ip(1)]);
        assert_eq!(fake.asked(), (2, 1));
        let mut rest = Vec::new();
        timeout(SOON, client.read_to_end(&mut rest))
            .await
            .expect("an end")
            .unwrap();
        assert!(rest.is_empty());
        served.task.abort();
        fake.stop();
    })
    .await;
}

#[tokio::test]
async fn a_resolver_that_is_down_or_fails_is_replaced() {
    local(async {
        let good = Fake::start(|question, _| vec![reply(question, 0, &[[10, 0, 0, 7]])]).await;
        let silent = Fake::start(|_, _| vec![]).await;
        let failing = Fake::start(|question, _| vec![reply(question, 2, &[])]).await;
        // Connected to itself it hears nobody else, and nobody else can have its port.
        let gone = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let nobody = gone.local_addr().unwrap();
        gone.connect(nobody).await.unwrap();
        for bad in [silent.address, failing.address, nobody] {
            let rig = Rig::new(&[bad, good.address]);
            let served = rig.serve("a");
            let first = served.ask(&question(1, "a.example", Family::V4)).await;
            assert_eq!(addresses(&first), [ip(7)]);
            let before = silent.asked();
            served.ask(&question(2, "b.example", Family::V4)).await;
            assert_eq!(
                silent.asked(),
                before,
                "the one that answered is asked first"
            );
            let other = rig.serve("b");
            let before = silent.asked();
            other.ask(&question(3, "c.example", Family::V4)).await;
            let tries = usize::from(bad == silent.address);
            assert_eq!(
                silent.asked().0 - before.0,
                tries,
                "whom one pod asks first is nothing to another"
            );
            other.task.abort();
            served.task.abort();
        }
        let rig = Rig::new(&[failing.address]);
        let served = rig.serve("a");
        let failed = served.ask(&question(3, "c.example", Family::V4)).await;
        assert_eq!(Code::of(&failed), Code::SERVER_FAILURE);
        assert_eq!(rig.metric("istio_dns_upstream_failures_total{"), 1);
        served.task.abort();
        let rig = Rig::new(&[]);
        let served = rig.serve("a");
        let failed = served.ask(&question(4, "d.example", Family::V4)).await;
        assert_eq!(Code::of(&failed), Code::SERVER_FAILURE);
        assert_eq!(
            addresses(&served.ask(&question(5, "web", Family::V4)).await),
            [ip(1)],
            "the mesh needs no resolver"
        );
        served.task.abort();
        for fake in [good, silent, failing] {
            fake.stop();
        }
    })
    .await;
}

#[tokio::test]
async fn a_resolver_cannot_deny_a_name_of_the_mesh() {
    local(async {
        let fake = Fake::start(|question, _| vec![reply(question, 3, &[])]).await;
        let rig = Rig::new(&[fake.address]);
        let served = rig.serve("a");
        const HTTPS: u16 = 65;
        let mesh = served
            .ask(&of_type(question(1, "web", Family::V4), HTTPS))
            .await;
        assert_eq!(Code::of(&mesh), Code::NO_ERROR);
        let other = served
            .ask(&of_type(question(1, "web.example", Family::V4), HTTPS))
            .await;
        assert_eq!(Code::of(&other), Code::NO_SUCH_NAME);
        assert_eq!(fake.asked(), (2, 0));
        served.task.abort();
        fake.stop();
    })
    .await;
}

#[tokio::test]
async fn the_same_question_is_asked_once_at_a_time() {
    local(async {
        let fake = Fake::start(|_, _| vec![]).await;
        let rig = Rig::new(&[fake.address]);
        let served = rig.serve("a");
        let ask = |id| {
            let question = question(id, "same.example", Family::V4);
            let served = &served;
            async move { served.ask(&question).await }
        };
        let replies = tokio::join!(ask(1), ask(2), ask(3));
        for reply in [&replies.0, &replies.1, &replies.2] {
            assert_eq!(Code::of(reply), Code::SERVER_FAILURE);
        }
        assert_eq!(fake.asked(), (2, 0), "as often as one is tried");
        served.task.abort();
        fake.stop();
    })
    .await;
}

#[tokio::test]
async fn a_pod_that_floods_is_turned_away_and_others_are_not() {
    local(async {
        let fake =
            Fake::start(
                |question, _| match question.windows(4).any(|four| four == b"void") {
                    true => vec![],
                    false => vec![reply(question, 0, &[[10, 0, 0, 7]])],
                },
            )
            .await;
        let rig = Rig::new(&[fake.address]);
        let (noisy, quiet) = (rig.serve("noisy"), rig.serve("quiet"));
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        client.connect(noisy.address).await.unwrap();
        let mut sent = 0;
        let began = Instant::now();
        while rig.metric("lateen_dns_shed_total") == 0 && began.elapsed() < SOON {
            for _ in 0..50 {
                sent += 1;
                client
                    .send(&question(sent, &format!("{sent}.void"), Family::V4))
                    .await
                    .unwrap();
            }
            tokio::task::yield_now().await;
        }
        assert!(
            rig.metric("lateen_dns_shed_total{reason=\"questions\"}") > 0,
            "{sent} questions are too many"
        );
        let reply = quiet.ask(&question(1, "a.example", Family::V4)).await;
        assert_eq!(addresses(&reply), [ip(7)]);
        let shed = noisy.ask(&question(1, "web", Family::V4)).await;
        assert_eq!(
            addresses(&shed),
            [ip(1)],
            "what needs no resolver is answered all the same"
        );
        noisy.task.abort();
        quiet.task.abort();
        fake.stop();
    })
    .await;
}

#[tokio::test]
async fn connections_of_one_pod_are_bounded() {
    local(async {
        let rig = Rig::new(&[]);
        let served = rig.serve("a");
        let mut open = Vec::new();
        for _ in 0..80 {
            open.push(TcpStream::connect(served.address).await.unwrap());
        }
        let mut last = open.pop().unwrap();
        let mut rest = Vec::new();
        let _ = timeout(SOON, last.read_to_end(&mut rest))
            .await
            .expect("an end");
        assert!(rig.metric("lateen_dns_shed_total{reason=\"connections\"}") >= 16);
        let first = &mut open[0];
        first
            .write_all(&framed(&question(1, "web", Family::V4)))
            .await
            .unwrap();
        assert_eq!(
            addresses(&timeout(SOON, hear(first)).await.expect("a reply")),
            [ip(1)]
        );
        served.task.abort();
    })
    .await;
}

#[tokio::test]
async fn hostnames_are_looked_up_once_and_outlive_their_resolver() {
    local(async {
        let fake = Fake::start(|question, _| {
            let is_v6 = question[question_end(question) - 3] == 28;
            let none = question.windows(4).any(|four| four == b"none");
            match (none, is_v6) {
                (true, _) => vec![reply(question, 3, &[])],
                (false, true) => vec![reply(question, 0, &[])],
                (false, false) => vec![reply(question, 0, &[[10, 0, 0, 7], [10, 0, 0, 8]])],
            }
        })
        .await;
        let rig = Rig::new(&[fake.address]);
        let pod = rig.pod("a");
        let from = From::pod(&pod);
        let cache = Arc::new(Mutex::new(Cache::default()));
        let lookups = Lookups {
            upstream: Rc::clone(&rig.common.upstream),
            cache: Arc::clone(&cache),
            metrics: rig.common.metrics.clone(),
            ipv6: true,
            waiting: RefCell::default(),
        };
        for _ in 0..2 {
            let found = lookups.look_up(&from, &pod.uid, "db.example").await;
            assert_eq!(found, Ok(vec![ip(7), ip(8)]));
        }
        assert_eq!(fake.asked(), (2, 0), "once for each family");
        let none = lookups.look_up(&from, &pod.uid, "none.example").await;
        assert!(
            matches!(none, Err(ResolveError::NoAddress { .. })),
            "{none:?}"
        );
        let bad = lookups.look_up(&from, &pod.uid, "no..name").await;
        assert!(matches!(bad, Err(ResolveError::NotAName(_))), "{bad:?}");

        fake.stop();
        // Time runs out.
        let past = Instant::now() - Duration::from_secs(5);
        let old = [ip(7), ip(8)];
        cache
            .lock()
            .unwrap()
            .keep(&pod.uid, "db.example", &old, 1, past);
        let stale = lookups.look_up(&from, &pod.uid, "db.example").await;
        assert_eq!(stale, Ok(old.to_vec()));
        let unknown = lookups.look_up(&from, &pod.uid, "other.example").await;
        assert!(
            matches!(unknown, Err(ResolveError::Unanswered { .. })),
            "{unknown:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn what_keeps_a_pod_from_asking_is_not_held_against_the_name() {
    local(async {
        let fake = Fake::start(|_, _| vec![]).await;
        for (servers, descriptors) in [(vec![], 0), (vec![fake.address], usize::MAX)] {
            let rig = Rig::new(&servers);
            let pod = rig.pod("a");
            let from = From::pod(&pod);
            let lookups = Lookups {
                upstream: Rc::clone(&rig.common.upstream),
                cache: Arc::default(),
                metrics: rig.common.metrics.clone(),
                ipv6: false,
                waiting: RefCell::default(),
            };
            let mut held = Vec::new();
            while held.len() < descriptors
                && let Some(one) = pod.share.take(1)
            {
                held.push(one);
            }
            let error = lookups.look_up(&from, &pod.uid, "db.example").await;
            let error = error.expect_err("nobody can be asked");
            let shed = rig.metric(SHED_DESCRIPTORS);
            match descriptors {
                0 => assert!(matches!(error, ResolveError::NotAsked { .. }), "{error}"),
                _ => assert!(matches!(error, ResolveError::NoRoom { .. }), "{error}"),
            }
            assert_eq!(shed, u64::from(descriptors > 0), "{error}");
            assert!(!error.blames_name());
            drop(held);
        }
        let rig = Rig::new(&[fake.address]);
        let pod = rig.pod("a");
        let from = From::pod(&pod);
        let lookups = Lookups {
            upstream: Rc::clone(&rig.common.upstream),
            cache: Arc::default(),
            metrics: rig.common.metrics.clone(),
            ipv6: false,
            waiting: RefCell::default(),
        };
        let error = lookups.look_up(&from, &pod.uid, "db.example").await;
        assert!(error.expect_err("it says nothing").blames_name());
        fake.stop();
    })
    .await;
}

/// It was not forwarded, so it is no failure of the resolvers.
#[tokio::test]
async fn a_pod_that_holds_its_share_is_told_so_and_counted() {
    local(async {
        let fake = Fake::start(|question, _| vec![reply(question, 0, &[[10, 0, 0, 7]])]).await;
        let rig = Rig::new(&[fake.address]);
        let served = rig.serve("a");
        let held: Vec<_> = std::iter::from_fn(|| served.pod.share.take(1)).collect();
        let reply = served.ask(&question(1, "a.example", Family::V4)).await;
        assert_eq!(reply[3] & 0x0f, 2, "SERVFAIL");
        assert_eq!(rig.metric(SHED_DESCRIPTORS), 1);
        assert_eq!(rig.metric("istio_dns_upstream_requests_total"), 0);
        // Over TCP the connection has no room already.
        let mut client = TcpStream::connect(served.address).await.unwrap();
        let mut rest = Vec::new();
        let _ = timeout(SOON, client.read_to_end(&mut rest))
            .await
            .expect("an end");
        assert_eq!((rig.metric(SHED_DESCRIPTORS), &*rest), (2, &[][..]));
        drop(held);
        let reply = served.ask(&question(2, "a.example", Family::V4)).await;
        assert_eq!(addresses(&reply), [ip(7)]);
        assert_eq!(rig.metric(SHED_DESCRIPTORS), 2);
        served.task.abort();
        fake.stop();
    })
    .await;
}

#[tokio::test]
async fn a_question_that_is_too_long_is_refused_over_tcp_too() {
    local(async {
        let fake = Fake::start(|question, _| vec![reply(question, 0, &[[10, 0, 0, 7]])]).await;
        let rig = Rig::new(&[fake.address]);
        let served = rig.serve("a");
        let mut client = TcpStream::connect(served.address).await.unwrap();
        for (length, code) in [(4096, 0), (4097, 1), (u16::MAX.into(), 1), (4096, 0)] {
            let mut long = question(3, "example.org", Family::V4);
            long.resize(length, 0);
            client.write_all(&framed(&long)).await.unwrap();
            let reply = timeout(SOON, hear(&mut client)).await.expect("a reply");
            assert_eq!((reply[1], reply[3] & 0x0f), (3, code), "{length}");
        }
        assert_eq!(fake.asked().0, 2);
        served.task.abort();
        fake.stop();
    })
    .await;
}

#[tokio::test]
async fn what_is_no_query_is_refused_or_ignored() {
    local(async {
        let rig = Rig::new(&[]);
        let served = rig.serve("a");
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        client.connect(served.address).await.unwrap();
        let mut update = question(9, "web", Family::V4);
        update[2] |= 5 << 3;
        client.send(&[0; 5]).await.unwrap();
        client
            .send(&reply(&question(8, "web", Family::V4), 0, &[]))
            .await
            .unwrap();
        client.send(&update).await.unwrap();
        let mut buffer = [0; 512];
        let length = timeout(SOON, client.recv(&mut buffer))
            .await
            .expect("a reply")
            .unwrap();
        // NOTIMP, with the number of the update: what came before it was not answered.
        assert_eq!((buffer[1], buffer[3] & 0x0f, length), (9, 4, 12));
        assert!(served.pod.share.take(4096).is_some());
        served.task.abort();
    })
    .await;
}
