//! The kinds of resources that the control plane sends to proxies. A further kind needs a declaration here.

use bytes::Bytes;
use lateen_proto::{ADDRESS_TYPE, AUTHORIZATION_TYPE, security, workload};
use lateen_types::Strng;
use prost::Message;

use crate::kind::{Kind, Parser, Resources};
use crate::{Kinds, Rejection};

/// The orders of the kinds, with space between them.
const ORDER_POLICIES: u16 = 100;
const ORDER_ADDRESSES: u16 = 200;

/// Authorization policies. A policy comes before the Addresses that name it. It goes only after the Addresses that named it
/// have changed.
pub static AUTHORIZATION: Kind = Kind {
    type_url: AUTHORIZATION_TYPE,
    label: "Authorization",
    order: ORDER_POLICIES,
    removed_after: &[ADDRESS_TYPE],
    on_demand: false,
    parser: Parser {
        upsert: read_authorization,
        remove: |resources, _, name| resources.remove_authorization(name),
    },
};

/// Workloads and services.
pub static ADDRESS: Kind = Kind {
    type_url: ADDRESS_TYPE,
    label: "Address",
    order: ORDER_ADDRESSES,
    removed_after: &[],
    on_demand: true,
    parser: Parser {
        upsert: read_address,
        remove: |resources, _, name| resources.remove_address(name),
    },
};

/// The kinds of the mesh.
pub fn mesh() -> Kinds {
    Kinds::new([&AUTHORIZATION, &ADDRESS])
}

/// Reads an encoded Address into the store.
fn read_address(
    resources: &mut dyn Resources,
    _: &'static Kind,
    name: &Strng,
    bytes: &Bytes,
) -> Result<(), Rejection> {
    resources.put_address(name, workload::Address::decode(bytes.clone())?)
}

/// Reads an encoded Authorization into the store.
fn read_authorization(
    resources: &mut dyn Resources,
    _: &'static Kind,
    name: &Strng,
    bytes: &Bytes,
) -> Result<(), Rejection> {
    match security::Authorization::decode(bytes.clone()) {
        // Decoding drops fields that it does not know. Every encoder in use writes the same bytes for the rest, at least
        // as many.
        Ok(authorization) if authorization.encoded_len() < bytes.len() => {
            let scope = security::Scope::try_from(authorization.scope).ok();
            resources.fail_closed(name, scope);
            Err(Rejection::UnknownContent)
        }
        Ok(authorization) => resources.put_authorization(name, authorization),
        Err(error) => {
            resources.fail_closed(name, None);
            Err(error.into())
        }
    }
}
