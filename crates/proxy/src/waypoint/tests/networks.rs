//! Endpoints on other networks, and endpoints that are pods of the mesh by their addresses.

use lateen_exchange::Protocol;
use lateen_proto::workload::gateway_address::Destination;
use lateen_proto::workload::{AppProtocol, GatewayAddress, NetworkAddress};
use lateen_testkit::wds;

use super::application::{Application, behind_gateway, tell};
use super::messages::ask_until;
use super::world::{World, local};
use super::{connection, get};
use crate::testing::until;

/// A world in which the service `far.test` has its one endpoint on the network `far`.
async fn far(protocol: AppProtocol) -> World {
    let mut world = World::unconfigured();
    world.put_entry("far.test", 98, |service| {
        service.subject_alt_names = vec!["spiffe://cluster.local/ns/default/sa/behind".to_owned()];
        service.ports[0].app_protocol = protocol.into();
    });
    let at = world.ip(7, 1);
    world.put_workload(wds::workload("far-gate", "n3", at));
    let mut remote = world.entry_endpoint("far.test");
    remote.network = "far".to_owned();
    remote.network_gateway = Some(GatewayAddress {
        destination: Some(Destination::Address(NetworkAddress {
            address: wds::bytes_of(at),
            ..NetworkAddress::default()
        })),
        hbone_mtls_port: 15008,
    });
    world.put_workload(remote);
    world.configure().await;
    world
}

#[test]
fn an_endpoint_on_another_network_is_reached_by_a_tunnel_in_a_tunnel() {
    local(async {
        let world = far(AppProtocol::Unknown).await;
        let gateway = (world.ip(7, 1), 15008).into();
        let accounts = ("far-gate", "behind");
        let application = behind_gateway(&world.ca, accounts, gateway, tell).await;
        let vip = std::net::SocketAddr::from((world.ip(98, 1), 8080));
        let client = connection(world.ask(vip).await.unwrap(), Protocol::Http1);
        for _ in 0..2 {
            assert_eq!(get(&client, "GET", "/far").await.0, 200);
        }
        assert_eq!(application.requests.get(), 2);
        // Both requests went over one connection, for which the gateway chose an endpoint.
        let gate = "spiffe://cluster.local/ns/default/sa/gate".to_owned();
        assert_eq!(
            *application.asked.borrow(),
            [
                (gate.clone(), "far.test:8080".to_owned()),
                (gate, "far.test:8080 from \"\"".to_owned()),
            ]
        );
        // The endpoint is the one that says so, and not the one that the entry names.
        let labels = [
            "destination_workload=\"behind\"",
            "destination_workload_namespace=\"default\"",
            "destination_principal=\"spiffe://cluster.local/ns/default/sa/behind\"",
        ];
        until("both requests are counted for the endpoint", || {
            world.metric("istio_requests_total", &labels) == Some(2.0)
        })
        .await;
        world
            .logged(&["request complete", "dst.workload=\"behind\""])
            .await;
    });
}

#[test]
fn requests_leave_a_gateways_tunnel_that_takes_no_more_streams() {
    local(async {
        let world = far(AppProtocol::Http11).await;
        let gateway = (world.ip(7, 1), 15008).into();
        let accounts = ("far-gate", "behind");
        let application = behind_gateway(&world.ca, accounts, gateway, tell).await;
        let vip = std::net::SocketAddr::from((world.ip(98, 1), 8080));
        let client = connection(world.ask(vip).await.unwrap(), Protocol::Http1);
        // The gateway and the endpoint behind it are each asked for a stream.
        ask_until(&application, &client, 2).await;
        application.drain.notify_waiters();
        ask_until(&application, &client, 4).await;
    });
}

/// The endpoint's own words name it, as they do for a request.
#[test]
fn a_connection_through_a_gateway_is_counted_for_the_endpoint_that_the_gateway_chose() {
    local(async {
        let world = far(AppProtocol::Tcp).await;
        let gateway = (world.ip(7, 1), 15008).into();
        let accounts = ("far-gate", "behind");
        let _application = behind_gateway(&world.ca, accounts, gateway, tell).await;
        let vip = std::net::SocketAddr::from((world.ip(98, 1), 8080));
        let client = connection(world.ask(vip).await.unwrap(), Protocol::Http1);
        assert_eq!(get(&client, "GET", "/far").await.0, 200);
        let labels = [
            "destination_workload=\"behind\"",
            "destination_principal=\"spiffe://cluster.local/ns/default/sa/behind\"",
        ];
        assert_eq!(
            world.metric("istio_tcp_connections_opened_total", &labels),
            Some(1.0)
        );
    });
}

#[test]
fn an_endpoint_on_another_network_must_prove_that_it_serves() {
    local(async {
        let world = far(AppProtocol::Unknown).await;
        let gateway = (world.ip(7, 1), 15008).into();
        let accounts = ("far-gate", "far-gate");
        let application = behind_gateway(&world.ca, accounts, gateway, tell).await;
        let vip = std::net::SocketAddr::from((world.ip(98, 1), 8080));
        let client = connection(world.ask(vip).await.unwrap(), Protocol::Http1);
        assert_eq!(get(&client, "GET", "/far").await.0, 503);
        assert_eq!(application.requests.get(), 0);
        world
            .logged(&["request complete", "tls error behind the gateway"])
            .await;
    });
}

/// The pod's proxy enforces a PeerAuthentication: plain text to the pod would be refused under STRICT, and it would be
/// plain text on the wire without it.
#[test]
fn an_endpoint_that_is_a_pod_of_the_mesh_is_never_reached_in_plain_text() {
    local(async {
        let mut world = World::unconfigured();
        let pod = (world.ip(5, 1), 8080).into();
        world.put_workload(wds::workload("pod", "n2", world.ip(5, 1)));
        world.put_entry("static.test", 98, |_| {});
        let mut written = world.entry_endpoint("static.test");
        written.addresses.push(wds::bytes_of(world.ip(5, 1)));
        world.put_workload(written);
        world.configure().await;
        let sealed = Application::in_mesh(&world.ca, "pod", pod, Protocol::Http1, tell).await;
        let plain = Application::plain(pod, Protocol::Http1, tell).await;
        let vip = std::net::SocketAddr::from((world.ip(98, 1), 8080));
        let client = connection(world.ask(vip).await.unwrap(), Protocol::Http1);
        assert_eq!(get(&client, "GET", "/sealed").await.0, 200);
        assert_eq!((sealed.requests.get(), plain.connections.get()), (1, 0));
        until("the tunnel was asked for the pod", || {
            sealed.asked.borrow()[0].1 == pod.to_string()
        })
        .await;
    });
}
