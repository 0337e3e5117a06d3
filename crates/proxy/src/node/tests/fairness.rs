//! Tests of fairness: the time that is spent for a pod is charged to it, on both sides of a tunnel.

use std::cell::Cell;
use std::future::poll_fn;
use std::hint::black_box;
use std::rc::Rc;
use std::task::Poll;

use lateen_accept::{Acceptor, FdQuota};
use lateen_executor::Executor;
use socket2::{Domain, Socket, Type};

use super::*;
use crate::pod::Port;

/// Connections of the busy pod, and questions on each of them.
const BUSY: usize = 40;

async fn answer(mut stream: TcpStream) {
    let mut byte = [0];
    while stream.read_exact(&mut byte).await.is_ok() {
        if stream.write_all(&byte).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn a_pod_pays_for_its_own_connections_and_for_no_other_pods() {
    let mut mesh = Mesh::unconfigured();
    let busy_vip = SocketAddr::new(mesh.vip().ip(), 81);
    let idle_ip = mesh.ip(2, 9);
    mesh.put_workload(wds::workload("busy", "west", mesh.ip(1, 2)));
    mesh.put_workload(wds::workload("idle", "east", idle_ip));
    mesh.change_service(|service| {
        service.ports.push(lateen_proto::workload::Port {
            service_port: 81,
            target_port: 8080,
            ..Default::default()
        });
    });
    let (busy, idle) = (
        mesh.west.pod("busy", "cluster.local"),
        mesh.east.pod("idle", "cluster.local"),
    );
    let _doors = [
        mesh.west.open(&busy, Port::Outbound, busy_vip),
        mesh.east.open(&idle, Port::Hbone, (idle_ip, 15008).into()),
    ];
    mesh.configure().await;
    let mut application = mesh.application().await;
    tokio::spawn(async move {
        while let Some((stream, _)) = application.recv().await {
            tokio::spawn(answer(stream));
        }
    });

    // A quiet pod has its tunnel and its connection.
    let mut quiet = mesh.dial(mesh.vip()).await.unwrap();
    say(&mut quiet, "?").await;
    hear(&mut quiet, "?").await;
    let at_first = mesh.west.spent_on(&mesh.client).await;
    assert!(!at_first.used.is_zero(), "a handshake costs something");

    // A thread that the machine stops is charged for it where no groups compete. It is stopped in few of the rounds.
    let mut rounds = Vec::new();
    let spent = async || {
        let busy = mesh.west.spent_on(&busy).await.used;
        let quiets = mesh.west.spent_on(&mesh.client).await.used;
        (busy, quiets, mesh.east.spent_on(&mesh.server).await.used)
    };
    for _ in 0..BUSY {
        let before = spent().await;
        let mut stream = mesh.dial_from(mesh.ip(1, 2), busy_vip).await.unwrap();
        for _ in 0..BUSY {
            say(&mut stream, "?").await;
            hear(&mut stream, "?").await;
        }
        let after = spent().await;
        rounds.push((after.0 - before.0, after.1 - before.1, after.2 - before.2));
    }
    // The rounds in which the quiet pod was charged most are left out.
    rounds.sort_by_key(|(_, quiets, _)| *quiets);
    let rest = &rounds[..BUSY - 4];
    let sum = |part: fn(&(Duration, Duration, Duration)) -> Duration| {
        rest.iter().map(part).sum::<Duration>()
    };
    let (work, quiets, servers) = (sum(|r| r.0), sum(|r| r.1), sum(|r| r.2));
    assert!(quiets * 10 < work, "{rounds:?}");
    // At the other end it is the server's work, and nobody else's.
    assert!(servers * 2 > work / 4, "{rounds:?}");
    let busy = mesh.west.spent_on(&busy).await;
    assert_eq!(busy.totals.opened, BUSY as u64);
    assert!(mesh.east.spent_on(&idle).await.used.is_zero());
}

#[tokio::test]
async fn a_pod_pays_for_connections_that_are_reset_since_it_has_its_share() {
    let mesh = Mesh::start().await;
    assert!(mesh.west.spent_on(&mesh.client).await.used.is_zero());
    let _all = mesh.client.share.take(fixture::SHARE).unwrap();
    // The reset may be faster than the news that it is connected.
    if let Ok(mut refused) = mesh.dial(mesh.vip()).await {
        assert!(refused.read_u8().await.is_err());
    }
    let spent = mesh.west.spent_on(&mesh.client).await;
    assert!(!spent.used.is_zero());
    assert_eq!(spent.totals.opened, 0);
}

#[test]
fn a_storm_of_connections_leaves_half_of_the_worker_to_another_pod() {
    const STORM: u32 = 400;
    let work = || {
        for n in 0..20_000 {
            black_box(n);
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let _entered = runtime.enter();
    let (acceptor, own) = Acceptor::without_thread().unwrap();
    let listener = Socket::new(Domain::IPV4, Type::STREAM.nonblocking(), None).unwrap();
    listener
        .bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
        .unwrap();
    listener.listen(1000).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    let share = FdQuota::new("pod".to_owned(), 1000);
    let _registered = acceptor.register(listener.into(), (), &share, 1).unwrap();
    let connected = (0..STORM).map(|_| std::net::TcpStream::connect(address).unwrap());
    let _clients: Vec<_> = connected.collect();

    let executor = Executor::default();
    let (storm, busy) = (executor.group(), executor.group());
    busy.spawn(poll_fn(move |cx| {
        work();
        cx.waker().wake_by_ref();
        Poll::Pending
    }));
    let accepted = Rc::new(Cell::new(0));
    let accepting = own.watch().unwrap().run(|waiting| {
        let accepted = Rc::clone(&accepted);
        storm.spawn(waiting.accept(move |_| {
            work();
            accepted.set(accepted.get() + 1);
        }));
    });
    let all = async {
        while accepted.get() < STORM {
            tokio::task::yield_now().await;
        }
    };
    runtime.block_on(executor.run_until(async {
        tokio::select! {
            ended = accepting => panic!("{ended:?}"),
            () = all => {}
        }
    }));
    let (storm, busy) = (storm.used(), busy.used());
    assert!(busy * 2 > storm, "busy {busy:?}, storm {storm:?}");
    assert!(storm * 2 > busy, "busy {busy:?}, storm {storm:?}");
}
