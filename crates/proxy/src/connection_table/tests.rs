use std::sync::Arc;

use lateen_netns::{NamespaceThread, Netns, Options, SocketPool};
use lateen_types::{Direction, Identity};
use lateen_zds::PodInfo;

use super::entry::State;
use super::*;
use crate::pod::Pod;

fn pod() -> Arc<Pod> {
    let info = PodInfo {
        name: "a".into(),
        namespace: "default".into(),
        service_account: "a".into(),
    };
    let sockets = SocketPool::new(
        Netns::current().unwrap(),
        Options::default(),
        NamespaceThread::start().expect("this test needs root: it enters namespaces"),
    );
    let identity = Identity::new("cluster.local", "default", "a").unwrap();
    Arc::new(Pod::new("uid".into(), info, identity, sockets, 10))
}

fn inbound(pod: &Arc<Pod>) -> Facts {
    Facts {
        pod: Arc::clone(pod),
        peer: None,
        source: "10.0.0.1:1000".parse().unwrap(),
        destination: "10.0.0.2:80".parse().unwrap(),
    }
}

fn outbound(pod: &Arc<Pod>) -> Outgoing {
    Outgoing {
        pod: Arc::clone(pod),
        source: "10.0.0.2:1000".parse().unwrap(),
        wanted: "10.0.1.1:80".parse().unwrap(),
        hop: "10.0.1.2:15008".parse().unwrap(),
        tunnelled: true,
    }
}

#[tokio::test]
async fn a_connection_is_listed_from_its_beginning_to_its_end() {
    let (table, pod) = (ConnectionTable::default(), pod());
    let tracked = table.enter(inbound(&pod), 0);
    assert_eq!(table.list()[0].state, State::Opening);
    tracked.opened();
    tracked.through(7);
    tracked.add_received(3);
    tracked.add_sent(5);
    let listed = &table.list()[0];
    assert_eq!(
        (listed.direction, listed.state, listed.tunnel),
        (Direction::Inbound, State::Open, Some(7))
    );
    assert_eq!((listed.to_server, listed.to_client), (3, 5));
    tracked.leave(NO_FAULT);
    assert!(table.list().is_empty());
}

#[tokio::test]
async fn what_is_cut_hears_the_first_reason_and_only_once() {
    let (table, pod) = (ConnectionTable::default(), pod());
    let (coming, going) = (
        table.enter(inbound(&pod), 0),
        table.depart(outbound(&pod), 0),
    );
    coming.through(3);
    going.through(3);
    assert_eq!(table.cut_tunnel(4, Direction::Inbound, Cut::Revoked), 0);
    assert_eq!(table.cut_tunnel(3, Direction::Inbound, Cut::Revoked), 1);
    assert_eq!(table.cut_tunnel(3, Direction::Inbound, Cut::Revoked), 0);
    assert_eq!(table.cut_all(Cut::Deadline), 1);
    assert_eq!(coming.cut().await, Cut::Revoked);
    assert_eq!(going.cut().await, Cut::Deadline);
    assert!(
        table
            .list()
            .iter()
            .all(|listed| matches!(listed.state, State::Cut(_)))
    );
}

#[tokio::test]
async fn a_watch_hears_of_both_ends_and_loses_what_nobody_reads() {
    let (table, pod) = (ConnectionTable::default(), pod());
    let (watcher, mut watch) = Watch::new(2);
    table.watch(watcher);
    let first = table.enter(inbound(&pod), 77);
    first.admitted(Judgement::default());
    first.add_sent(9);
    first.leave(Some((Fault::Failed, broken)));
    table.depart(outbound(&pod), 0).leave(NO_FAULT);
    assert_eq!(watch.missed(), 2);
    assert!(matches!(watch.next().await, Some(Event::Opened(_))));
    let Some(Event::Closed(listed, Some(ending))) = watch.next().await else {
        panic!("the end was not told");
    };
    assert_eq!((listed.to_client, *ending), (9, broken()));
    assert_eq!(listed.pair, 77, "the other proxy's name for it");
    drop(watch);
    table.depart(outbound(&pod), 0).leave(NO_FAULT);
    assert!(
        table.0.watchers.borrow().is_empty(),
        "nobody listens any more"
    );
}

const NO_FAULT: Option<(Fault, fn() -> Ending)> = None;

fn broken() -> Ending {
    Ending {
        fault: Fault::Failed,
        flags: lateen_telemetry::ResponseFlags::ConnectionFailure,
        reason: "broken".into(),
    }
}

#[tokio::test]
async fn a_pods_totals_grow_and_go_with_it() {
    let (table, pod) = (ConnectionTable::default(), pod());
    let open = table.enter(inbound(&pod), 0);
    open.add_received(5);
    open.add_sent(100);
    let ended = table.depart(outbound(&pod), 0);
    ended.add_received(30);
    ended.add_sent(7);
    ended.leave(Some((Fault::Failed, broken)));
    for fault in [Fault::Denied, Fault::DeniedByPeer] {
        table.depart(outbound(&pod), 0).leave(Some((fault, broken)));
    }
    // A client receives the bytes to the client; a server receives the bytes to the server.
    let wanted = Totals {
        open: 1,
        opened: 4,
        denied: 2,
        failed: 1,
        received: 12,
        sent: 130,
    };
    assert_eq!(table.totals()[&pod.uid], wanted);
    table.forget(&pod.uid);
    drop(open);
    assert!(table.totals().is_empty(), "a pod that is gone came back");
}

#[tokio::test]
async fn an_inbound_connection_is_told_of_once_policies_have_decided() {
    let (table, pod) = (ConnectionTable::default(), pod());
    let (watcher, mut watch) = Watch::new(8);
    table.watch(watcher);
    let would_deny = Denial {
        by: vec!["default/rehearsed".into()],
        ..Denial::default()
    };
    let judgement = Judgement {
        would_deny: Some(would_deny),
        ..Judgement::default()
    };
    let admitted = table.enter(inbound(&pod), 0);
    admitted.admitted(judgement.clone());
    let Some(Event::Opened(listed)) = watch.next().await else {
        panic!("it was not told that it opened");
    };
    assert_eq!(listed.judgement, judgement);
    drop(admitted);
    assert!(matches!(watch.next().await, Some(Event::Closed(_, None))));
    let denied = table.enter(inbound(&pod), 0);
    let denial = Denial {
        none_matched: vec!["default/only-web".into()],
        ..Denial::default()
    };
    denied.refused(Judgement {
        denied: Some(denial.clone()),
        ..Judgement::default()
    });
    denied.leave(Some((Fault::Denied, broken)));
    let Some(Event::Closed(listed, Some(_))) = watch.next().await else {
        panic!("a connection that never opened was said to have opened");
    };
    assert_eq!(listed.judgement.denied, Some(denial));
}
