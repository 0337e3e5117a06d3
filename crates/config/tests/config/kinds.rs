//! The registry of kinds, with one that no part of the mesh knows.

use bytes::Bytes;
use lateen_config::{Batch, Kind, Kinds, Parser, Rejection, Resource, Store, resource_kinds};
use lateen_proto::ADDRESS_TYPE;
use serde::Serialize;

#[derive(Serialize)]
struct Ticket;

impl Resource for Ticket {
    fn parse(name: &str, _: Bytes) -> Result<Self, Rejection> {
        match name {
            "void" => Err(Rejection::Invalid("is void".to_owned())),
            _ => Ok(Self),
        }
    }
}

const fn ticket(order: u16, removed_after: &'static [&'static str]) -> Kind {
    Kind {
        type_url: "ticket",
        label: "tickets",
        order,
        removed_after,
        on_demand: false,
        parser: Parser::of::<Ticket>(),
    }
}

static TICKET: Kind = ticket(150, &[ADDRESS_TYPE]);
static LATE: Kind = ticket(200, &[ADDRESS_TYPE]);
static ASTRAY: Kind = ticket(100, &["nothing"]);

fn batch(kind: &'static Kind, upserts: &[&'static str], removals: &[&'static str]) -> Batch {
    Batch {
        upserts: upserts
            .iter()
            .map(|name| ((*name).into(), Bytes::new()))
            .collect(),
        removals: removals.iter().map(|name| (*name).into()).collect(),
        ..Batch::new(kind)
    }
}

#[test]
fn a_gated_removal_comes_after_the_kinds_that_may_name_the_resource() {
    let kinds = Kinds::new([
        &resource_kinds::ADDRESS,
        &TICKET,
        &resource_kinds::AUTHORIZATION,
    ]);
    let sequence = kinds.sequence(|kind| batch(kind, &["new"], &["old"]));
    let shown: Vec<_> = sequence
        .iter()
        .map(|batch| (batch.kind.label, batch.upserts.len(), batch.removals.len()))
        .collect();
    assert_eq!(
        shown,
        [
            ("Authorization", 1, 0),
            ("tickets", 1, 0),
            ("Address", 1, 1),
            ("tickets", 0, 1),
            ("Authorization", 0, 1),
        ]
    );
}

#[test]
fn a_store_takes_in_a_made_up_kind() {
    let mut store = Store::new("", None);
    let refused = store.apply(&batch(&TICKET, &["a", "void", "b"], &[]));
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0].to_string(), "void: is void");
    let before = store.snapshot();
    store.apply(&batch(&TICKET, &[], &["a", "unknown"]));
    let after = store.snapshot();
    let names = |snapshot: &lateen_config::Snapshot| -> Vec<String> {
        let tickets = snapshot.resources::<Ticket>(&TICKET);
        tickets.map(|(name, _)| name.to_string()).collect()
    };
    assert_eq!(names(&before), ["a", "b"]);
    assert_eq!(names(&after), ["b"]);
    assert!(after.generation() > before.generation());
    assert!(after.resource::<Ticket>(&TICKET, "b").is_some());
}

#[test]
fn every_kind_is_to_be_listed_once() {
    let mut unlisted = resource_kinds::mesh().unlisted();
    assert!(!unlisted.listed(&resource_kinds::ADDRESS));
    assert!(!unlisted.listed(&resource_kinds::ADDRESS));
    assert!(!unlisted.is_empty());
    assert!(unlisted.listed(&resource_kinds::AUTHORIZATION));
    assert!(unlisted.is_empty());
    assert!(!unlisted.listed(&resource_kinds::ADDRESS), "told once");
}

#[test]
#[should_panic(expected = "kind ticket is declared twice")]
fn a_type_url_is_declared_once() {
    Kinds::new([&TICKET, &LATE, &resource_kinds::ADDRESS]);
}

#[test]
#[should_panic(expected = "is not a kind of a higher order")]
fn removals_wait_for_kinds_of_a_higher_order() {
    Kinds::new([&LATE, &resource_kinds::ADDRESS]);
}

#[test]
#[should_panic(expected = "removals of ticket wait for nothing")]
fn removals_wait_for_kinds_that_are_declared() {
    Kinds::new([&ASTRAY]);
}
