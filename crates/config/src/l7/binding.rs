//! Bindings of services and workloads to Gateways.

use bytes::Bytes;
use lateen_proto::l7 as proto;
use lateen_types::{NamespacedName, Strng};
use serde::Serialize;

use super::message;
use crate::resource::Resource;
use crate::{Rejection, ServiceKey};

/// A destination that is to be reached through Gateways.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Binding {
    /// The destination.
    pub destination: Bound,
    /// The Gateways that take its traffic.
    pub parents: Vec<Parent>,
    /// Those of them that get no new connections.
    pub leaving: Vec<NamespacedName>,
}

/// The destination of a Binding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Bound {
    /// A service.
    Service(ServiceKey),
    /// The workload of this uid.
    Workload(Strng),
}

/// A Gateway whose proxies have a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Parent {
    /// Its name.
    pub gateway: NamespacedName,
    /// Namespace and service account of its proxies.
    pub identity: NamespacedName,
}

impl Parent {
    fn parse(wire: &proto::Parent) -> Result<Self, Rejection> {
        let name = |field: &str, text: &str| {
            text.parse()
                .map_err(|error| Rejection::Invalid(format!("parents: {field}: {error}")))
        };
        Ok(Self {
            gateway: name("gateway", &wire.gateway)?,
            identity: name("identity", &wire.identity)?,
        })
    }
}

impl Resource for Binding {
    fn parse(name: &str, bytes: Bytes) -> Result<Self, Rejection> {
        use proto::binding::Destination;
        let wire: proto::Binding = message::whole(&bytes, |_| {})?;
        let destination = match wire.destination {
            Some(Destination::Service(service)) => {
                if service != name {
                    return Err(Rejection::OtherName { inner: service });
                }
                Bound::Service(service.parse()?)
            }
            Some(Destination::Workload(uid)) => {
                if uid != name {
                    return Err(Rejection::OtherName { inner: uid });
                }
                Bound::Workload(uid.into())
            }
            None => {
                return Err(Rejection::Missing {
                    field: "destination",
                });
            }
        };
        let parents = wire.parents.iter().map(Parent::parse);
        let leaving = wire.leaving.iter().map(|name| {
            name.parse()
                .map_err(|error| Rejection::Invalid(format!("leaving: {error}")))
        });
        Ok(Self {
            destination,
            parents: parents.collect::<Result<_, _>>()?,
            leaving: leaving.collect::<Result<_, _>>()?,
        })
    }
}
