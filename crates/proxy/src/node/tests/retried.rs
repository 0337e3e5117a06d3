//! Endpoints that cannot be reached: others are tried, and those that keep failing are left out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt as _;
use tokio::sync::mpsc::UnboundedReceiver;

use super::*;
use crate::connection_table::{Event, Fault};
use crate::pod::Port;

const RETRIES: &str = "lateen_connect_retries_total";
const EJECTED: &str = "lateen_endpoints_ejected";

async fn served_every_time(mesh: &Mesh, times: usize, application: &mut fixture::Application) {
    for _ in 0..times {
        let (_client, _served) = open(mesh, application).await;
    }
}

#[tokio::test]
async fn a_dead_endpoint_costs_a_retry_and_is_left_out_after_a_while() {
    let mut mesh = Mesh::start().await;
    mesh.put_endpoint("dead", mesh.ip(2, 66));
    mesh.configure().await;
    let mut application = mesh.application().await;
    assert_eq!(mesh.west.value(EJECTED), 0.0);
    // Three failures are enough, and half of all draws fail: hundreds of draws do not miss it.
    for round in 0.. {
        served_every_time(&mesh, 8, &mut application).await;
        if mesh.west.value(EJECTED) == 1.0 {
            break;
        }
        assert!(round < 40, "it is never left out");
    }
    assert_eq!(mesh.west.value(RETRIES), 3.0);
    let [ejected] = &mesh.west.ejected().await[..] else {
        panic!("one endpoint is listed");
    };
    assert_eq!(
        (ejected.workload.to_string(), ejected.port),
        (wds::uid("default", "dead"), 80)
    );
    served_every_time(&mesh, 20, &mut application).await;
    assert_eq!(mesh.west.value(RETRIES), 3.0, "it was tried again too soon");
    // Nobody hears of what went well in the end.
    assert_eq!(mesh.west.count(FAILED, &[]), 0.0);
}

#[tokio::test]
async fn an_attempt_that_another_one_replaces_is_told_as_retried() {
    let mut mesh = Mesh::start().await;
    mesh.put_endpoint("dead", mesh.ip(2, 66));
    mesh.configure().await;
    let mut application = mesh.application().await;
    let mut watch = mesh.west.watch();
    // Half of all draws fail.
    for round in 0.. {
        served_every_time(&mesh, 1, &mut application).await;
        let mut faults = Vec::new();
        while let Some(Some(event)) = watch.next().now_or_never() {
            if let Event::Closed(_, Some(ending)) = event {
                faults.push(ending.fault);
            }
        }
        assert!(faults.iter().all(|fault| *fault == Fault::Retried));
        if !faults.is_empty() {
            break;
        }
        assert!(round < 64, "no attempt was told of as retried");
    }
}

#[tokio::test]
async fn what_one_pod_does_not_reach_is_left_out_for_no_other_pod() {
    let mut mesh = Mesh::start().await;
    mesh.put_endpoint("dead", mesh.ip(2, 66));
    mesh.put_workload(wds::workload("neighbour", "west", mesh.ip(1, 3)));
    let second = std::net::SocketAddr::from((mesh.ip(96, 2), 80));
    mesh.change_service(|service| {
        let also = wds::service("server", second.ip(), 80, 8080);
        service.addresses.extend(also.addresses);
    });
    mesh.configure().await;
    let neighbour = mesh.west.pod("neighbour", "cluster.local");
    let _door = mesh.west.open(&neighbour, Port::Outbound, second);
    let mut application = mesh.application().await;
    for round in 0.. {
        served_every_time(&mesh, 8, &mut application).await;
        if mesh.west.value(EJECTED) == 1.0 {
            break;
        }
        assert!(round < 40, "it is never left out");
    }
    assert_eq!(mesh.west.value(RETRIES), 3.0);
    // The neighbour finds out for itself.
    for round in 0.. {
        let mut client = mesh.dial(second).await.unwrap();
        say(&mut client, "ping").await;
        let (mut served, _) = soon("the server accepts", application.recv())
            .await
            .unwrap();
        hear(&mut served, "ping").await;
        if mesh.west.value(EJECTED) == 2.0 {
            break;
        }
        assert!(round < 400, "it is never left out for the neighbour");
    }
    assert_eq!(mesh.west.value(RETRIES), 6.0);
    // What a pod met with goes with it.
    mesh.west.released(&neighbour);
    let [ejected] = &mesh.west.ejected().await[..] else {
        panic!("one endpoint is listed");
    };
    assert_eq!(ejected.pod, mesh.client.uid);
}

#[tokio::test]
async fn an_application_that_is_down_is_the_endpoints_fault_too() {
    let mut mesh = Mesh::start().await;
    let other = mesh.ip(2, 2);
    mesh.put_endpoint("other", other);
    mesh.configure().await;
    let pod = mesh.east.pod("other", "cluster.local");
    let _door = mesh.east.open(&pod, Port::Hbone, (other, 15008).into());
    // The proxies of both answer, the application of one only.
    let mut application = fixture::listen((other, 8080).into()).await;
    served_every_time(&mesh, 30, &mut application).await;
    assert!(mesh.west.value(RETRIES) > 0.0);
}

#[tokio::test]
async fn the_last_failure_says_how_many_endpoints_were_tried() {
    let mut mesh = Mesh::start().await;
    for (name, host) in [
        ("dead-a", 66),
        ("dead-b", 67),
        ("dead-c", 68),
        ("server", 69),
    ] {
        mesh.put_endpoint(name, mesh.ip(2, host));
    }
    mesh.configure().await;
    refused(&mesh, mesh.vip()).await;
    let line = mesh.logged(&["direction=\"outbound\"", "\terror\t"]).await;
    assert!(
        line.contains("Connection refused") && line.contains("; 3 endpoints were tried"),
        "{line}"
    );
    assert_eq!(mesh.west.value(RETRIES), 2.0);
    assert_eq!(
        mesh.west.count(OPENED, &[]),
        1.0,
        "one connection, one count"
    );
    assert_eq!(mesh.west.count(FAILED, &[]), 1.0);
}

#[tokio::test]
async fn the_only_endpoint_is_tried_once_and_never_left_out() {
    let mut mesh = Mesh::start().await;
    mesh.put_endpoint("server", mesh.ip(2, 66));
    mesh.configure().await;
    for _ in 0..6 {
        refused(&mesh, mesh.vip()).await;
    }
    mesh.logged(&["direction=\"outbound\"", "Connection refused"])
        .await;
    assert!(mesh.log(&["endpoints were tried"]).is_empty());
    assert_eq!(mesh.west.value(RETRIES), 0.0);
    assert_eq!(mesh.west.value(EJECTED), 0.0);
}

#[tokio::test]
async fn a_policys_refusal_is_final() {
    let mut mesh = Mesh::start().await;
    let principal = CLIENT.strip_prefix("spiffe://").unwrap();
    mesh.put_endpoint("dead", mesh.ip(2, 66));
    mesh.protect(wds::policy("no-client", Action::Deny, &[principal]))
        .await;
    for _ in 0..20 {
        refused(&mesh, mesh.vip()).await;
    }
    let outbound = ["direction=\"outbound\"", "connection complete"];
    until("all are told", || mesh.log(&outbound).len() == 20).await;
    // Whoever is asked first, the last word is the policy's: after it nobody else is asked.
    for line in mesh.log(&outbound) {
        assert!(line.contains("http status 401"), "{line}");
    }
    assert_eq!(mesh.east.count(FAILED, &["response_flags=\"DENY\""]), 20.0);
}

#[tokio::test]
async fn a_request_that_an_endpoint_died_of_goes_to_another_one_and_no_further() {
    let mut mesh = Mesh::start().await;
    mesh.put_endpoint("dying", mesh.ip(2, 66));
    mesh.configure().await;
    let mut lost = peer::dying(&mesh, "dying", (mesh.ip(2, 66), 15008).into()).await;
    let mut application = mesh.application().await;
    for round in 0.. {
        served_every_time(&mesh, 4, &mut application).await;
        if mesh.west.value(RETRIES) > 0.0 {
            break;
        }
        assert!(round < 40, "it is never chosen");
    }
    let mut asked = 0;
    while lost.try_recv().is_ok() {
        asked += 1;
    }
    // Once each: what its new tunnel died of is not repeated there.
    assert_eq!(f64::from(asked), mesh.west.value(RETRIES));
}

#[tokio::test]
async fn a_request_that_kills_its_peers_is_not_carried_to_all_of_them() {
    let mut mesh = Mesh::start().await;
    let mut peers = Vec::new();
    for (name, host) in [("dying-a", 66), ("dying-b", 67), ("server", 69)] {
        let at = mesh.ip(2, host);
        mesh.put_endpoint(name, at);
        peers.push(peer::dying(&mesh, name, (at, 15008).into()).await);
    }
    mesh.configure().await;
    refused(&mesh, mesh.vip()).await;
    let line = mesh.logged(&["direction=\"outbound\"", "\terror\t"]).await;
    assert!(
        line.contains("may have seen a connection open and close")
            && line.contains("; 2 endpoints were tried"),
        "{line}"
    );
    assert_eq!(mesh.west.value(RETRIES), 1.0);
    let asked: Vec<usize> = peers
        .iter_mut()
        .map(|peer| std::iter::from_fn(|| peer.try_recv().ok()).count())
        .collect();
    assert_eq!(asked.iter().sum::<usize>(), 2, "{asked:?}");
    assert!(asked.iter().all(|&times| times <= 1), "{asked:?}");
}

#[tokio::test]
async fn a_request_that_peers_die_of_which_had_served_is_sent_twice_in_all() {
    let mut mesh = Mesh::start().await;
    let dies = Arc::new(AtomicBool::new(false));
    let mut peers = Vec::new();
    for (name, host) in [("mortal-a", 66), ("mortal-b", 67), ("server", 69)] {
        let at = mesh.ip(2, host);
        mesh.put_endpoint(name, at);
        peers.push(peer::mortal(&mesh, name, (at, 15008).into(), Arc::clone(&dies)).await);
    }
    mesh.configure().await;
    let mut asked_since = || -> Vec<usize> {
        let count =
            |peer: &mut UnboundedReceiver<_>| std::iter::from_fn(|| peer.try_recv().ok()).count();
        peers.iter_mut().map(count).collect()
    };
    // Each has a tunnel on which it served.
    let mut served = [0; 3];
    for round in 0.. {
        let mut client = mesh.dial(mesh.vip()).await.unwrap();
        say(&mut client, "ping").await;
        hear(&mut client, "ping").await;
        for (sum, more) in served.iter_mut().zip(asked_since()) {
            *sum += more;
        }
        if served.iter().all(|&times| times > 0) {
            break;
        }
        assert!(round < 400, "one is never chosen");
    }
    dies.store(true, Ordering::Relaxed);
    refused(&mesh, mesh.vip()).await;
    mesh.logged(&["direction=\"outbound\"", "may have seen a connection"])
        .await;
    let asked = asked_since();
    assert_eq!(asked.iter().sum::<usize>(), 2, "{asked:?}");
}
