//! A kind that no part of the mesh knows, from its declaration to its acknowledgement.

use lateen_config::{Kind, Kinds, Parser, Rejection, Resource, resource_kinds};
use lateen_proto::discovery::DeltaDiscoveryResponse;
use lateen_proto::{ADDRESS_TYPE, AUTHORIZATION_TYPE};
use lateen_xds::Settings;
use prost::Message;
use prost::bytes::Bytes;
use serde::Serialize;

use super::control::{Control, Session, resource, response};
use super::{Proxy, Seen, good, settings};

const TICKET_TYPE: &str = "type.googleapis.com/google.protobuf.StringValue";

/// A ticket has a number.
#[derive(Debug, PartialEq, Serialize)]
struct Ticket(u32);

impl Resource for Ticket {
    fn parse(_: &str, bytes: Bytes) -> Result<Self, Rejection> {
        let text = String::decode(bytes)?;
        let number = text.parse();
        number
            .map(Self)
            .map_err(|_| Rejection::Invalid(format!("{text:?} is no number")))
    }
}

const fn ticket(order: u16, removed_after: &'static [&'static str]) -> Kind {
    Kind {
        type_url: TICKET_TYPE,
        label: "tickets",
        order,
        removed_after,
        on_demand: false,
        parser: Parser::of::<Ticket>(),
    }
}

static BEFORE_ADDRESSES: Kind = ticket(150, &[ADDRESS_TYPE]);
static AFTER_ADDRESSES: Kind = ticket(300, &[]);

fn following(ticket: &'static Kind) -> Settings {
    Settings {
        kinds: Kinds::new([
            ticket,
            &resource_kinds::ADDRESS,
            &resource_kinds::AUTHORIZATION,
        ]),
        ..settings()
    }
}

impl Proxy {
    fn ticket(&self, kind: &Kind, name: &str) -> Option<u32> {
        let snapshot = self.store.lock().unwrap().snapshot();
        snapshot.resource::<Ticket>(kind, name).map(|found| found.0)
    }
}

fn tickets(nonce: &str, tickets: &[(&str, &str)]) -> DeltaDiscoveryResponse {
    let resources = tickets
        .iter()
        .map(|(name, text)| resource(TICKET_TYPE, name, "1", &(*text).to_owned()))
        .collect();
    response(TICKET_TYPE, nonce, resources)
}

async fn acknowledges(session: &mut Session, type_url: &str, nonce: &str) {
    let answer = session.request().await;
    assert_eq!(
        (&*answer.type_url, &*answer.response_nonce),
        (type_url, nonce)
    );
    assert_eq!(answer.error_detail, None);
}

#[tokio::test]
async fn a_made_up_kind_travels_in_its_order() {
    for (kind, order) in [
        (
            &BEFORE_ADDRESSES,
            [AUTHORIZATION_TYPE, TICKET_TYPE, ADDRESS_TYPE],
        ),
        (
            &AFTER_ADDRESSES,
            [AUTHORIZATION_TYPE, ADDRESS_TYPE, TICKET_TYPE],
        ),
    ] {
        let mut control = Control::start();
        let mut proxy = Proxy::start(&control, following(kind));
        let mut session = control.session().await;
        for type_url in order {
            assert_eq!(session.request().await.type_url, type_url);
        }
        // All responses are on their way at once. The workers have installed none of them.
        proxy.permits.forget_permits(1000);
        for type_url in order {
            let first = match type_url {
                TICKET_TYPE => tickets("n", &[("t1", "7")]),
                ADDRESS_TYPE => response(ADDRESS_TYPE, "n", vec![good("w1", "1")]),
                _ => response(type_url, "n", Vec::new()),
            };
            session.respond(first).await;
        }
        assert!(session.is_silent().await, "nothing is in force");
        for type_url in order {
            proxy.permits.add_permits(1);
            acknowledges(&mut session, type_url, "n").await;
            let is_ticket_known = proxy.ticket(kind, "t1") == Some(7);
            assert!(is_ticket_known || type_url != TICKET_TYPE);
        }
        proxy.sees(&Seen::Synced).await;
    }
}

#[tokio::test]
async fn every_kind_is_listed_before_the_mesh_is_known() {
    let mut control = Control::start();
    let mut proxy = Proxy::start(&control, following(&AFTER_ADDRESSES));
    let mut session = control.session().await;
    for _ in 0..3 {
        session.request().await;
    }
    for type_url in [ADDRESS_TYPE, AUTHORIZATION_TYPE] {
        session.respond(response(type_url, "n", Vec::new())).await;
        session.request().await;
    }
    while let Ok(seen) = proxy.seen.try_recv() {
        assert_ne!(seen, Seen::Synced, "no ticket is known yet");
    }
    session.respond(tickets("n", &[])).await;
    proxy.sees(&Seen::Synced).await;
}

#[tokio::test]
async fn a_made_up_kind_is_parsed_and_what_cannot_be_is_refused_by_name() {
    let mut control = Control::start();
    let proxy = Proxy::start(&control, following(&BEFORE_ADDRESSES));
    let mut session = control.session().await;
    for _ in 0..3 {
        session.request().await;
    }
    session
        .respond(tickets("n-1", &[("t1", "1"), ("t2", "2")]))
        .await;
    acknowledges(&mut session, TICKET_TYPE, "n-1").await;
    session
        .respond(tickets("n-2", &[("t1", "one"), ("t2", "22"), ("t3", "3")]))
        .await;
    let nack = session.request().await;
    assert_eq!(nack.response_nonce, "n-2");
    let message = nack.error_detail.expect("a refusal").message;
    assert_eq!(message, "t1: \"one\" is no number");
    let known = ["t1", "t2", "t3"].map(|name| proxy.ticket(&BEFORE_ADDRESSES, name));
    assert_eq!(known, [Some(1), Some(22), Some(3)]);
    let snapshot = proxy.store.lock().unwrap().snapshot();
    let dump = serde_json::to_value(snapshot.dump()).unwrap();
    assert_eq!(
        dump["tickets"],
        serde_json::json!({"t1": 1, "t2": 22, "t3": 3})
    );
}

/// The control plane sends a removal after the acknowledgement of the Addresses that named the resource.
#[tokio::test]
async fn a_removal_follows_the_acknowledgement_of_what_named_it() {
    let mut control = Control::start();
    let proxy = Proxy::start(&control, following(&BEFORE_ADDRESSES));
    let mut session = control.session().await;
    for _ in 0..3 {
        session.request().await;
    }
    session.respond(tickets("n-1", &[("t1", "1")])).await;
    acknowledges(&mut session, TICKET_TYPE, "n-1").await;
    session
        .respond(response(ADDRESS_TYPE, "n-2", vec![good("w1", "2")]))
        .await;
    acknowledges(&mut session, ADDRESS_TYPE, "n-2").await;
    assert_eq!(proxy.ticket(&BEFORE_ADDRESSES, "t1"), Some(1));
    let mut removal = tickets("n-3", &[]);
    removal.removed_resources = vec!["t1".to_owned()];
    session.respond(removal).await;
    acknowledges(&mut session, TICKET_TYPE, "n-3").await;
    assert_eq!(proxy.ticket(&BEFORE_ADDRESSES, "t1"), None);
    drop(session);
    let mut session = control.session().await;
    session.request().await;
    let again = session.request().await;
    assert_eq!(again.type_url, TICKET_TYPE);
    assert!(again.initial_resource_versions.is_empty());
}

#[tokio::test]
async fn the_children_of_a_parent_are_subscribed_by_its_name() {
    let mut control = Control::start();
    let settings = following(&BEFORE_ADDRESSES);
    let kinds = [&BEFORE_ADDRESSES];
    let mut proxy = Proxy::children_of(&control, settings, "shop/gateway", &kinds);
    let mut session = control.session().await;
    for (type_url, names) in [
        (AUTHORIZATION_TYPE, &[][..]),
        (TICKET_TYPE, &["shop/gateway"]),
        (ADDRESS_TYPE, &[]),
    ] {
        let first = session.request().await;
        assert_eq!(first.type_url, type_url);
        assert_eq!(first.resource_names_subscribe, names);
        assert!(first.resource_names_unsubscribe.is_empty());
    }
    session.respond(tickets("n-1", &[("t1", "1")])).await;
    acknowledges(&mut session, TICKET_TYPE, "n-1").await;
    assert_eq!(proxy.ticket(&BEFORE_ADDRESSES, "t1"), Some(1));
    for type_url in [AUTHORIZATION_TYPE, ADDRESS_TYPE] {
        session.respond(response(type_url, "n-2", Vec::new())).await;
        acknowledges(&mut session, type_url, "n-2").await;
    }
    proxy.sees(&Seen::Synced).await;
    drop(session);

    // A new stream asks by the same name, and says what is held.
    let mut session = control.session().await;
    session.request().await;
    let again = session.request().await;
    assert_eq!(again.resource_names_subscribe, ["shop/gateway"]);
    assert_eq!(again.initial_resource_versions["t1"], "1");
}

/// The control plane names a parent among the removed resources if it has no children.
#[tokio::test]
async fn a_parent_without_children_completes_the_list() {
    let mut control = Control::start();
    let settings = following(&BEFORE_ADDRESSES);
    let kinds = [&BEFORE_ADDRESSES];
    let mut proxy = Proxy::children_of(&control, settings, "shop/gateway", &kinds);
    let mut session = control.session().await;
    for _ in 0..3 {
        session.request().await;
    }
    let mut none = tickets("n-1", &[]);
    none.removed_resources = vec!["shop/gateway".to_owned()];
    session.respond(none).await;
    acknowledges(&mut session, TICKET_TYPE, "n-1").await;
    for type_url in [AUTHORIZATION_TYPE, ADDRESS_TYPE] {
        session.respond(response(type_url, "n-2", Vec::new())).await;
        acknowledges(&mut session, type_url, "n-2").await;
    }
    proxy.sees(&Seen::Synced).await;
}
