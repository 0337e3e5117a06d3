//! Policies that compare the server name of connections that are relayed (`connection.sni`).

use lateen_hbone::Stream;
use lateen_proto::l7::{
    Action, Attribute, Condition, Rule, StringMatch, Value, condition, string_match::Match, value,
};
use lateen_proto::workload::AppProtocol;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::connections::greet_and_echo;
use super::outside::hello;
use super::talk;
use super::world::{SILENCE, World, local};
use crate::testing::soon;

/// Connections whose server name is one of `values`, if there are any, and none of `not_values`.
fn sni(values: &[&str], not_values: &[&str]) -> Rule {
    let texts = |names: &[&str]| {
        let text = |name: &&str| Value {
            value: Some(value::Value::Text(StringMatch {
                r#match: Some(Match::Exact((*name).to_owned())),
            })),
        };
        names.iter().map(text).collect()
    };
    Rule {
        when: vec![Condition {
            values: texts(values),
            not_values: texts(not_values),
            attribute: Some(condition::Attribute::Known(Attribute::ConnectionSni.into())),
        }],
        ..Rule::default()
    }
}

/// A world whose endpoint echoes behind a greeting, on a port of this protocol.
async fn echoing(protocol: AppProtocol, greeting: &'static str) -> World {
    let mut world = World::unconfigured();
    world.put_service("server", 96, protocol);
    let endpoint = world.put_plain_endpoint("server", "app", 3);
    world.configure().await;
    greet_and_echo(TcpListener::bind(endpoint).await.unwrap(), greeting);
    world
}

/// The same with a policy, for a port of TLS and for one without a protocol.
async fn judging(action: Action, rule: &Rule) -> [World; 2] {
    let mut worlds = [
        echoing(AppProtocol::Tls, "").await,
        echoing(AppProtocol::Unknown, "").await,
    ];
    for world in &mut worlds {
        world.put_policy("names", action, vec![rule.clone()]);
        world.configure().await;
    }
    worlds
}

/// Sends bytes in two pieces. True if their echo comes back, and false if the connection ends.
async fn comes_back(stream: &mut Stream, said: &[u8]) -> bool {
    for piece in [&said[..5], &said[5..]] {
        // A connection that has ended by then takes none.
        let _ = stream.write_all(piece).await;
        let _ = stream.flush().await;
    }
    let mut heard = vec![0; said.len()];
    match soon("an echo or an end", stream.read_exact(&mut heard)).await {
        Ok(_) => heard == said,
        Err(_) => false,
    }
}

/// True if a connection with these first bytes reaches the endpoint.
async fn passes(world: &World, said: &[u8]) -> bool {
    comes_back(&mut world.stream().await, said).await
}

async fn expect(world: &World, expected: &[(Option<&str>, bool)]) {
    for (name, is_admitted) in expected {
        assert_eq!(passes(world, &hello(*name)).await, *is_admitted, "{name:?}");
    }
}

#[test]
fn a_deny_of_a_server_name_refuses_its_connections_alone() {
    local(async {
        for world in judging(Action::Deny, &sni(&["bad.example.com"], &[])).await {
            let expected = [
                (Some("bad.example.com"), false),
                (Some("BAD.example.com"), false),
                (Some("bad.example.com."), false),
                (Some("good.example.com"), true),
                (None, true),
            ];
            expect(&world, &expected).await;
            assert!(passes(&world, b"*1\r\n$4\r\nPING\r\n").await);
            let words = ["policy rejection", "denied by: default/names"];
            world.logged(&words).await;
        }
    });
}

#[test]
fn an_allow_of_a_server_name_admits_its_connections_alone() {
    local(async {
        for world in judging(Action::Allow, &sni(&["good.example.com"], &[])).await {
            let expected = [
                (Some("good.example.com"), true),
                (Some("bad.example.com"), false),
                (None, false),
            ];
            expect(&world, &expected).await;
            assert!(!passes(&world, b"*1\r\n$4\r\nPING\r\n").await);
        }
    });
}

#[test]
fn an_allow_of_all_but_a_server_name_admits_all_others() {
    local(async {
        for world in judging(Action::Allow, &sni(&[], &["bad.example.com"])).await {
            let expected = [
                (Some("bad.example.com"), false),
                (Some("good.example.com"), true),
                (None, true),
            ];
            expect(&world, &expected).await;
        }
    });
}

#[test]
fn a_server_name_behind_a_silence_counts() {
    local(async {
        let rules = [
            (Action::Allow, sni(&["good.example.com"], &[])),
            (Action::Deny, sni(&["bad.example.com"], &[])),
        ];
        for (action, rule) in rules {
            for world in judging(action, &rule).await {
                let (mut good, mut bad) = (world.stream().await, world.stream().await);
                tokio::time::sleep(2 * SILENCE).await;
                assert!(comes_back(&mut good, &hello(Some("good.example.com"))).await);
                assert!(!comes_back(&mut bad, &hello(Some("bad.example.com"))).await);
                world.logged(&["error=", "policy rejection"]).await;
            }
        }
    });
}

/// First bytes that some servers take for a ClientHello with this name, and nobody here.
fn unreadable(name: &str) -> [Vec<u8>; 3] {
    let plain = hello(Some(name));
    let mut old = plain.clone();
    old[1..3].copy_from_slice(&[2, 3]);
    let behind_alert = [&[21, 3, 1, 0, 2, 1, 90], &plain[..]].concat();
    let mut long = vec![22, 3, 1, 0x3f, 0xff, 1, 0, 0xff, 0xff];
    long.resize(20 * 1024, 0);
    [old, behind_alert, long]
}

#[test]
fn first_bytes_of_tls_that_cannot_be_read_are_refused_where_names_decide() {
    local(async {
        let rule = sni(&["bad.example.com"], &[]);
        for world in judging(Action::Deny, &rule).await {
            for said in unreadable("bad.example.com") {
                assert!(!passes(&world, &said).await, "{:?}", &said[..5]);
            }
            let words = ["policy rejection", "could not be read"];
            world.logged(&words).await;
        }
        for world in judging(Action::Audit, &rule).await {
            for said in unreadable("bad.example.com") {
                assert!(passes(&world, &said).await, "{:?}", &said[..5]);
            }
        }
    });
}

#[test]
fn a_later_policy_judges_a_relayed_connection_by_the_name_that_was_read() {
    local(async {
        let other = sni(&["other.example.com"], &[]);
        for mut world in judging(Action::Deny, &other).await {
            let (mut one, mut two) = (world.stream().await, world.stream().await);
            assert!(comes_back(&mut one, &hello(Some("one.example.com"))).await);
            assert!(comes_back(&mut two, &hello(Some("two.example.com"))).await);
            world.put_policy("later", Action::Deny, vec![sni(&["two.example.com"], &[])]);
            world.configure().await;
            let read = soon("the cut", two.read(&mut [0])).await;
            assert!(read.is_err(), "it is reset: {read:?}");
            world.logged(&["due to policy change"]).await;
            talk(&mut one, "goes on", "goes on").await;
            world.put_policy("last", Action::Allow, vec![sni(&["one.example.com"], &[])]);
            world.configure().await;
            talk(&mut one, "and on", "and on").await;
        }
    });
}

#[test]
fn a_first_policy_of_names_cuts_connections_whose_names_nobody_has_read() {
    local(async {
        for protocol in [AppProtocol::Tls, AppProtocol::Unknown] {
            let mut world = echoing(protocol, "").await;
            let mut unread = world.stream().await;
            assert!(comes_back(&mut unread, &hello(Some("bad.example.com"))).await);
            let mut plain = world.stream().await;
            assert!(comes_back(&mut plain, b"*1\r\n$4\r\nPING\r\n").await);
            world.put_policy("names", Action::Deny, vec![sni(&["bad.example.com"], &[])]);
            world.configure().await;
            let read = soon("the cut", unread.read(&mut [0])).await;
            assert!(read.is_err(), "it is reset: {read:?}");
            if protocol == AppProtocol::Unknown {
                // Its first bytes were looked at, and are no TLS.
                talk(&mut plain, "goes on", "goes on").await;
            }
            assert!(passes(&world, &hello(Some("good.example.com"))).await);
        }
    });
}

#[test]
fn a_port_of_tls_without_policies_of_names_waits_for_no_client() {
    local(async {
        let mut world = echoing(AppProtocol::Tls, "220 ready\r\n").await;
        world.put_policy(
            "friends",
            Action::Allow,
            vec![super::policy::from("client")],
        );
        world.configure().await;
        let mut stream = world.stream().await;
        talk(&mut stream, "", "220 ready\r\n").await;
        talk(&mut stream, "EHLO me\r\n", "EHLO me\r\n").await;
    });
}

#[test]
fn a_server_that_speaks_first_on_a_port_without_a_protocol_has_no_name_to_judge() {
    local(async {
        let mut world = echoing(AppProtocol::Unknown, "220 ready\r\n").await;
        world.put_policy("names", Action::Deny, vec![sni(&["bad.example.com"], &[])]);
        world.configure().await;
        let mut stream = world.stream().await;
        talk(&mut stream, "", "220 ready\r\n").await;
        talk(&mut stream, "EHLO me\r\n", "EHLO me\r\n").await;
    });
}
