//! ServiceEntries whose endpoints have no address in the configuration: resolutions NONE, DNS_ROUND_ROBIN and DYNAMIC_DNS.

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use lateen_exchange::Protocol;
use lateen_hbone::{Authority, ConnectError, ConnectRequest, Stream};
use lateen_proto::workload::{
    AppProtocol, Extension, LoadBalancing, NetworkAddress, Service, load_balancing,
};
use lateen_testkit::wds;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::spawn_local;

use super::application::{Application, tell};
use super::connections::greet_and_echo;
use super::world::{World, local};
use super::{connection, get, talk};
use crate::testing::{dns, soon, until};
use crate::waypoint::Accounts;

/// The wildcard of the tests, on 127.n.98.1.
const WILD: &str = "*.wild.test";

pub fn octets(address: IpAddr) -> [u8; 4] {
    match address {
        IpAddr::V4(ip) => ip.octets(),
        IpAddr::V6(_) => panic!("the net has addresses of IPv4"),
    }
}

/// Has a service go where its clients want, within these ranges of 24 bits.
fn unresolved(ranges: Vec<IpAddr>) -> impl FnOnce(&mut Service) {
    move |service| {
        service.addresses = ranges
            .into_iter()
            .map(|ip| NetworkAddress {
                address: wds::bytes_of(ip),
                length: Some(24),
                ..NetworkAddress::default()
            })
            .collect();
        service.load_balancing = Some(LoadBalancing {
            mode: load_balancing::Mode::Passthrough.into(),
            ..LoadBalancing::default()
        });
    }
}

/// A world with the wildcard, whose resolver knows these labels below it.
pub async fn wild(
    protocol: AppProtocol,
    hosts: impl FnOnce(&World) -> Vec<(&'static str, IpAddr)>,
) -> World {
    wild_in(World::unconfigured(), protocol, hosts).await
}

/// The same in a world that exists.
async fn wild_in(
    mut world: World,
    protocol: AppProtocol,
    hosts: impl FnOnce(&World) -> Vec<(&'static str, IpAddr)>,
) -> World {
    world.put_entry(WILD, 98, |service| {
        service.ports[0].app_protocol = protocol.into();
    });
    world.put_named_endpoint(WILD, WILD);
    world.configure().await;
    let hosts = hosts(&world);
    let says = move |name: &str| {
        let label = name.strip_suffix(".wild.test");
        let known = hosts.iter().filter(|(host, _)| Some(*host) == label);
        known.map(|(_, address)| octets(*address)).collect()
    };
    dns::serve(world.resolver(), says).await;
    world
}

pub fn vip(world: &World) -> SocketAddr {
    (world.ip(98, 1), 8080).into()
}

/// A request for a host, and its status.
pub async fn status_of(world: &World, host: &str) -> String {
    let mut stream = world.ask(vip(world)).await.unwrap();
    let request = format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n");
    talk(&mut stream, &request, "HTTP/1.1 ").await;
    let mut code = [0; 3];
    soon("a status", stream.read_exact(&mut code))
        .await
        .unwrap();
    String::from_utf8_lossy(&code).into_owned()
}

#[test]
fn without_resolution_a_connection_goes_to_the_address_that_was_dialled() {
    local(async {
        let mut world = World::unconfigured();
        world.put_entry("none.test", 98, unresolved(vec![world.ip(50, 0)]));
        world.configure().await;
        let dialled = SocketAddr::from((world.ip(50, 7), 8080));
        let application = Application::plain(dialled, Protocol::Http1, tell).await;
        let client = connection(world.ask(dialled).await.unwrap(), Protocol::Http1);
        assert_eq!(get(&client, "GET", "/").await.0, 200);
        assert_eq!(application.requests.get(), 1);
        // Another address of the range is another place, where nobody listens. It is tried once.
        let other = SocketAddr::from((world.ip(50, 8), 8080));
        let client_of_other = connection(world.ask(other).await.unwrap(), Protocol::Http1);
        assert_eq!(get(&client_of_other, "GET", "/").await.0, 503);
        let line = world.logged(&["status=503", &other.to_string()]).await;
        assert!(
            line.contains("refused") && line.contains("attempts=1"),
            "{line}"
        );
        let beyond = SocketAddr::from((world.ip(51, 1), 8080));
        assert!(matches!(
            world.ask(beyond).await,
            Err(ConnectError::Refused { status: 503 })
        ));
        // The range goes, and with it the way of connections that are open.
        world.put_entry("none.test", 98, unresolved(vec![world.ip(51, 0)]));
        world.configure().await;
        assert_eq!(get(&client, "GET", "/").await.0, 503);
        world.logged(&["does not list", "none.test"]).await;
        assert_eq!(application.requests.get(), 1);
    });
}

#[test]
fn without_resolution_a_request_that_names_no_address_is_refused() {
    local(async {
        let mut world = World::unconfigured();
        world.put_entry("none.test", 98, unresolved(vec![world.ip(50, 0)]));
        world.configure().await;
        let name = Authority::Name {
            name: "none.test".to_owned(),
            port: 8080,
        };
        assert!(matches!(
            world.ask(name).await,
            Err(ConnectError::Refused { status: 400 })
        ));
        world
            .logged(&[
                "connection failed",
                "to the address that the client dialled",
            ])
            .await;
    });
}

#[test]
fn a_host_below_the_wildcard_is_resolved_and_reached() {
    local(async {
        let hosts = |world: &World| vec![("a", world.ip(60, 1)), ("b", world.ip(61, 1))];
        let world = wild(AppProtocol::Http11, hosts).await;
        let at = |pod| SocketAddr::from((world.ip(pod, 1), 8080));
        let one = Application::plain(at(60), Protocol::Http1, tell).await;
        let two = Application::plain(at(61), Protocol::Http1, tell).await;
        assert_eq!(status_of(&world, "A.wild.test:8080").await, "200");
        assert_eq!(status_of(&world, "b.wild.test").await, "200");
        assert_eq!(status_of(&world, "b.wild.test").await, "200");
        assert_eq!((one.requests.get(), two.requests.get()), (1, 2));
        world.logged(&["status=200", &at(60).to_string()]).await;
        assert_eq!(status_of(&world, "unknown.wild.test").await, "503");
        let line = world.logged(&["status=503"]).await;
        let words = "the resolver knows no address of unknown.wild.test";
        assert!(line.contains(words), "{line}");
    });
}

#[test]
fn hosts_that_one_client_invents_keep_no_other_from_its_own() {
    local(async {
        let mut world = World::unconfigured();
        world.put_entry(WILD, 98, |service| {
            service.ports[0].app_protocol = AppProtocol::Http11.into();
        });
        world.put_named_endpoint(WILD, WILD);
        world.configure().await;
        let good = world.ip(60, 1);
        let _application = Application::plain((good, 8080).into(), Protocol::Http1, tell).await;
        // A resolver that answers for one name.
        let socket = UdpSocket::bind(world.resolver()).await.unwrap();
        let asked = Rc::new(Cell::new(0));
        let count = Rc::clone(&asked);
        spawn_local(async move {
            let mut buffer = [0; 512];
            while let Ok((length, peer)) = socket.recv_from(&mut buffer).await {
                let question = &buffer[..length];
                count.set(count.get() + 1);
                if question.windows(5).any(|label| label == b"\x04good") {
                    let reply = dns::reply(question, &[octets(good)], 60);
                    let _ = socket.send_to(&reply, peer).await;
                }
            }
        });
        let mut invented = Vec::new();
        for n in 0..150 {
            let mut stream = world.ask(vip(&world)).await.unwrap();
            let request = format!("GET / HTTP/1.1\r\nhost: x{n}.wild.test\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            invented.push(stream);
        }
        until("many are asked for", || asked.get() >= 128).await;
        let tunnel = world.tunnel("other").await;
        let request = ConnectRequest::new(vip(&world));
        let (mut other, _) = tunnel.connect(&request).await.unwrap();
        let request = "GET / HTTP/1.1\r\nhost: good.wild.test\r\n\r\n";
        talk(&mut other, request, "HTTP/1.1 200 ").await;
    });
}

#[test]
fn a_host_that_the_wildcard_does_not_cover_is_not_found() {
    local(async {
        let mut world = wild(AppProtocol::Http11, |_| vec![]).await;
        world.put_entry("own.wild.test", 97, |_| {});
        world.configure().await;
        for (host, words) in [
            ("wild.test", "does not cover the host wild.test;"),
            ("evil.test", "does not cover the host evil.test;"),
            ("own.wild.test", "belongs to service default/own.wild.test;"),
        ] {
            assert_eq!(status_of(&world, host).await, "404", "{host}");
            world.logged(&["status=404", words]).await;
        }
    });
}

#[test]
fn a_host_that_leads_to_the_waypoint_or_into_the_mesh_is_refused() {
    local(async {
        let hosts = |world: &World| {
            vec![
                ("self", world.ip(1, 1)),
                ("pod", world.ip(5, 1)),
                ("service", world.ip(96, 1)),
                ("link", [169, 254, 169, 254].into()),
                ("zero", [0, 0, 0, 0].into()),
            ]
        };
        let mut world = wild(AppProtocol::Http11, hosts).await;
        world.put_service("server", 96, AppProtocol::Http11);
        let pod = world.put_mesh_endpoint("server", "pod", 5);
        world.configure().await;
        let plain = Application::plain(pod, Protocol::Http1, tell).await;
        for (label, words) in [
            ("self", "the proxy's own address"),
            ("pod", "is workload"),
            ("service", "is a Kubernetes Service"),
            ("link", "a link-local address"),
            ("zero", "an unspecified address"),
        ] {
            let host = format!("{label}.wild.test");
            assert_eq!(status_of(&world, &host).await, "503", "{host}");
            world.logged(&["status=503", &host, words]).await;
        }
        assert_eq!(plain.connections.get(), 0);
    });
}

#[test]
fn an_endpoint_on_the_waypoints_own_machine_or_link_is_sent_nothing() {
    local(async {
        let mut world = World::unconfigured();
        let http = |service: &mut Service| {
            service.ports[0].app_protocol = AppProtocol::Http11.into();
        };
        let names = ["zero.test", "link.test", "self.test", "both.test"];
        for (number, host) in (90..).zip(names) {
            world.put_entry(host, number, http);
            world.put_named_endpoint(host, host);
        }
        // The addresses of two others are written down.
        for (number, host, address) in [
            (80, "zero.written.test", [0, 0, 0, 0]),
            (81, "many.written.test", [224, 0, 0, 1]),
        ] {
            world.put_entry(host, number, http);
            let mut endpoint = world.entry_endpoint(host);
            endpoint.addresses = vec![wds::bytes_of(address.into())];
            world.put_workload(endpoint);
        }
        world.configure().await;
        let [own, other] = [world.ip(1, 1), world.ip(60, 1)].map(octets);
        let says = move |name: &str| match name {
            "zero.test" => vec![[0, 0, 0, 0]],
            "link.test" => vec![[169, 254, 169, 254]],
            "self.test" => vec![own],
            "both.test" => vec![[0, 0, 0, 0], other, own],
            _ => Vec::new(),
        };
        dns::serve(world.resolver(), says).await;
        let at = SocketAddr::from((world.ip(60, 1), 8080));
        let application = Application::plain(at, Protocol::Http1, tell).await;
        let ask = async |number| {
            let vip = SocketAddr::from((world.ip(number, 1), 8080));
            let client = connection(world.ask(vip).await.unwrap(), Protocol::Http1);
            get(&client, "GET", "/").await.0
        };
        for (number, host, kind) in [
            (90, "zero.test", "an unspecified address"),
            (91, "link.test", "a link-local address"),
            (92, "self.test", "the proxy's own address"),
            (80, "zero.written.test", "an unspecified address"),
            (81, "many.written.test", "an address of many"),
        ] {
            assert_eq!(ask(number).await, 503, "{host}");
            let words = ["status=503", host, kind, "of another machine"];
            world.logged(&words).await;
        }
        // The other addresses of a name stay in use.
        for _ in 0..20 {
            assert_eq!(ask(93).await, 200);
        }
        assert_eq!(application.requests.get(), 20);
    });
}

/// Requests to an entry of two endpoints, of which one has a hostname with the addresses of `bad`, all reach the other one.
async fn the_other_endpoint_is_asked(bad: impl FnOnce(&mut World) -> Vec<[u8; 4]>) {
    let mut world = World::unconfigured();
    let addresses = bad(&mut world);
    world.put_entry("shop.test", 90, |service| {
        service.ports[0].app_protocol = AppProtocol::Http11.into();
    });
    for hostname in ["bad.test", "good.test"] {
        let mut endpoint = world.entry_endpoint("shop.test");
        endpoint.uid += &format!("/{hostname}");
        endpoint.hostname = hostname.to_owned();
        world.put_workload(endpoint);
    }
    world.configure().await;
    let other = octets(world.ip(60, 1));
    let says = move |name: &str| match name {
        "good.test" => vec![other],
        _ => addresses.clone(),
    };
    dns::serve(world.resolver(), says).await;
    let at = SocketAddr::from((world.ip(60, 1), 8080));
    let application = Application::plain(at, Protocol::Http1, tell).await;
    let vip = SocketAddr::from((world.ip(90, 1), 8080));
    let client = connection(world.ask(vip).await.unwrap(), Protocol::Http1);
    for _ in 0..20 {
        assert_eq!(get(&client, "GET", "/").await.0, 200);
    }
    assert_eq!(application.requests.get(), 20);
}

#[test]
fn an_endpoint_whose_addresses_are_all_refused_leaves_requests_to_the_others() {
    local(the_other_endpoint_is_asked(|_| vec![[0, 0, 0, 0]]));
}

#[test]
fn an_endpoint_whose_addresses_are_all_dead_leaves_requests_to_the_others() {
    local(the_other_endpoint_is_asked(|world| {
        (70..76).map(|pod| octets(world.ip(pod, 1))).collect()
    }));
}

#[test]
fn an_endpoint_whose_hostname_has_no_address_leaves_requests_to_the_others() {
    local(the_other_endpoint_is_asked(|_| vec![]));
}

#[test]
fn an_endpoint_whose_hostname_leads_to_a_service_without_endpoints_leaves_requests_to_the_others() {
    local(the_other_endpoint_is_asked(|world| {
        world.put_service_of_8080("behind", 99);
        vec![octets(world.ip(99, 1))]
    }));
}

#[test]
fn an_endpoint_whose_hostname_leads_to_a_dead_pod_leaves_requests_to_the_others() {
    local(the_other_endpoint_is_asked(|world| {
        let dead = wds::plain(wds::workload("dead", "n2", world.ip(3, 1)));
        world.put_workload(wds::serving(dead, "behind", 8080, 8080));
        world.put_service_of_8080("behind", 99);
        vec![octets(world.ip(99, 1))]
    }));
}

#[test]
fn an_address_that_leads_to_a_service_without_endpoints_leaves_requests_to_the_others() {
    local(async {
        let mut world = World::unconfigured();
        for (number, host) in [
            (90, "both.test"),
            (91, "empty.test"),
            (92, "dead.test"),
            (93, "turns.test"),
        ] {
            world.put_entry(host, number, |service| {
                service.ports[0].app_protocol = AppProtocol::Http11.into();
                if host == "turns.test" {
                    service.extensions.push(Extension {
                        name: "lateen.dns-round-robin".to_owned(),
                        config: None,
                    });
                }
            });
            world.put_named_endpoint(host, host);
        }
        world.put_service_of_8080("empty", 98);
        world.put_service_of_8080("dead", 99);
        let dead = wds::plain(wds::workload("dead", "n2", world.ip(3, 1)));
        world.put_workload(wds::serving(dead, "dead", 8080, 8080));
        world.configure().await;
        let [empty, dead, other] = [98, 99, 60].map(|pod| octets(world.ip(pod, 1)));
        let says = move |name: &str| match name {
            "both.test" | "turns.test" => vec![empty, other],
            "empty.test" => vec![empty],
            _ => vec![dead],
        };
        dns::serve(world.resolver(), says).await;
        let at = SocketAddr::from((world.ip(60, 1), 8080));
        let application = Application::plain(at, Protocol::Http1, tell).await;
        let ask = async |number| {
            let vip = SocketAddr::from((world.ip(number, 1), 8080));
            let client = connection(world.ask(vip).await.unwrap(), Protocol::Http1);
            get(&client, "GET", "/").await.0
        };
        for _ in 0..20 {
            assert_eq!((ask(90).await, ask(93).await), (200, 200));
        }
        assert_eq!(application.requests.get(), 40);
        for (number, host, why) in [
            (91, "empty.test", "has no endpoint for port 8080"),
            (92, "dead.test", "Connection refused"),
        ] {
            assert_eq!(ask(number).await, 503, "{host}");
            world.logged(&["status=503", host, why]).await;
        }
    });
}

#[test]
fn an_endpoint_about_which_no_resolver_answers_leaves_requests_to_the_others() {
    local(async {
        let mut world = World::unconfigured();
        world.put_entry("shop.test", 90, |service| {
            service.ports[0].app_protocol = AppProtocol::Http11.into();
        });
        for hostname in ["silent.test", "good.test"] {
            let mut endpoint = world.entry_endpoint("shop.test");
            endpoint.uid += &format!("/{hostname}");
            endpoint.hostname = hostname.to_owned();
            world.put_workload(endpoint);
        }
        world.configure().await;
        let (other, asked) = (octets(world.ip(60, 1)), Rc::new(Cell::new(0)));
        let socket = UdpSocket::bind(world.resolver()).await.unwrap();
        let count = Rc::clone(&asked);
        spawn_local(async move {
            let mut buffer = [0; 512];
            while let Ok((length, peer)) = socket.recv_from(&mut buffer).await {
                let question = &buffer[..length];
                match question.windows(5).any(|label| label == b"\x04good") {
                    true => {
                        _ = socket
                            .send_to(&dns::reply(question, &[other], 60), peer)
                            .await
                    }
                    false => count.set(count.get() + 1),
                }
            }
        });
        let at = SocketAddr::from((world.ip(60, 1), 8080));
        let _application = Application::plain(at, Protocol::Http1, tell).await;
        let vip = SocketAddr::from((world.ip(90, 1), 8080));
        let client = connection(world.ask(vip).await.unwrap(), Protocol::Http1);
        while asked.get() == 0 {
            assert_eq!(get(&client, "GET", "/").await.0, 200);
        }
    });
}

/// The first bytes of a TLS client.
pub fn hello(name: Option<&str>) -> Vec<u8> {
    let extension = |kind: u16, content: &[u8]| {
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&kind.to_be_bytes()[..], &length, content].concat()
    };
    let within = |content: &[u8]| {
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&length[..], content].concat()
    };
    let mut extensions = Vec::new();
    if let Some(name) = name {
        let host = [&[0], &within(name.as_bytes())[..]].concat();
        extensions.extend(extension(0, &within(&host)));
    }
    // Groups, signature algorithms, and TLS 1.3.
    extensions.extend(extension(10, &within(&[0, 23])));
    extensions.extend(extension(13, &within(&[4, 3])));
    extensions.extend(extension(43, &[2, 3, 4]));
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0x13, 1, 1, 0]);
    body.extend(within(&extensions));
    let message = [&[1, 0], &within(&body)[..]].concat();
    [&[22, 3, 1], &within(&message)[..]].concat()
}

/// Sends a ClientHello, and returns what comes back.
async fn greet(world: &World, name: Option<&str>) -> Vec<u8> {
    let mut stream: Stream = world.ask(vip(world)).await.unwrap();
    let hello = hello(name);
    let (first, rest) = hello.split_at(9);
    for piece in [first, rest] {
        stream.write_all(piece).await.unwrap();
        stream.flush().await.unwrap();
    }
    let mut heard = vec![0; hello.len()];
    match soon("an echo or an end", stream.read_exact(&mut heard)).await {
        Ok(_) => {
            assert_eq!(heard, hello);
            heard
        }
        Err(_) => Vec::new(),
    }
}

#[test]
fn a_tls_connection_goes_to_the_host_of_its_server_name_unchanged() {
    local(async {
        let hosts = |world: &World| vec![("a", world.ip(60, 1)), ("self", world.ip(1, 1))];
        let world = wild(AppProtocol::Tls, hosts).await;
        let at = SocketAddr::from((world.ip(60, 1), 8080));
        greet_and_echo(TcpListener::bind(at).await.unwrap(), "");
        assert!(!greet(&world, Some("A.wild.test")).await.is_empty());
        world
            .logged(&["connection complete", &at.to_string()])
            .await;
        for (name, words) in [
            (Some("self.wild.test"), "the proxy's own address"),
            (Some("a.evil.test"), "does not cover the host"),
            (None, "no TLS with a server name"),
        ] {
            assert!(greet(&world, name).await.is_empty(), "{name:?}");
            world
                .logged(&["connection complete", "error=", words])
                .await;
        }
    });
}

#[test]
fn a_client_hello_without_room_in_its_clients_account_ends_its_connection() {
    local(async {
        // One identity may hold 16 KiB, and its requests a half.
        let accounts = Accounts::new(64 * 1024);
        let world = World::limited(|config| config.accounts = accounts.clone()).await;
        let hosts = |world: &World| vec![("a", world.ip(60, 1))];
        let world = wild_in(world, AppProtocol::Tls, hosts).await;
        let at = SocketAddr::from((world.ip(60, 1), 8080));
        greet_and_echo(TcpListener::bind(at).await.unwrap(), "");
        let mut stream: Stream = world.ask(vip(&world)).await.unwrap();
        let mut begun = vec![22, 3, 1, 0x40, 0];
        begun.resize(6 * 1024, 0);
        stream.write_all(&begun).await.unwrap();
        stream.flush().await.unwrap();
        let words = ["ClientHello had no room", "LATEEN_HTTP_BUFFERS"];
        world.logged(&words).await;
        until("nothing is held", || accounts.held() == 0).await;
        // A short one is charged nothing.
        assert!(!greet(&world, Some("a.wild.test")).await.is_empty());
    });
}

#[test]
fn an_entry_whose_hostname_leads_to_pods_that_may_not_be_sent_plain_text_is_answered() {
    local(async {
        let mut world = World::unconfigured();
        world.put_entry("entry.test", 98, |service| {
            service.ports[0].target_port = 80;
        });
        world.put_named_endpoint("entry.test", "name.test");
        world.put_unbound_service("behind", 99, AppProtocol::Http11);
        let mut pod = wds::plain(wds::workload("pod", "n2", world.ip(3, 1)));
        pod.authorization_policies = vec!["istio-system/istio_converted_static_strict".to_owned()];
        world.put_workload(wds::serving(pod, "behind", 80, 8080));
        world.configure().await;
        let behind = octets(world.ip(99, 1));
        let says = move |name: &str| match name {
            "name.test" => vec![behind],
            _ => Vec::new(),
        };
        dns::serve(world.resolver(), says).await;
        assert_eq!(status_of(&world, "entry.test").await, "503");
        world.logged(&["status=503", "demands mTLS"]).await;
    });
}
