//! The targets of policies from the wire.

use bytes::Bytes;
use lateen_proto::l7 as proto;
use lateen_types::NamespacedName;
use prost::Message;

use super::message;
use crate::Rejection;
use crate::attached::Target;

/// Reads the targets of a resource, of which there is at least one.
pub(super) fn parse_all(wire: &[proto::Target]) -> Result<Vec<Target>, Rejection> {
    if wire.is_empty() {
        return Err(Rejection::Missing { field: "targets" });
    }
    wire.iter().map(parse).collect()
}

/// Reads a resource that has targets. If it is refused, its targets are given to `refused`, as far as they can be read.
pub(super) fn read_attached<M: Message + Default, T>(
    bytes: &Bytes,
    targets_of: fn(&M) -> &[proto::Target],
    parse: impl FnOnce(&M) -> Result<T, Rejection>,
    refused: impl FnOnce(Option<Vec<Target>>),
) -> Result<T, Rejection> {
    let mut targets = None;
    let parsed = message::whole(bytes, |read: Option<&M>| {
        targets = read.and_then(|read| parse_all(targets_of(read)).ok());
    })
    .and_then(|wire| {
        targets = parse_all(targets_of(&wire)).ok();
        parse(&wire)
    });
    if parsed.is_err() {
        refused(targets);
    }
    parsed
}

fn parse(wire: &proto::Target) -> Result<Target, Rejection> {
    use proto::target::Target as Wire;
    let name = |name: &str| {
        name.parse::<NamespacedName>()
            .map_err(|error| Rejection::Invalid(format!("targets: {error}")))
    };
    match wire.target.as_ref() {
        Some(Wire::Gateway(gateway)) => Ok(Target::Gateway(name(gateway)?)),
        Some(Wire::Service(service)) => Ok(Target::Service(name(service)?)),
        None => Err(Rejection::Missing { field: "target" }),
    }
}
