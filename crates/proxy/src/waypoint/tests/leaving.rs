//! A service or a workload that is taken from the waypoint while clients have connections to it.

use std::net::SocketAddr;

use lateen_exchange::Protocol;
use lateen_proto::l7::Traffic;
use lateen_proto::workload::AppProtocol;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

use super::application::{Application, tell};
use super::connections::greet_and_echo;
use super::world::{SILENCE, World, elsewhere, local};
use super::{connection, get, talk};
use crate::testing::{soon, until};

/// A waypoint with a service `other` that is bound by a Binding alone, and the address of the service and of its endpoint.
async fn bound(protocol: AppProtocol) -> (World, SocketAddr, SocketAddr) {
    let mut world = World::unconfigured();
    world.put_unbound_service("other", 97, protocol);
    let endpoint = world.put_plain_endpoint("other", "other", 4);
    world.bind("other");
    world.configure().await;
    let service = (world.ip(97, 1), 80).into();
    (world, service, endpoint)
}

#[test]
fn a_connection_ends_with_its_next_answer_when_its_service_leaves() {
    local(async {
        for protocol in [Protocol::Http1, Protocol::Http2] {
            let (mut world, service, endpoint) = bound(AppProtocol::Unknown).await;
            let _application = Application::plain(endpoint, protocol, tell).await;
            let client = connection(world.ask(service).await.unwrap(), protocol);
            assert_eq!(get(&client, "GET", "/before").await.0, 200);
            world.leave("other");
            world.configure().await;
            if protocol == Protocol::Http1 {
                // A request that is on its way when the waypoint hears of it.
                assert_eq!(get(&client, "GET", "/on-its-way").await.0, 200);
            }
            until("the client is told to leave", || client.is_closed()).await;
            let late = connection(world.ask(service).await.unwrap(), protocol);
            assert_eq!(
                get(&late, "GET", "/late").await.0,
                200,
                "from a proxy that lags"
            );
            until("the late client is told to leave", || late.is_closed()).await;
        }
    });
}

#[test]
fn a_service_that_another_waypoint_has_now_is_still_reached_directly() {
    local(async {
        let (mut world, service, endpoint) = bound(AppProtocol::Unknown).await;
        let _application = Application::plain(endpoint, Protocol::Http1, tell).await;
        let client = connection(world.ask(service).await.unwrap(), Protocol::Http1);
        world.leave("other");
        world.lead_elsewhere("other", 97);
        world.configure().await;
        assert_eq!(get(&client, "GET", "/on-its-way").await.0, 200);
    });
}

#[test]
fn a_service_that_is_gone_from_here_is_served_no_longer() {
    local(async {
        let (mut world, service, endpoint) = bound(AppProtocol::Unknown).await;
        let _application = Application::plain(endpoint, Protocol::Http1, tell).await;
        let mut client = world.ask(service).await.unwrap();
        let request = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
        talk(&mut client, request, "HTTP/1.1 200 OK\r\n").await;
        // Half of a request is here when the service goes.
        talk(&mut client, &request[..20], "").await;
        world.unbind("other");
        world.configure().await;
        let mut rest = Vec::new();
        soon("the end", client.read_to_end(&mut rest))
            .await
            .unwrap();
        let rest = String::from_utf8_lossy(&rest);
        assert_eq!(rest.matches("HTTP/1.1").count(), 0, "{rest}");
        let refused = world.ask(service).await;
        assert!(refused.is_err(), "it gets no new connection");
    });
}

#[test]
fn a_client_that_never_spoke_is_let_go_when_its_service_is_gone_from_here() {
    local(async {
        for protocol in [AppProtocol::Unknown, AppProtocol::Http11] {
            let (mut world, service, endpoint) = bound(protocol).await;
            greet_and_echo(TcpListener::bind(endpoint).await.unwrap(), "");
            let mut silent = world.ask(service).await.unwrap();
            world.leave("other");
            world.configure().await;
            // A request may be on its way, and would be served.
            tokio::time::sleep(2 * SILENCE).await;
            world.unbind("other");
            world.configure().await;
            let read = soon("the end", silent.read(&mut [0])).await;
            assert!(matches!(read, Ok(0)), "{protocol:?}: {read:?}");
        }
    });
}

#[test]
fn a_client_that_is_let_go_while_its_endpoint_is_dialled_is_logged() {
    local(async {
        let mut world = World::unconfigured();
        world.put_unbound_service("other", 97, AppProtocol::Unknown);
        let dead = world.put_mesh_endpoint("other", "dead", 3);
        world.settings().connect_timeout_ms = 60_000;
        world.bind("other");
        world.configure().await;
        // It takes connections, and says nothing.
        let proxy = SocketAddr::new(dead.ip(), 15008);
        let listener = TcpListener::bind(proxy).await.unwrap();
        let service = SocketAddr::new(world.ip(97, 1), 80);
        let mut silent = world.ask(service).await.unwrap();
        world.leave("other");
        world.configure().await;
        let dialled = soon("the endpoint is dialled", listener.accept()).await;
        let _dialled = dialled.unwrap();
        world.unbind("other");
        world.configure().await;
        let read = soon("the end", silent.read(&mut [0])).await;
        assert!(matches!(read, Ok(0)), "{read:?}");
        world
            .logged(&["connection complete", "error=", "the service has left it"])
            .await;
    });
}

#[test]
fn a_relayed_connection_ends_when_its_service_is_gone_from_here() {
    local(async {
        let (mut world, service, endpoint) = bound(AppProtocol::Tcp).await;
        greet_and_echo(TcpListener::bind(endpoint).await.unwrap(), "");
        let mut client = world.ask(service).await.unwrap();
        talk(&mut client, "one", "one").await;
        world.leave("other");
        world.configure().await;
        talk(&mut client, "two", "two").await;
        world.unbind("other");
        world.configure().await;
        let read = soon("the cut", client.read(&mut [0])).await;
        assert!(read.is_err(), "it is reset: {read:?}");
    });
}

#[test]
fn a_service_whose_address_named_the_waypoint_leaves_as_well() {
    local(async {
        let mut world = World::start().await;
        let endpoint = world.endpoint();
        let _application = Application::plain(endpoint, Protocol::Http1, tell).await;
        let client = connection(world.stream().await, Protocol::Http1);
        assert_eq!(get(&client, "GET", "/before").await.0, 200);
        world.put_unbound_service("server", 96, AppProtocol::Unknown);
        world.leave("server");
        world.configure().await;
        assert_eq!(get(&client, "GET", "/on-its-way").await.0, 200);
        until("the client is told to leave", || client.is_closed()).await;
    });
}

#[test]
fn a_service_whose_address_still_names_a_deleted_gateway_is_served_no_longer() {
    local(async {
        let mut world = World::start().await;
        let endpoint = world.endpoint();
        let _application = Application::plain(endpoint, Protocol::Http1, tell).await;
        let mut client = world.stream().await;
        let request = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
        talk(&mut client, request, "HTTP/1.1 200 OK\r\n").await;
        // Half of a request is here when the Gateway goes. Its policies may be gone from here when the other half comes.
        talk(&mut client, &request[..20], "").await;
        world.delete_gateway();
        world.configure().await;
        let mut rest = Vec::new();
        soon("the end", client.read_to_end(&mut rest))
            .await
            .unwrap();
        let rest = String::from_utf8_lossy(&rest);
        assert_eq!(rest.matches("HTTP/1.1").count(), 0, "{rest}");
    });
}

/// A waypoint for workloads, with the workload `app` that its Address binds, and the address of that.
async fn bound_workload() -> (World, SocketAddr) {
    let mut world = World::start().await;
    world.gateway.traffic = Traffic::All.into();
    world.bind_workload("app");
    world.configure().await;
    let pod = world.endpoint();
    (world, pod)
}

#[test]
fn a_connection_ends_with_its_next_answer_when_its_workload_leaves() {
    local(async {
        for protocol in [Protocol::Http1, Protocol::Http2] {
            for now in [None, Some(elsewhere())] {
                let (mut world, pod) = bound_workload().await;
                let application = Application::plain(pod, protocol, tell).await;
                let client = connection(world.ask(pod).await.unwrap(), protocol);
                assert_eq!(get(&client, "GET", "/before").await.0, 200);
                world.lead_workload("app", now);
                world.leave_workload("app");
                world.configure().await;
                if protocol == Protocol::Http1 {
                    assert_eq!(get(&client, "GET", "/on-its-way").await.0, 200);
                }
                until("the client is told to leave", || client.is_closed()).await;
                let late = connection(world.ask(pod).await.unwrap(), protocol);
                assert_eq!(
                    get(&late, "GET", "/late").await.0,
                    200,
                    "from a proxy that lags"
                );
                until("the late client is told to leave", || late.is_closed()).await;
                assert!(application.requests.get() >= 2);
            }
        }
    });
}

#[test]
fn a_workload_that_is_gone_from_here_is_served_no_longer() {
    local(async {
        let (mut world, pod) = bound_workload().await;
        let _application = Application::plain(pod, Protocol::Http1, tell).await;
        let mut client = world.ask(pod).await.unwrap();
        let request = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
        talk(&mut client, request, "HTTP/1.1 200 OK\r\n").await;
        talk(&mut client, &request[..20], "").await;
        world.lead_workload("app", None);
        world.unbind_workload("app");
        world.configure().await;
        let mut rest = Vec::new();
        soon("the end", client.read_to_end(&mut rest))
            .await
            .unwrap();
        let rest = String::from_utf8_lossy(&rest);
        assert_eq!(rest.matches("HTTP/1.1").count(), 0, "{rest}");
        assert!(world.ask(pod).await.is_err(), "it gets no new connection");
    });
}

#[test]
fn relayed_connections_of_a_workload_go_on_while_it_leaves_and_end_when_it_is_gone() {
    local(async {
        let mut world = World::unconfigured();
        world.gateway.traffic = Traffic::All.into();
        world.put_service("server", 96, AppProtocol::Tcp);
        let pod = world.put_plain_endpoint("server", "app", 3);
        world.bind_workload("app");
        world.configure().await;
        greet_and_echo(TcpListener::bind(pod).await.unwrap(), "");
        let mut client = world.ask(pod).await.unwrap();
        talk(&mut client, "one", "one").await;
        world.lead_workload("app", Some(elsewhere()));
        world.leave_workload("app");
        world.configure().await;
        talk(&mut client, "two", "two").await;
        let mut late = world.ask(pod).await.unwrap();
        talk(&mut late, "three", "three").await;
        world.unbind_workload("app");
        world.configure().await;
        for stream in [&mut client, &mut late] {
            let read = soon("the cut", stream.read(&mut [0])).await;
            assert!(read.is_err(), "it is reset: {read:?}");
        }
    });
}
