//! Streams and requests that the waypoint refuses.

use lateen_exchange::Protocol;
use lateen_hbone::{Authority, ConnectError};
use lateen_proto::l7::Traffic;
use lateen_proto::workload::AppProtocol;

use super::application::{Application, echo, tell};
use super::world::{World, local};
use super::{connection, get, talk};
use crate::testing::until;

fn status(error: ConnectError) -> u16 {
    match error {
        ConnectError::Refused { status } => status,
        other => panic!("{other}"),
    }
}

#[test]
fn a_destination_that_nobody_knows_is_refused_with_its_address() {
    local(async {
        let world = World::start().await;
        let nowhere = std::net::SocketAddr::from((world.ip(9, 9), 80));
        let error = world.ask(nowhere).await.unwrap_err();
        assert_eq!(status(error), 503);
        let line = world
            .logged(&["connection failed", &nowhere.to_string()])
            .await;
        assert!(line.contains("no service or workload is known"), "{line}");
        let name = Authority::Name {
            name: "nobody.default.svc.cluster.local".to_owned(),
            port: 80,
        };
        assert_eq!(status(world.ask(name).await.unwrap_err()), 503);
    });
}

#[test]
fn a_service_of_another_gateway_is_refused_whatever_its_requests_say() {
    local(async {
        let mut world = World::start().await;
        world.put_unbound_service("other", 97, AppProtocol::Unknown);
        world.put_plain_endpoint("other", "other", 4);
        world.configure().await;
        let other = std::net::SocketAddr::from((world.ip(97, 1), 80));
        assert_eq!(status(world.ask(other).await.unwrap_err()), 400);
        let line = world
            .logged(&["connection failed", &other.to_string()])
            .await;
        assert!(
            line.contains("is not bound to the Gateway default/gate"),
            "{line}"
        );
        // Nor does a workload that names no waypoint.
        let pod = std::net::SocketAddr::from((world.ip(4, 1), 8080));
        assert_eq!(status(world.ask(pod).await.unwrap_err()), 400);
    });
}

#[test]
fn a_binding_opens_the_way_before_the_service_names_its_waypoint() {
    local(async {
        let mut world = World::start().await;
        world.put_unbound_service("other", 97, AppProtocol::Unknown);
        let endpoint = world.put_plain_endpoint("other", "other", 4);
        world.bind("other");
        world.configure().await;
        let _application = Application::plain(endpoint, Protocol::Http1, tell).await;
        let other = std::net::SocketAddr::from((world.ip(97, 1), 80));
        let client = connection(world.ask(other).await.unwrap(), Protocol::Http1);
        assert_eq!(get(&client, "GET", "/").await.0, 200);
    });
}

#[test]
fn a_host_field_does_not_lead_to_another_service() {
    local(async {
        let world = World::start().await;
        let application = Application::plain(world.endpoint(), Protocol::Http1, tell).await;
        let mut stream = world.stream().await;
        let request = "GET /own HTTP/1.1\r\nhost: other.default.svc.cluster.local\r\n\r\n";
        talk(&mut stream, request, "HTTP/1.1 200 OK\r\n").await;
        assert_eq!(application.requests.get(), 1);
    });
}

#[test]
fn ports_that_a_service_lacks_and_ports_of_proxies_are_refused() {
    local(async {
        let world = World::start().await;
        for (port, expected) in [(81, 503), (15008, 400)] {
            let address = std::net::SocketAddr::from((world.ip(96, 1), port));
            assert_eq!(
                status(world.ask(address).await.unwrap_err()),
                expected,
                "{port}"
            );
        }
    });
}

#[test]
fn ambiguous_heads_get_their_status_and_reach_no_endpoint() {
    local(async {
        let world = World::start().await;
        let application = Application::plain(world.endpoint(), Protocol::Http1, tell).await;
        for (request, expected) in [
            ("GET /a\0b HTTP/1.1\r\nhost: a\r\n\r\n", "HTTP/1.1 400 "),
            (
                "GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
                "HTTP/1.1 400 ",
            ),
            ("get / HTTP/1.1\r\nhost: a\r\n\r\n", "HTTP/1.1 400 "),
            (
                "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
                "HTTP/1.1 400 ",
            ),
            ("GET /a#b HTTP/1.1\r\nhost: a\r\n\r\n", "HTTP/1.1 400 "),
            ("GET http://a/ HTTP/1.1\r\nhost: b\r\n\r\n", "HTTP/1.1 400 "),
        ] {
            let mut stream = world.stream().await;
            talk(&mut stream, request, expected).await;
        }
        assert_eq!(application.requests.get(), 0);
        let labels = [
            "reporter=\"waypoint\"",
            "response_code=\"400\"",
            "response_flags=\"DPE\"",
        ];
        // By its first bytes the one with a NUL is no HTTP, and its server refuses it.
        until("the others are counted", || {
            world.metric("istio_requests_total", &labels) == Some(5.0)
        })
        .await;
        world
            .logged(&["request complete", "status=400", "flags=\"DPE\""])
            .await;
    });
}

#[test]
fn a_client_that_breaks_off_its_content_by_a_fault_is_told_apart_from_one_that_leaves() {
    local(async {
        let world = World::start().await;
        let _application = Application::plain(world.endpoint(), Protocol::Http1, echo).await;
        let mut stream = world.stream().await;
        let request =
            "POST /broken HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nnonsense\r\n";
        talk(&mut stream, request, "HTTP/1.1 ").await;
        world.logged(&["/broken", "flags=\"DPE\""]).await;
        let mut stream = world.stream().await;
        let request = "POST /left HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nhalf";
        talk(&mut stream, request, "HTTP/1.1 200 OK\r\n").await;
        drop(stream);
        world.logged(&["/left", "flags=\"DC\""]).await;
    });
}

#[test]
fn paths_are_canonical_before_they_are_forwarded() {
    local(async {
        let world = World::start().await;
        let _application = Application::plain(world.endpoint(), Protocol::Http1, tell).await;
        let mut stream = world.stream().await;
        let request = "GET /public/../admin HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
        talk(&mut stream, request, "HTTP/1.1 200 OK\r\n").await;
        world.logged(&["request complete", "path=\"/admin\""]).await;
    });
}

#[test]
fn without_an_endpoint_requests_get_503_and_the_flag_for_it() {
    local(async {
        let mut world = World::unconfigured();
        world.put_service("server", 96, lateen_proto::workload::AppProtocol::Http11);
        world.configure().await;
        for protocol in [Protocol::Http1, Protocol::Http2] {
            let client = connection(world.stream().await, protocol);
            let answered = get(&client, "GET", "/nobody").await;
            assert_eq!(answered, (503, "no healthy upstream".to_owned()));
        }
        world
            .logged(&["/nobody", "status=503", "flags=\"UH\""])
            .await;
    });
}

#[test]
fn a_pods_address_is_refused_by_a_waypoint_that_is_not_for_workloads() {
    local(async {
        let mut world = World::start().await;
        let pod = world.endpoint();
        world.bind_workload("app");
        for (traffic, workload, service) in [
            (Traffic::Service, Some("workloads"), None),
            (Traffic::Workload, None, Some("services")),
            (Traffic::None, Some("workloads"), Some("services")),
            (Traffic::All, None, None),
        ] {
            world.gateway.traffic = traffic.into();
            world.configure().await;
            for (address, refused) in [(pod, workload), (world.vip(), service)] {
                let asked = world.ask(address).await;
                match refused {
                    None => assert!(asked.is_ok(), "{traffic:?} {address}"),
                    Some(kind) => {
                        assert_eq!(status(asked.unwrap_err()), 400, "{traffic:?} {address}");
                        let reason = format!("default/gate takes no traffic for {kind}");
                        world
                            .logged(&["connection failed", &reason, &address.to_string()])
                            .await;
                    }
                }
            }
        }
    });
}
