//! The kinds of resources of proxies that read requests, and their registry.

use bytes::Bytes;
use lateen_proto::{
    ADDRESS_TYPE, AUTHENTICATION_TYPE, BINDING_TYPE, GATEWAY_TYPE, REQUEST_AUTHORIZATION_TYPE,
};
use lateen_types::Strng;

use super::authentication::Authentication;
use super::authorization::Authorization;
use super::binding::Binding;
use super::gateway::Gateway;
use crate::attached::Content;
use crate::kind::{Parser, Resources};
use crate::resource::{Entry, Resource};
use crate::{Kind, Kinds, Rejection, resource_kinds};

/// The orders of the kinds, between the L4 policies and the Addresses.
const ORDER_RULES: u16 = 110;
const ORDER_GATEWAYS: u16 = 120;
const ORDER_BINDINGS: u16 = 150;

/// Policies of requests. A policy comes before the Bindings of what it protects, and goes after them.
pub static AUTHORIZATION: Kind = Kind {
    type_url: REQUEST_AUTHORIZATION_TYPE,
    label: "requestAuthorizations",
    order: ORDER_RULES,
    removed_after: &[BINDING_TYPE],
    on_demand: false,
    parser: Parser {
        upsert: read_authorization,
        remove: remove_attached,
    },
};

/// Token rules. They come and go as policies do.
pub static AUTHENTICATION: Kind = Kind {
    type_url: AUTHENTICATION_TYPE,
    label: "requestAuthentications",
    order: ORDER_RULES,
    removed_after: &[BINDING_TYPE],
    on_demand: false,
    parser: Parser {
        upsert: read_authentication,
        remove: remove_attached,
    },
};

/// Gateways.
pub static GATEWAY: Kind = Kind {
    type_url: GATEWAY_TYPE,
    label: "gateways",
    order: ORDER_GATEWAYS,
    removed_after: &[],
    on_demand: false,
    parser: Parser {
        upsert: read_gateway,
        remove: |resources, kind, name| resources.remove(kind, name),
    },
};

/// Bindings. A Binding comes before the Address that names its Gateway, and goes after it.
pub static BINDING: Kind = Kind {
    type_url: BINDING_TYPE,
    label: "bindings",
    order: ORDER_BINDINGS,
    removed_after: &[ADDRESS_TYPE],
    on_demand: false,
    parser: Parser::of::<Binding>(),
};

/// The kinds of a waypoint: those of the mesh, and those of proxies that read requests.
pub fn waypoint() -> Kinds {
    Kinds::new([
        &resource_kinds::AUTHORIZATION,
        &AUTHORIZATION,
        &AUTHENTICATION,
        &GATEWAY,
        &BINDING,
        &resource_kinds::ADDRESS,
    ])
}

fn read_authorization(
    resources: &mut dyn Resources,
    kind: &'static Kind,
    name: &Strng,
    bytes: &Bytes,
) -> Result<(), Rejection> {
    let refused = |targets| resources.attach_unreadable(kind, name, targets);
    let read = Authorization::read(name, bytes, refused)?;
    let content = Content::Policy(read.policy.clone());
    resources.attach(kind, name, read.targets.clone(), content);
    resources.put(kind, name, Entry::new(read));
    Ok(())
}

fn read_authentication(
    resources: &mut dyn Resources,
    kind: &'static Kind,
    name: &Strng,
    bytes: &Bytes,
) -> Result<(), Rejection> {
    let refused = |targets| resources.attach_unreadable(kind, name, targets);
    let read = Authentication::read(name, bytes, refused)?;
    let content = Content::Tokens(read.places.clone());
    resources.attach(kind, name, read.targets.clone(), content);
    resources.put(kind, name, Entry::new(read));
    Ok(())
}

fn read_gateway(
    resources: &mut dyn Resources,
    kind: &'static Kind,
    name: &Strng,
    bytes: &Bytes,
) -> Result<(), Rejection> {
    let gateway = Gateway::parse(name, bytes.clone())?;
    resources.set_domains(&gateway.name, gateway.settings.trust_domains());
    resources.put(kind, name, Entry::new(gateway));
    Ok(())
}

fn remove_attached(resources: &mut dyn Resources, kind: &'static Kind, name: &str) {
    resources.remove(kind, name);
    resources.detach(kind, name);
}
