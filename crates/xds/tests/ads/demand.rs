//! Asking by name, and first pushes in several parts.

use lateen_config::Want;
use lateen_proto::discovery::DeltaDiscoveryResponse;
use lateen_proto::{ADDRESS_TYPE, AUTHORIZATION_TYPE};
use tokio::task::JoinHandle;

use super::control::{Control, Session, response, soon};
use super::{Proxy, Seen, good, opened, settings};

fn want(address: &str) -> Want {
    Want::address(&"".into(), address.parse().unwrap())
}

fn asking(lookups: &lateen_xds::Lookups, address: &str) -> JoinHandle<bool> {
    let (lookups, want) = (lookups.clone(), want(address));
    tokio::spawn(async move { lookups.ask(&"pod".into(), &want).await.is_ok() })
}

fn with_alias(uid: &str, alias: &str) -> DeltaDiscoveryResponse {
    let mut resource = good(uid, "1");
    resource.aliases = vec![alias.to_owned()];
    response(ADDRESS_TYPE, "n-1", vec![resource])
}

fn without(name: &str) -> DeltaDiscoveryResponse {
    let mut response = response(ADDRESS_TYPE, "n-2", Vec::new());
    response.removed_resources = vec![name.to_owned()];
    response
}

async fn subscribes(session: &mut Session) -> Vec<String> {
    let request = session.request().await;
    assert_eq!(request.type_url, ADDRESS_TYPE);
    assert!(request.response_nonce.is_empty(), "{request:?}");
    request.resource_names_subscribe
}

#[tokio::test]
async fn on_demand_nothing_is_asked_for_until_it_is_needed() {
    let mut control = Control::start();
    let (proxy, lookups) = Proxy::on_demand(&control);
    let mut session = control.session().await;
    let (policies, addresses) = session.subscriptions().await;
    assert!(
        policies.resource_names_subscribe.is_empty(),
        "policies are all sent"
    );
    assert_eq!(addresses.resource_names_subscribe, ["*"]);
    assert_eq!(addresses.resource_names_unsubscribe, ["*"]);

    let first = asking(&lookups, "10.0.0.1");
    assert_eq!(subscribes(&mut session).await, ["/10.0.0.1"]);
    let second = asking(&lookups, "10.0.0.1");
    assert!(session.is_silent().await, "one question, however many ask");
    session.respond(with_alias("w1", "/10.0.0.1")).await;
    assert!(soon("an answer", first).await.unwrap());
    assert!(soon("an answer", second).await.unwrap());
    assert!(proxy.knows("w1"), "in use before those who asked were told");
    assert_eq!(session.request().await.response_nonce, "n-1");
}

#[tokio::test]
async fn nothing_is_an_answer_and_is_in_force_when_told() {
    let mut control = Control::start();
    let (proxy, lookups) = Proxy::on_demand(&control);
    let mut session = opened(&mut control).await;
    let miss = || {
        let snapshot = proxy.store.lock().unwrap().snapshot();
        snapshot.wants_address(&"".into(), "192.0.2.1".parse().unwrap())
    };
    assert_eq!(miss(), Some(want("192.0.2.1")));
    let asked = asking(&lookups, "192.0.2.1");
    subscribes(&mut session).await;
    session.respond(without("/192.0.2.1")).await;
    assert!(soon("an answer", asked).await.unwrap());
    assert_eq!(miss(), None);
}

#[tokio::test]
async fn an_address_whose_pod_is_gone_is_asked_for_anew() {
    let mut control = Control::start();
    let (proxy, lookups) = Proxy::on_demand(&control);
    let mut session = opened(&mut control).await;
    let asked = asking(&lookups, "10.0.0.1");
    subscribes(&mut session).await;
    session.respond(with_alias("w1", "/10.0.0.1")).await;
    assert!(soon("an answer", asked).await.unwrap());
    session.request().await;
    session.respond(without("w1")).await;
    assert_eq!(session.request().await.response_nonce, "n-2");
    assert_eq!(
        session.request().await.resource_names_unsubscribe,
        ["/10.0.0.1"]
    );
    assert!(!proxy.knows("w1"));
    let asked = asking(&lookups, "10.0.0.1");
    assert_eq!(subscribes(&mut session).await, ["/10.0.0.1"]);
    session.respond(with_alias("w2", "/10.0.0.1")).await;
    assert!(soon("an answer", asked).await.unwrap());
}

#[tokio::test]
async fn what_was_asked_for_is_asked_for_again_on_a_new_stream() {
    let mut control = Control::start();
    let (_proxy, lookups) = Proxy::on_demand(&control);
    let mut session = opened(&mut control).await;
    let answered = asking(&lookups, "10.0.0.1");
    subscribes(&mut session).await;
    session.respond(with_alias("w1", "/10.0.0.1")).await;
    assert!(soon("an answer", answered).await.unwrap());
    session.request().await;
    let waiting = asking(&lookups, "10.0.0.2");
    subscribes(&mut session).await;
    drop(session);

    let mut session = control.session().await;
    let (_, addresses) = session.subscriptions().await;
    assert_eq!(
        addresses.resource_names_subscribe,
        ["*", "/10.0.0.1", "/10.0.0.2"]
    );
    assert_eq!(addresses.resource_names_unsubscribe, ["*"]);
    assert_eq!(addresses.initial_resource_versions["w1"], "1");
    session.respond(without("/10.0.0.2")).await;
    assert!(soon("an answer", waiting).await.unwrap());
}

#[tokio::test]
async fn a_first_push_in_parts_is_not_complete_before_its_last() {
    let mut control = Control::start();
    let mut proxy = Proxy::start(&control, settings());
    let mut session = opened(&mut control).await;
    session
        .respond(response(AUTHORIZATION_TYPE, "e.1.1", Vec::new()))
        .await;
    session.request().await;
    session
        .respond(response(ADDRESS_TYPE, "e.1.2+", vec![good("w1", "1")]))
        .await;
    session.request().await;
    session
        .respond(response(ADDRESS_TYPE, "e.1.3+", vec![good("w2", "1")]))
        .await;
    assert_eq!(session.request().await.response_nonce, "e.1.3+");
    while let Ok(seen) = proxy.seen.try_recv() {
        assert_ne!(seen, Seen::Synced, "the mesh was not known yet");
    }
    session
        .respond(response(ADDRESS_TYPE, "e.1.4", Vec::new()))
        .await;
    proxy.sees(&Seen::Synced).await;
}

#[tokio::test]
async fn another_control_planes_first_response_is_the_whole() {
    let mut control = Control::start();
    let mut proxy = Proxy::start(&control, settings());
    let mut session = opened(&mut control).await;
    session
        .respond(response(AUTHORIZATION_TYPE, "YWJj+", Vec::new()))
        .await;
    session.request().await;
    session
        .respond(response(ADDRESS_TYPE, "3f.x.y+", Vec::new()))
        .await;
    proxy.sees(&Seen::Synced).await;
}
