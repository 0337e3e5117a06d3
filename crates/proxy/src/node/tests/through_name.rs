//! Endpoints known by hostnames that turn out to be services of the mesh.

use super::*;
use crate::pod::Port;

/// The service `alias`, on a virtual address of its own, whose endpoints are hostnames; and the door to it.
fn alias(mesh: &mut Mesh, hostnames: &[&str]) -> (SocketAddr, impl Sized + use<>) {
    let at = SocketAddr::from((mesh.ip(96, 2), 80));
    let service = wds::service("alias", at.ip(), 80, 80);
    let name = wds::service_name("default", "alias");
    mesh.resources.push((name, wds::service_resource(service)));
    for hostname in hostnames {
        let mut endpoint = wds::plain(wds::workload(hostname, "", at.ip()));
        endpoint.addresses.clear();
        endpoint.hostname = (*hostname).to_owned();
        mesh.put_workload(wds::serving(endpoint, "alias", 80, 80));
    }
    (at, mesh.west.open(&mesh.client, Port::Outbound, at))
}

async fn echoed(mesh: &Mesh, address: SocketAddr, application: &mut fixture::Application) {
    let mut client = mesh.dial(address).await.unwrap();
    say(&mut client, "ping").await;
    let (mut served, _) = soon("the server accepts", application.recv())
        .await
        .unwrap();
    hear(&mut served, "ping").await;
}

#[tokio::test]
async fn a_hostname_that_is_a_service_leads_into_its_endpoints_tunnel() {
    let mut mesh = Mesh::start().await;
    let (at, _door) = alias(&mut mesh, &["server.example"]);
    mesh.west.names.set("server.example", &[mesh.vip().ip()]);
    mesh.configure().await;
    let mut application = mesh.application().await;
    // A plain connection would end at the virtual address, where nobody listens but the client's own proxy.
    echoed(&mesh, at, &mut application).await;
    mesh.logged(&[
        "direction=\"inbound\"",
        "connection complete",
        "src.identity=\"spiffe://cluster.local/ns/default/sa/client\"",
    ])
    .await;
    let line = mesh
        .logged(&["direction=\"outbound\"", "connection complete"])
        .await;
    assert!(
        line.contains(&format!("dst.hbone_addr={}:8080", mesh.server_ip()))
            && line.contains("dst.service=\"server.default.svc.cluster.local\""),
        "{line}"
    );
    // Its policies hold.
    mesh.west.names.set("server.example", &[at.ip()]);
    refused(&mesh, at).await;
    mesh.logged(&["direction=\"outbound\"", "leads back to the service itself"])
        .await;
}

#[tokio::test]
async fn all_endpoints_of_the_service_behind_a_hostname_are_tried_before_it_is_given_up() {
    let mut mesh = Mesh::start().await;
    let (at, _door) = alias(&mut mesh, &["server.example"]);
    mesh.put_endpoint("dead", mesh.ip(2, 66));
    mesh.west.names.set("server.example", &[mesh.vip().ip()]);
    mesh.configure().await;
    let mut application = mesh.application().await;
    for round in 0.. {
        echoed(&mesh, at, &mut application).await;
        if mesh.west.value("lateen_connect_retries_total") >= 5.0 {
            break;
        }
        assert!(round < 400, "nobody is tried in the dead one's place");
    }
    assert_eq!(
        mesh.west.value("lateen_endpoints_ejected"),
        0.0,
        "the name is sound"
    );
}

#[tokio::test]
async fn a_hostname_that_leads_in_a_circle_costs_no_connection_when_another_serves() {
    let mut mesh = Mesh::start().await;
    let (at, _door) = alias(&mut mesh, &["server.example", "circle.example"]);
    mesh.west.names.set("server.example", &[mesh.vip().ip()]);
    mesh.west.names.set("circle.example", &[at.ip()]);
    mesh.configure().await;
    let mut application = mesh.application().await;
    for _ in 0..20 {
        echoed(&mesh, at, &mut application).await;
    }
}
