//! The targets of policies from the wire.

use lateen_proto::l7 as proto;
use lateen_types::NamespacedName;

use crate::Rejection;
use crate::attached::Target;

/// Reads the targets of a resource, of which there is at least one.
pub(super) fn parse_all(wire: &[proto::Target]) -> Result<Vec<Target>, Rejection> {
    if wire.is_empty() {
        return Err(Rejection::Missing { field: "targets" });
    }
    wire.iter().map(parse).collect()
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
