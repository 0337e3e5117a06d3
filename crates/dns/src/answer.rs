//! The mesh's answer to a question about a name.

use std::net::IpAddr;
use std::sync::Arc;

use hickory_proto::op::{Edns, Message, OpCode, ResponseCode};
use hickory_proto::rr::RecordType;
use lateen_config::{IpFamilies, Service, Snapshot};

use crate::names;
use crate::query::Query;

/// How long a client may keep an answer, in seconds.
pub const TTL: u32 = 30;
/// The longest datagram that this server reads, as it says in EDNS.
const PAYLOAD: u16 = 4096;

/// Who asks, and what of.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The mesh.
    pub snapshot: &'a Snapshot,
    /// The client's namespace: its own services come first, and it sees those of others only if they are public.
    pub namespace: &'a str,
    /// The client's network: addresses on others are of no use to it.
    pub network: &'a str,
    /// The namespace whose services come after the client's own and canonical ones, if any.
    pub preferred: Option<&'a str>,
    /// The cluster's domain, such as `cluster.local`, in lower case.
    pub domain: &'a str,
    /// Whether addresses of IPv6 may be handed out.
    pub ipv6: bool,
}

/// What becomes of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The mesh has the name, and this is the whole reply.
    Reply {
        /// It, no longer than the client can take.
        message: Vec<u8>,
        /// The addresses in it.
        addresses: usize,
    },
    /// A resolver must be asked.
    Forward {
        /// The mesh has the name, but is not asked for an address. A resolver that says it does not exist is wrong: many
        /// clients take that for all types at once.
        exists: bool,
    },
}

/// Answers a question if the mesh has the name. `shuffle` gets the addresses to put them into any order, so that clients
/// which take the first do not all take the same.
pub fn answer(query: &Query, view: &View<'_>, shuffle: impl FnOnce(&mut [IpAddr])) -> Answer {
    let Some(service) = query.host().and_then(|host| view.find(host)) else {
        return Answer::Forward { exists: false };
    };
    let wanted = match query.kind_of_record() {
        RecordType::A => IpAddr::is_ipv4,
        RecordType::AAAA => IpAddr::is_ipv6,
        _ => return Answer::Forward { exists: true },
    };
    let mut addresses = view.addresses(service);
    addresses.retain(|address| wanted(address) && (view.ipv6 || address.is_ipv4()));
    shuffle(&mut addresses);
    Answer::Reply {
        message: reply(query, &mut addresses),
        addresses: addresses.len(),
    }
}

impl View<'_> {
    /// The service that a client means by a name: exact names before wildcards, for each thing that it may be short for.
    /// Only whoever has a say in a name counts there: for one of the cluster's domain the namespace that it names, for any
    /// the client's own. Others' entries count last, for the very name that was asked, and if it can be no short name of the
    /// cluster: whoever may write a ServiceEntry must not have somebody else's name, nor what a search list makes of it.
    fn find(&self, host: &str) -> Option<&Arc<Service>> {
        let aliases = names::aliases(host, self.namespace, self.domain);
        let meant = |alias: &String| {
            self.covering(alias, &|service: &Service| self.has_a_say(service, alias))
        };
        aliases
            .iter()
            .find_map(meant)
            .or_else(|| self.of_strangers(host))
    }

    /// The service of a name, or of the closest wildcard that covers it.
    fn covering(&self, name: &str, counts: &dyn Fn(&Service) -> bool) -> Option<&Arc<Service>> {
        self.named(name, counts)
            .or_else(|| names::wildcards(name).find_map(|wildcard| self.named(&wildcard, counts)))
    }

    /// Whether a service's namespace has a say in a name. It does not matter whether it is a Service or an entry, which some
    /// control planes do not tell.
    fn has_a_say(&self, service: &Service, name: &str) -> bool {
        let own = *service.namespace == *self.namespace;
        if !names::is_within(name, self.domain) {
            return own;
        }
        // `*.local` is for names elsewhere, whoever declares it.
        let within = names::is_within(&service.hostname, self.domain);
        let of = names::namespace(&service.hostname, self.domain);
        within && (own || of == Some(&*service.namespace))
    }

    /// The service by which another namespace speaks for a name of the world outside.
    fn of_strangers(&self, host: &str) -> Option<&Arc<Service>> {
        if names::is_within(host, self.domain) || self.is_short(host) {
            return None;
        }
        // What is called an entry was compared with all Services that there are and were, by a control plane that keeps what
        // is short for one to its namespace. What is not called so may be for a name that the cluster's DNS alone knows.
        let in_doubt = self.may_be_short(host);
        self.covering(host, &|service: &Service| {
            // `*.shop` covers whatever service there is or will be in namespace shop.
            let of = service.hostname.strip_prefix("*.");
            let whole = of.filter(|of| !of.contains('.'));
            let covers = whole.is_some_and(|of| self.has_namespace(of));
            let told = service.entry_created.is_some();
            !covers && (told || !in_doubt)
        })
    }

    /// Whether a name is short for one of the cluster: `service`, what is below a service that the mesh knows of the client's
    /// namespace or of the one in it (pods of a headless Service), that itself, and whatever ends in `.svc` or `.pod`.
    fn is_short(&self, host: &str) -> bool {
        let mut labels = host.rsplit('.');
        let (last, service) = (labels.next().unwrap_or_default(), labels.next());
        let Some(service) = service.filter(|_| !matches!(last, "svc" | "pod")) else {
            return true;
        };
        self.has_service(last, self.namespace) || self.has_service(service, last)
    }

    /// Whether a name has the form `service.namespace` for a namespace of the mesh.
    fn may_be_short(&self, host: &str) -> bool {
        let parts = host.split_once('.');
        parts.is_some_and(|(_, last)| !last.contains('.') && self.has_namespace(last))
    }

    fn has_service(&self, name: &str, namespace: &str) -> bool {
        let host = format!("{name}.{namespace}.svc.{}", self.domain);
        let named = self.snapshot.services_by_host(&host);
        named.iter().any(|one| *one.namespace == *namespace)
    }

    /// Whether the mesh serves names of a namespace in the cluster's domain. Entries for names outside give it none.
    fn has_namespace(&self, namespace: &str) -> bool {
        let mut services = self.snapshot.services_of(namespace);
        *self.namespace == *namespace
            || services.any(|service| names::is_within(&service.hostname, self.domain))
    }

    /// The service of a hostname: the client's namespace's own, then the canonical one, then the preferred namespace's,
    /// then any.
    fn named(&self, hostname: &str, counts: &dyn Fn(&Service) -> bool) -> Option<&Arc<Service>> {
        let named = self.snapshot.services_by_host(hostname);
        let usable = || {
            named
                .iter()
                .filter(|service| self.has_addresses(service) && service.visible_to(self.namespace))
                .filter(|service| counts(service))
        };
        usable()
            .find(|service| *service.namespace == *self.namespace)
            .or_else(|| usable().find(|service| service.canonical))
            .or_else(|| {
                let preferred = self.preferred?;
                usable().find(|service| *service.namespace == *preferred)
            })
            .or_else(|| usable().next())
    }

    /// A service without virtual addresses is headless if it is the cluster's, and else one that only its own DNS knows.
    fn has_addresses(&self, service: &Service) -> bool {
        !service.addresses.is_empty()
            || service
                .hostname
                .strip_suffix(self.domain)
                .is_some_and(|rest| rest.ends_with(".svc."))
    }

    fn addresses(&self, service: &Service) -> Vec<IpAddr> {
        let family = |address: &IpAddr| {
            service
                .ip_families
                .is_none_or(|families: IpFamilies| families.accepts(*address))
        };
        if !service.addresses.is_empty() {
            return service
                .addresses
                .iter()
                .filter(|at| *at.network == *self.network)
                .map(|at| at.address)
                .filter(family)
                .collect();
        }
        let Some(endpoints) = self.snapshot.endpoints(&service.key) else {
            return Vec::new();
        };
        let mut addresses = Vec::new();
        for endpoint in endpoints.iter() {
            let workload = &endpoint.workload;
            if !service.takes(workload.status) || *workload.network != *self.network {
                continue;
            }
            // A pod's status may claim a Service's address, which no pod has.
            let claimed = |address: IpAddr| {
                workload.is_pod() && self.snapshot.is_cluster_ip(self.network, address)
            };
            // One of each family: a pod is one endpoint, however many addresses it has.
            for is_family in [IpAddr::is_ipv4, IpAddr::is_ipv6] {
                let mut own = workload
                    .addresses
                    .iter()
                    .filter(|address| is_family(address) && !claimed(**address));
                addresses.extend(own.find(|address| family(address)));
            }
        }
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }
}

/// The reply with as many addresses as fit; some are better than none for clients that never ask again over TCP.
fn reply(query: &Query, addresses: &mut Vec<IpAddr>) -> Vec<u8> {
    let request = &query.message;
    let mut message = Message::response(request.metadata.id, OpCode::Query);
    message.metadata.authoritative = true;
    message.metadata.recursion_desired = request.metadata.recursion_desired;
    message.metadata.recursion_available = true;
    message.metadata.checking_disabled = request.metadata.checking_disabled;
    // As it was asked, in the client's own letters: some look for them in the answer.
    message.queries.clone_from(&request.queries);
    if let Some(asked) = &request.edns {
        let mut edns = Edns::new();
        edns.set_max_payload(PAYLOAD);
        edns.set_dnssec_ok(asked.flags().dnssec_ok);
        message.edns = Some(edns);
        if asked.version() > 0 {
            message.metadata.response_code = ResponseCode::BADVERS;
            addresses.clear();
            return encode(&message);
        }
    }
    let room = query.limit().saturating_sub(encode(&message).len());
    // RFC 1035 §4.1.3: a pointer to the name, type, class, TTL and length, before the address.
    const RECORD: usize = 12;
    let fit = room
        / (RECORD
            + if addresses.iter().any(IpAddr::is_ipv6) {
                16
            } else {
                4
            });
    if addresses.len() > fit {
        addresses.truncate(fit);
        message.metadata.truncation = true;
    }
    let mut bytes = encode(&message);
    // By hand: hickory points to a name only so often, and then writes it out.
    let rest = bytes.split_off(query.question_end());
    for address in &*addresses {
        const POINTER_TO_QUESTION: [u8; 2] = [0xc0, 12];
        const INTERNET: [u8; 2] = [0, 1];
        bytes.extend_from_slice(&POINTER_TO_QUESTION);
        bytes.extend_from_slice(&u16::from(query.kind_of_record()).to_be_bytes());
        bytes.extend_from_slice(&INTERNET);
        bytes.extend_from_slice(&TTL.to_be_bytes());
        match address {
            IpAddr::V4(address) => {
                bytes.extend_from_slice(&[0, 4]);
                bytes.extend_from_slice(&address.octets());
            }
            IpAddr::V6(address) => {
                bytes.extend_from_slice(&[0, 16]);
                bytes.extend_from_slice(&address.octets());
            }
        }
    }
    // More than the count can say would not fit either.
    let count = u16::try_from(addresses.len()).unwrap_or(u16::MAX);
    bytes[6..8].copy_from_slice(&count.to_be_bytes());
    bytes.extend_from_slice(&rest);
    bytes
}

/// A message of ours always fits and has no part that cannot be written.
fn encode(message: &Message) -> Vec<u8> {
    message
        .to_vec()
        .expect("a message of addresses is encodable")
}
