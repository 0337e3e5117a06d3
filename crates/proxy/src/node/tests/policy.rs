//! Tests of policy decisions, at the start of a connection and later.

use lateen_proto::workload::ApplicationTunnel;
use lateen_proto::workload::application_tunnel::Protocol;

use super::*;
use crate::connection_table::{Denial, Ending, Event, Fault, Judgement, Listed, NAMED, Watch};

#[tokio::test]
async fn a_policy_in_dry_run_is_reported_and_decides_nothing() {
    let mut mesh = Mesh::start().await;
    let mut application = mesh.application().await;
    let principal = CLIENT.strip_prefix("spiffe://").unwrap();
    let mut policy = wds::policy("rehearsal", Action::Deny, &[principal]);
    policy.dry_run = true;
    mesh.protect(policy).await;
    let (client, served) = open(&mesh, &mut application).await;
    mesh.logged(&["\tpolicy\t", "dry run: default/rehearsal would deny"])
        .await;
    let hits = ["policy=\"default/rehearsal\"", "decision=\"deny\""];
    assert_eq!(mesh.east.count("lateen_policy_dry_run_total", &hits), 1.0);
    let [into] = &mesh.east.connections().await[..] else {
        panic!("one connection comes in");
    };
    let would_deny = into.judgement.would_deny.as_ref();
    assert_eq!(
        would_deny.map(|denial| &denial.by[..]),
        Some(&["default/rehearsal".to_owned()][..])
    );
    assert_eq!(mesh.west.count("lateen_policy_dry_run_total", &[]), 0.0);
    drop((client, served));
    mesh.logged(&[
        "direction=\"inbound\"",
        "policy.dry_run=\"deny by default/rehearsal\"",
    ])
    .await;
    // The client's proxy applies no policy.
    assert!(
        mesh.log(&["direction=\"outbound\"", "policy.dry_run"])
            .is_empty()
    );
}

#[tokio::test]
async fn a_policy_in_dry_run_that_comes_or_goes_changes_what_is_listed_of_an_open_connection() {
    let mut mesh = Mesh::start().await;
    let mut application = mesh.application().await;
    let (client, served) = open(&mesh, &mut application).await;
    let principal = CLIENT.strip_prefix("spiffe://").unwrap();
    for (action, by, none_matched) in [
        (Action::Deny, &["default/rehearsal"][..], &[][..]),
        (Action::Allow, &[][..], &[][..]),
        (Action::Deny, &["default/rehearsal"][..], &[][..]),
    ] {
        let mut policy = wds::policy("rehearsal", action, &[principal]);
        policy.dry_run = true;
        mesh.protect(policy).await;
        let [listed] = &mesh.east.connections().await[..] else {
            panic!("one connection comes in");
        };
        let denial = listed.judgement.would_deny.clone().unwrap_or_default();
        assert_eq!(
            (&denial.by[..], &denial.none_matched[..]),
            (&strings(by)[..], &strings(none_matched)[..])
        );
    }
    drop((client, served));
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn a_refusal_names_sixteen_policies_and_counts_the_others() {
    let mut mesh = Mesh::start().await;
    let _application = mesh.application().await;
    let mut server = mesh.east.watch();
    let (other, client) = (
        "cluster.local/ns/default/sa/other",
        CLIENT.strip_prefix("spiffe://").unwrap(),
    );
    let mut policies = Vec::new();
    for index in 0..NAMED + 4 {
        let mut policy = wds::policy(&format!("rehearsal-{index}"), Action::Deny, &[client]);
        policy.dry_run = true;
        policies.push(policy);
        let name = format!("only-other-{index}");
        policies.push(wds::policy(&name, Action::Allow, &[other]));
    }
    mesh.protect_by(policies).await;
    refused(&mesh, mesh.vip()).await;
    let (listed, _) = closed(&mut server).await;
    let Judgement {
        denied, would_deny, ..
    } = listed.judgement;
    let (denied, would_deny) = (denied.unwrap(), would_deny.unwrap());
    assert_eq!((denied.none_matched.len(), denied.unnamed), (NAMED, 4));
    assert_eq!((would_deny.by.len(), would_deny.unnamed), (NAMED, 4));
    let inbound = mesh
        .logged(&["direction=\"inbound\"", "policy.dry_run"])
        .await;
    assert!(
        inbound.contains("and 4 more") && inbound.matches("deny by").count() == NAMED,
        "{inbound}"
    );
    let count = mesh.east.count("lateen_policy_dry_run_total", &[]);
    assert_eq!(count, (NAMED + 4) as f64);
}

#[tokio::test]
async fn a_denied_principal_is_refused_and_explained_on_both_sides() {
    let mut mesh = Mesh::start().await;
    let mut application = mesh.application().await;
    let principal = CLIENT.strip_prefix("spiffe://").unwrap();
    mesh.protect(wds::policy("no-client", Action::Deny, &[principal]))
        .await;
    refused(&mesh, mesh.vip()).await;
    let inbound = mesh.logged(&["direction=\"inbound\"", "\terror\t"]).await;
    let words =
        "connection closed due to policy rejection: explicitly denied by: default/no-client";
    assert!(
        inbound.contains(words) && inbound.contains(CLIENT),
        "{inbound}"
    );
    let outbound = mesh.logged(&["direction=\"outbound\"", "\terror\t"]).await;
    assert!(outbound.contains("401"), "{outbound}");
    assert_eq!(mesh.east.count(FAILED, &["response_flags=\"DENY\""]), 1.0);
    assert_eq!(
        mesh.west.count(FAILED, &["response_flags=\"CONNECT\""]),
        1.0
    );
    assert!(
        application.try_recv().is_err(),
        "the application saw a denied connection"
    );
}

#[tokio::test]
async fn both_proxies_list_a_refused_connection_under_one_number_and_name_the_policies() {
    let mut mesh = Mesh::start().await;
    let _application = mesh.application().await;
    let (mut client, mut server) = (mesh.west.watch(), mesh.east.watch());
    let other = "cluster.local/ns/default/sa/other";
    mesh.protect(wds::policy("only-other", Action::Allow, &[other]))
        .await;
    refused(&mesh, mesh.vip()).await;
    let (at_server, ending) = closed(&mut server).await;
    assert_eq!(ending.fault, Fault::Denied);
    let denial = Denial {
        none_matched: vec!["default/only-other".to_owned()],
        ..Denial::default()
    };
    assert_eq!(at_server.judgement.denied, Some(denial));
    let (at_client, ending) = closed(&mut client).await;
    assert_eq!(ending.fault, Fault::DeniedByPeer);
    assert_ne!(at_client.pair, 0);
    assert_eq!(at_client.pair, at_server.pair);

    let principal = CLIENT.strip_prefix("spiffe://").unwrap();
    mesh.protect(wds::policy("no-client", Action::Deny, &[principal]))
        .await;
    refused(&mesh, mesh.vip()).await;
    let (next, _) = closed(&mut server).await;
    let denial = Denial {
        by: vec!["default/no-client".to_owned()],
        ..Denial::default()
    };
    assert_eq!(next.judgement.denied, Some(denial));
    assert_ne!(
        next.pair, at_server.pair,
        "another connection has another number"
    );
}

/// The next connection that did not end well.
async fn closed(watch: &mut Watch) -> (Listed, Ending) {
    loop {
        match soon("an event", watch.next()).await {
            Some(Event::Closed(listed, Some(ending))) => return (listed, *ending),
            Some(_) => {}
            None => panic!("the watch ended"),
        }
    }
}

#[tokio::test]
async fn a_policy_that_is_not_known_lets_nobody_in() {
    let mut mesh = Mesh::start().await;
    let mut application = mesh.application().await;
    let mut server = mesh.server_workload();
    server
        .authorization_policies
        .push("default/not-here".to_owned());
    mesh.put_workload(server);
    mesh.configure().await;
    refused(&mesh, mesh.vip()).await;
    mesh.logged(&[
        "direction=\"inbound\"",
        "default/not-here",
        "not known here",
    ])
    .await;
    assert!(application.try_recv().is_err());
}

#[tokio::test]
async fn a_change_of_policy_cuts_connections_that_it_denies_and_no_others() {
    let mut mesh = Mesh::start().await;
    let mut application = mesh.application().await;
    let (mut client, mut served) = open(&mesh, &mut application).await;

    mesh.protect(wds::policy(
        "others",
        Action::Deny,
        &["cluster.local/ns/default/sa/other"],
    ))
    .await;
    say(&mut served, "still here").await;
    hear(&mut client, "still here").await;

    let principal = CLIENT.strip_prefix("spiffe://").unwrap();
    mesh.protect(wds::policy("no-client", Action::Deny, &[principal]))
        .await;
    ends_silently(&mut served).await;
    ends_silently(&mut client).await;
    mesh.logged(&[
        "direction=\"inbound\"",
        "connection closed due to policy change",
    ])
    .await;
    assert_eq!(mesh.east.count(FAILED, &["response_flags=\"DENY\""]), 1.0);
}

#[tokio::test]
async fn plaintext_to_an_application_tunnel_is_refused() {
    // A header that anybody may have written must not reach an application that believes it.
    for (protocol, port, believed) in [
        (Protocol::Proxy, 9000, true),
        (Protocol::Proxy, 0, true),
        (Protocol::Proxy, 9001, false),
        (Protocol::None, 9000, false),
    ] {
        let mut mesh = Mesh::start().await;
        // Decided after it: what is let through so far is refused then.
        mesh.protect(deny_without_identity("strict")).await;
        let mut server = mesh.server_workload();
        server.authorization_policies = vec!["default/strict".to_owned()];
        server.application_tunnel = Some(ApplicationTunnel {
            protocol: protocol.into(),
            port,
        });
        mesh.put_workload(server);
        mesh.configure().await;
        let address = (mesh.server_ip(), 9000).into();
        let door = mesh
            .east
            .open(&mesh.server, crate::pod::Port::Plaintext, address);
        refused(&mesh, address).await;
        let why = if believed {
            "believes the PROXY header"
        } else {
            "explicitly denied by: default/strict"
        };
        mesh.logged(&["direction=\"inbound\"", why]).await;
        drop(door);
    }
}

#[tokio::test]
async fn plaintext_to_a_workload_that_demands_identities_is_refused() {
    let mut mesh = Mesh::start().await;
    let address = (mesh.server_ip(), 9000).into();
    let _door = mesh
        .east
        .open(&mesh.server, crate::pod::Port::Plaintext, address);
    mesh.protect(deny_without_identity("strict")).await;
    refused(&mesh, address).await;
    let line = mesh
        .logged(&[
            "direction=\"inbound\"",
            "explicitly denied by: default/strict",
        ])
        .await;
    assert!(!line.contains("identity"), "{line}");
    let words = [
        "response_flags=\"DENY\"",
        "connection_security_policy=\"unknown\"",
    ];
    assert_eq!(mesh.east.count(FAILED, &words), 1.0);

    let mut application = mesh.application().await;
    let mut client = mesh.dial(mesh.vip()).await.unwrap();
    say(&mut client, "with identity").await;
    let (mut served, _) = soon("the server accepts", application.recv())
        .await
        .unwrap();
    hear(&mut served, "with identity").await;
}
