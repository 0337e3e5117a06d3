//! The page of clients' connections.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use lateen_admin::{Answer, Asked, Reply};
use lateen_exchange::{Error, Protocol, server};
use lateen_http::FramedRequest;
use lateen_proto::workload::AppProtocol;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::application::Application;
use super::connections::greet_and_echo;
use super::world::{World, local};
use super::{connection, head, talk};
use crate::connections::WaypointConnections;
use crate::testing::soon;

async fn ask(world: &World, path: &str, query: &str) -> Answer {
    let pages = Arc::new(WaypointConnections::new(vec![world.worker.clone()]));
    let asked = Asked {
        method: http::Method::GET,
        path: path.to_owned(),
        query: query.to_owned(),
    };
    match pages.answer(asked).await {
        Reply::Whole(answer) => answer,
        Reply::Lines(_) => panic!("it is asked for a page"),
    }
}

/// The connections of the page.
async fn listed(world: &World, query: &str) -> Vec<Value> {
    let answer = ask(world, "/connections", query).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let page: Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(page["truncated"], json!(false));
    page["connections"].as_array().unwrap().clone()
}

/// The connections of the page, once they are as expected.
async fn listed_once(world: &World, is_so: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let look = async {
        loop {
            let list = listed(world, "").await;
            if is_so(&list) {
                return list;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    soon("the page is as expected", look).await
}

/// Answers nothing for as long as the client waits.
async fn hold(_: FramedRequest, exchange: server::Exchange) -> Result<(), Error> {
    let _held = exchange;
    pending().await
}

#[test]
fn a_connection_is_listed_with_its_client_its_service_and_its_requests_under_way() {
    local(async {
        for protocol in [Protocol::Http1, Protocol::Http2] {
            let world = World::start().await;
            let _application = Application::plain(world.endpoint(), protocol, hold).await;
            assert!(listed(&world, "").await.is_empty());
            let client = connection(world.stream().await, protocol);
            let (word, most) = match protocol {
                Protocol::Http1 => ("HTTP/1.1", 1),
                Protocol::Http2 => ("HTTP/2", 2),
            };
            let ask = || client.request(&head("GET", "/", &[]), None).unwrap();
            let mut exchanges: Vec<_> = (0..most).map(|_| ask()).collect();
            let list = listed_once(&world, |list| {
                list.first().is_some_and(|line| line["requests"] == most)
            })
            .await;
            let line = &list[0];
            assert_eq!(list.len(), 1);
            assert_eq!(line["source"]["workload"], "client");
            assert_eq!(line["source"]["namespace"], "default");
            let identity = "spiffe://cluster.local/ns/default/sa/client";
            assert_eq!(line["source"]["identity"], identity);
            assert_eq!(line["service"], "server.default.svc.cluster.local");
            assert_eq!(line["destination"]["address"], world.vip().to_string());
            assert_eq!(line["protocol"], word);
            assert!(line["bytes"]["clientToServer"].as_u64() > Some(0), "{line}");
            assert!(line["seconds"].as_f64() >= Some(0.0), "{line}");
            if protocol == Protocol::Http2 {
                drop(exchanges.pop());
                listed_once(&world, |list| list[0]["requests"] == 1).await;
            }
            drop((exchanges, client));
            listed_once(&world, <[Value]>::is_empty).await;
        }
    });
}

#[test]
fn a_relayed_connection_is_listed_with_its_bytes_and_without_requests() {
    local(async {
        let mut world = World::unconfigured();
        world.put_service("server", 96, AppProtocol::Tcp);
        let endpoint = world.put_plain_endpoint("server", "app", 3);
        world.configure().await;
        greet_and_echo(TcpListener::bind(endpoint).await.unwrap(), "hi ");
        let mut stream = world.stream().await;
        talk(&mut stream, "there", "hi there").await;
        let list = listed_once(&world, |list| {
            list.first()
                .is_some_and(|line| line["bytes"]["serverToClient"] == 8)
        })
        .await;
        assert_eq!(list[0]["protocol"], "TCP");
        assert_eq!(list[0]["bytes"]["clientToServer"], 5);
        assert_eq!(list[0]["requests"], Value::Null);
        assert_eq!(listed(&world, "service=server").await.len(), 1);
        assert!(listed(&world, "service=other").await.is_empty());
        drop(stream);
        listed_once(&world, <[Value]>::is_empty).await;
    });
}

#[test]
fn a_question_that_a_waypoint_does_not_answer_is_refused() {
    local(async {
        let world = World::start().await;
        for (path, query, status) in [
            ("/connections", "follow", 400),
            ("/connections", "servce=a", 400),
            ("/pods", "", 404),
        ] {
            let answer = ask(&world, path, query).await;
            assert_eq!(answer.status, status, "{path}?{query}");
        }
    });
}
