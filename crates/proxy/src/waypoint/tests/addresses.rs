//! Endpoints with several addresses, and endpoints whose address leads nowhere.

use std::cell::Cell;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::join_all;
use lateen_exchange::{Protocol, server};
use lateen_h2::Code;
use lateen_http::FramedRequest;
use lateen_proto::workload::{AppProtocol, Extension, NetworkAddress};
use lateen_testkit::wds;

use super::application::{Application, tell};
use super::outside::{octets, status_of, vip, wild};
use super::world::{World, local};
use super::{connection, get};
use crate::testing::{dns, until};

/// A world with the entry `rr.test`, whose hostname has two addresses; the resolver says the second one first once `is_turned`.
async fn two_addresses(
    protocol: AppProtocol,
    is_one_at_a_time: bool,
) -> (World, [SocketAddr; 2], Rc<Cell<bool>>) {
    let mut world = World::unconfigured();
    world.put_entry("rr.test", 98, |service| {
        service.ports[0].app_protocol = protocol.into();
        if is_one_at_a_time {
            service.extensions.push(Extension {
                name: "lateen.dns-round-robin".to_owned(),
                config: None,
            });
        }
    });
    world.put_named_endpoint("rr.test", "rr.test");
    world.configure().await;
    let both = [60, 61].map(|pod| SocketAddr::from((world.ip(pod, 1), 8080)));
    let is_turned = Rc::new(Cell::new(false));
    let (turned, addresses) = (Rc::clone(&is_turned), both.map(|at| octets(at.ip())));
    let says = move |_: &str| match turned.get() {
        false => addresses.to_vec(),
        true => addresses.iter().rev().copied().collect(),
    };
    dns::serve(world.resolver(), says).await;
    (world, both, is_turned)
}

#[test]
fn the_first_address_of_a_round_robin_host_takes_all_new_connections() {
    local(async {
        let (world, [first, second], is_turned) = two_addresses(AppProtocol::Http11, true).await;
        let came = Rc::new(Cell::new(0));
        // The first five are alone. The last two are answered once both are under way.
        let meet = move |request: FramedRequest, exchange: server::Exchange| {
            let came = Rc::clone(&came);
            async move {
                came.set(came.get() + 1);
                if came.get() > 5 {
                    until("both have come", || came.get() == 7).await;
                }
                tell(request, exchange).await
            }
        };
        let one = Application::plain(first, Protocol::Http1, meet.clone()).await;
        let two = Application::plain(second, Protocol::Http1, meet).await;
        let client = connection(world.ask(vip(&world)).await.unwrap(), Protocol::Http1);
        for _ in 0..4 {
            assert_eq!(get(&client, "GET", "/").await.0, 200);
        }
        assert_eq!((one.connections.get(), one.requests.get()), (1, 4));
        assert_eq!(two.connections.get(), 0);
        // The answer runs out after a second. The connection that is open goes on.
        is_turned.set(true);
        tokio::time::sleep(Duration::from_millis(1200)).await;
        assert_eq!(get(&client, "GET", "/after").await.0, 200);
        assert_eq!((one.requests.get(), two.requests.get()), (5, 0));
        world.logged(&["/after", &first.to_string()]).await;
        // A second one at the same time goes to the other address.
        let other = connection(world.ask(vip(&world)).await.unwrap(), Protocol::Http1);
        let (x, y) = tokio::join!(get(&client, "GET", "/x"), get(&other, "GET", "/y"));
        assert_eq!((x.0, y.0), (200, 200));
        assert_eq!((one.requests.get(), two.requests.get()), (6, 1));
    });
}

#[test]
fn all_addresses_of_another_host_take_requests() {
    local(async {
        let (world, [first, second], _) = two_addresses(AppProtocol::Http11, false).await;
        let one = Application::plain(first, Protocol::Http1, tell).await;
        let two = Application::plain(second, Protocol::Http1, tell).await;
        let client = connection(world.ask(vip(&world)).await.unwrap(), Protocol::Http1);
        for _ in 0..30 {
            assert_eq!(get(&client, "GET", "/").await.0, 200);
        }
        assert!(one.requests.get() > 0 && two.requests.get() > 0);
    });
}

#[test]
fn an_address_where_nobody_listens_costs_no_request() {
    for (port, protocol) in [
        (AppProtocol::Http11, Protocol::Http1),
        (AppProtocol::Http2, Protocol::Http2),
    ] {
        for is_one_at_a_time in [true, false] {
            local(async {
                let (world, [_, second], _) = two_addresses(port, is_one_at_a_time).await;
                let application = Application::plain(second, protocol, tell).await;
                let clients = (0..10).map(|_| async {
                    let stream = world.ask(vip(&world)).await.unwrap();
                    let client = connection(stream, Protocol::Http1);
                    for _ in 0..20 {
                        assert_eq!(get(&client, "POST", "/").await.0, 200);
                    }
                });
                join_all(clients).await;
                assert_eq!(application.requests.get(), 200);
            });
        }
    }
}

#[test]
fn an_address_that_refuses_requests_leaves_them_to_the_other_one() {
    local(async {
        let (world, [first, second], _) = two_addresses(AppProtocol::Http2, false).await;
        let refuse = |_: FramedRequest, exchange: server::Exchange| async move {
            exchange.reset(Code::REFUSED_STREAM);
            Ok(())
        };
        let refuses = Application::plain(first, Protocol::Http2, refuse).await;
        let _serves = Application::plain(second, Protocol::Http2, tell).await;
        let client = connection(world.ask(vip(&world)).await.unwrap(), Protocol::Http1);
        for _ in 0..60 {
            assert_eq!(get(&client, "GET", "/").await.0, 200);
        }
        assert!(refuses.requests.get() > 0);
    });
}

#[test]
fn a_host_that_a_client_names_is_reached_at_its_second_address() {
    local(async {
        let hosts = |world: &World| vec![("a", world.ip(60, 1)), ("a", world.ip(61, 1))];
        let world = wild(AppProtocol::Http11, hosts).await;
        let at = SocketAddr::from((world.ip(61, 1), 8080));
        let application = Application::plain(at, Protocol::Http1, tell).await;
        for _ in 0..5 {
            assert_eq!(status_of(&world, "a.wild.test").await, "200");
        }
        assert_eq!(application.requests.get(), 5);
    });
}

/// The client dials an address of IPv6, so those of the endpoint's name are preferred. The test needs no IPv6: no address of it works.
#[test]
fn a_name_whose_addresses_of_one_family_are_dead_is_reached_by_the_other() {
    const PORT: u16 = 18_473;
    local(async {
        let mut world = World::unconfigured();
        let vip = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x98));
        world.put_entry("both.test", 98, |service| {
            service.ports[0].app_protocol = AppProtocol::Http11.into();
            service.ports[0].target_port = u32::from(PORT);
            service.addresses.push(NetworkAddress {
                address: wds::bytes_of(vip),
                ..NetworkAddress::default()
            });
        });
        world.put_named_endpoint("both.test", "both.test");
        world.configure().await;
        let good = world.ip(60, 1);
        let says = move |_: &str| vec![Ipv6Addr::LOCALHOST.into(), good];
        dns::serve_both(world.resolver(), says).await;
        let application = Application::plain((good, PORT).into(), Protocol::Http1, tell).await;
        let stream = world.ask(SocketAddr::from((vip, 8080))).await.unwrap();
        let client = connection(stream, Protocol::Http1);
        for _ in 0..5 {
            assert_eq!(get(&client, "GET", "/").await.0, 200);
        }
        assert_eq!(application.requests.get(), 5);
        world.logged(&["status=200", "attempts=2"]).await;
    });
}

/// Requests to an entry of two endpoints, of which one has this address, all reach the other one. Without the other they get 503, and
/// the log says this.
async fn the_other_address_is_asked(bad: u8, why: &str) {
    let mut world = World::unconfigured();
    // Nobody is there.
    world.put_workload(wds::workload("dead", "n2", world.ip(3, 1)));
    world.put_service_of_8080("empty", 99);
    let other = world.ip(60, 1);
    let endpoints = [world.ip(bad, 1), other];
    for (number, host, endpoints) in [
        (90, "both.test", &endpoints[..]),
        (91, "bad.test", &endpoints[..1]),
    ] {
        world.put_entry(host, number, |service| {
            service.ports[0].app_protocol = AppProtocol::Http11.into();
        });
        for address in endpoints {
            let mut endpoint = world.entry_endpoint(host);
            endpoint.uid += &format!("/{address}");
            endpoint.addresses = vec![wds::bytes_of(*address)];
            world.put_workload(endpoint);
        }
    }
    world.configure().await;
    let application = Application::plain((other, 8080).into(), Protocol::Http1, tell).await;
    let ask = async |number| {
        let vip = SocketAddr::from((world.ip(number, 1), 8080));
        let client = connection(world.ask(vip).await.unwrap(), Protocol::Http1);
        get(&client, "POST", "/").await.0
    };
    for _ in 0..30 {
        assert_eq!(ask(90).await, 200);
    }
    assert_eq!(application.requests.get(), 30);
    assert_eq!(ask(91).await, 503);
    world.logged(&["status=503", "bad.test", why]).await;
}

#[test]
fn an_endpoint_at_the_address_of_a_dead_pod_leaves_requests_to_the_others() {
    local(the_other_address_is_asked(3, "Connection refused"));
}

#[test]
fn an_endpoint_at_the_address_of_a_service_without_endpoints_leaves_requests_to_the_others() {
    local(the_other_address_is_asked(
        99,
        "has no endpoint for port 8080",
    ));
}
