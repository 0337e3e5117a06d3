//! Match of a policy against a connection.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use lateen_types::{Identity, VerifiedPeer};

use crate::policy::{Match, Policy, ServiceAccount, StringMatch};

/// What is known of a connection when it asks to be served.
#[derive(Debug, Clone, Copy)]
pub struct Connection<'a> {
    /// Who the peer proved to be; `None` for plaintext.
    pub peer: Option<&'a VerifiedPeer>,
    /// Where the connection comes from.
    pub source_ip: IpAddr,
    /// The workload's address and the port that its application listens on (not the tunnel's).
    pub destination: SocketAddr,
}

/// A connection prepared for matching: its principal is spelled out once, for all policies.
pub(crate) struct Subject<'a> {
    identity: Option<&'a Identity>,
    principal: Option<String>,
    source_ip: IpAddr,
    destination_ip: IpAddr,
    destination_port: u16,
}

impl<'a> Subject<'a> {
    pub(crate) fn of(connection: &Connection<'a>) -> Self {
        let identity = connection.peer.map(VerifiedPeer::identity);
        Self {
            identity,
            principal: identity.map(Identity::principal),
            // An IPv4 address seen through an IPv6 socket is still that IPv4 address.
            source_ip: connection.source_ip.to_canonical(),
            destination_ip: connection.destination.ip().to_canonical(),
            destination_port: connection.destination.port(),
        }
    }

    fn namespace(&self) -> &str {
        self.identity.map_or("", |identity| identity.namespace())
    }
}

impl Policy {
    /// Whether any rule matches, leaving scope, action and dry run aside.
    pub fn matches(&self, connection: &Connection<'_>) -> bool {
        self.matches_subject(&Subject::of(connection))
    }

    pub(crate) fn matches_subject(&self, subject: &Subject<'_>) -> bool {
        self.rules.iter().any(|clauses| {
            clauses
                .iter()
                .all(|matches| matches.is_empty() || matches.iter().any(|m| m.matches(subject)))
        })
    }
}

impl Match {
    /// Whether it gives no attribute at all.
    pub fn is_empty(&self) -> bool {
        let Self {
            namespaces,
            not_namespaces,
            service_accounts,
            not_service_accounts,
            principals,
            not_principals,
            source_ips,
            not_source_ips,
            destination_ips,
            not_destination_ips,
            destination_ports,
            not_destination_ports,
        } = self;
        namespaces.is_empty()
            && not_namespaces.is_empty()
            && service_accounts.is_empty()
            && not_service_accounts.is_empty()
            && principals.is_empty()
            && not_principals.is_empty()
            && source_ips.is_empty()
            && not_source_ips.is_empty()
            && destination_ips.is_empty()
            && not_destination_ips.is_empty()
            && destination_ports.is_empty()
            && not_destination_ports.is_empty()
    }

    fn matches(&self, subject: &Subject<'_>) -> bool {
        // Ports and addresses first: they are cheap and refute most matches.
        !self.is_empty()
            && attribute(
                &self.destination_ports,
                &self.not_destination_ports,
                |port| *port == subject.destination_port,
            )
            && attribute(&self.source_ips, &self.not_source_ips, |net| {
                holds(net, subject.source_ip)
            })
            && attribute(&self.destination_ips, &self.not_destination_ips, |net| {
                holds(net, subject.destination_ip)
            })
            && attribute(
                &self.service_accounts,
                &self.not_service_accounts,
                |account| account.names(subject.identity),
            )
            && attribute(&self.principals, &self.not_principals, |pattern| {
                subject
                    .principal
                    .as_deref()
                    .is_some_and(|principal| pattern.matches(principal))
            })
            && attribute(&self.namespaces, &self.not_namespaces, |pattern| {
                pattern.matches(subject.namespace())
            })
    }
}

/// One attribute: some positive value if any is given, and no negative one.
fn attribute<T>(positive: &[T], negative: &[T], is: impl Fn(&T) -> bool) -> bool {
    (positive.is_empty() || positive.iter().any(&is)) && !negative.iter().any(&is)
}

fn holds(net: &IpNet, ip: IpAddr) -> bool {
    net.contains(&ip)
}

impl StringMatch {
    /// Whether the pattern covers the text.
    pub fn matches(&self, text: &str) -> bool {
        self.matches_bytes(text.as_bytes())
    }

    /// Whether the pattern covers a text that need not be UTF-8.
    #[inline]
    pub fn matches_bytes(&self, text: &[u8]) -> bool {
        match self {
            StringMatch::Exact(whole) => whole.as_bytes() == text,
            StringMatch::Prefix(prefix) => text.starts_with(prefix.as_bytes()),
            StringMatch::Suffix(suffix) => text.ends_with(suffix.as_bytes()),
            StringMatch::Presence => !text.is_empty(),
        }
    }
}

impl ServiceAccount {
    fn names(&self, identity: Option<&Identity>) -> bool {
        identity.is_some_and(|id| {
            *id.namespace() == self.namespace && *id.service_account() == self.name
        })
    }
}
