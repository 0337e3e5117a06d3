//! Declarations of the kinds of wire resources. The store, the xds client, local documents and readiness know a kind by its
//! declaration alone.

use std::cmp::Ordering;
use std::fmt;

use bytes::Bytes;
use lateen_policy::request::TrustDomains;
use lateen_types::{NamespacedName, Strng};

use lateen_proto::{security, workload};

use crate::Rejection;
use crate::attached::{Content, Target};
use crate::resource::{Entry, Resource};

/// The declaration of one kind of wire resource.
pub struct Kind {
    /// The full URL by which the kind is subscribed.
    pub type_url: &'static str,
    /// The kind's name in the log, and its key in the dump.
    pub label: &'static str,
    /// The kind's rank. Kinds of a lower order are subscribed first, so that their resources are in force before others name them.
    pub order: u16,
    /// The type URLs of the kinds whose resources may name resources of this one; they have a higher order. A removal is
    /// applied after the changes of these kinds. Over xDS the control plane keeps this order. Empty: a removal is applied
    /// with the changes of its kind.
    pub removed_after: &'static [&'static str],
    /// Whether resources are asked for by name where the control plane is asked on demand. At most one kind is.
    pub on_demand: bool,
    /// What the store does with the kind's resources.
    pub parser: Parser,
}

/// The way from a kind's bytes into the store and out of it.
#[derive(Debug, Clone, Copy)]
pub struct Parser {
    pub(crate) upsert: Upsert,
    pub(crate) remove: Remove,
}

/// Parses a resource and puts it into the table. Refused, the version before stays.
pub(crate) type Upsert =
    fn(&mut dyn Resources, &'static Kind, &Strng, &Bytes) -> Result<(), Rejection>;

/// Removes the resource of a name.
pub(crate) type Remove = fn(&mut dyn Resources, &'static Kind, &str);

/// The resources that parsers change. Workloads, services and policies have indices of their own; a resource of any other kind
/// is kept as its parser made it.
pub(crate) trait Resources {
    /// Puts a workload or a service. Refused, the version before stays.
    fn put_address(&mut self, name: &Strng, address: workload::Address) -> Result<(), Rejection>;

    /// Removes a workload or a service.
    fn remove_address(&mut self, name: &str);

    /// Puts a policy. Refused, the version before stays; without one, what the policy covers is refused.
    fn put_authorization(
        &mut self,
        name: &str,
        policy: security::Authorization,
    ) -> Result<(), Rejection>;

    /// Makes whatever an unreadable policy covers treat it as unknown, unless an earlier version is there. Without a scope, the
    /// policy covers its namespace.
    fn fail_closed(&mut self, name: &str, scope: Option<security::Scope>);

    /// Removes a policy.
    fn remove_authorization(&mut self, name: &str);

    /// Puts a resource of a kind without an index.
    fn put(&mut self, kind: &'static Kind, name: &Strng, entry: Entry);

    /// Removes a resource of a kind without an index.
    fn remove(&mut self, kind: &'static Kind, name: &str);

    /// Attaches the content of a resource to its targets.
    fn attach(&mut self, kind: &'static Kind, name: &Strng, targets: Vec<Target>, content: Content);

    /// Makes an unreadable resource refuse the requests for its targets, unless an earlier version is there. Without targets,
    /// it refuses all requests.
    fn attach_unreadable(
        &mut self,
        kind: &'static Kind,
        name: &Strng,
        targets: Option<Vec<Target>>,
    );

    /// Removes what a resource attached.
    fn detach(&mut self, kind: &'static Kind, name: &str);

    /// Takes the trust domains of a Gateway's mesh.
    fn set_domains(&mut self, gateway: &NamespacedName, domains: TrustDomains);
}

impl Parser {
    /// Parses resources into `T`s, which [`Snapshot::resource`](crate::Snapshot::resource) finds by kind and name.
    pub const fn of<T: Resource>() -> Self {
        Self {
            upsert: parse_and_put::<T>,
            remove: |resources, kind, name| resources.remove(kind, name),
        }
    }
}

fn parse_and_put<T: Resource>(
    resources: &mut dyn Resources,
    kind: &'static Kind,
    name: &Strng,
    bytes: &Bytes,
) -> Result<(), Rejection> {
    let resource = T::parse(name, bytes.clone())?;
    resources.put(kind, name, Entry::new(resource));
    Ok(())
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label)
    }
}

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Kind {}

impl PartialOrd for Kind {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// By order, then by type URL.
impl Ord for Kind {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.order, self.type_url).cmp(&(other.order, other.type_url))
    }
}
