//! Parser of authorization policies from the wire. It drops no value silently: a dropped value could turn "from these
//! addresses" into "from anywhere".

use ipnet::IpNet;
use lateen_policy::{Action, Match, Policy, Rule, Scope, ServiceAccount, StringMatch};
use lateen_proto::security as proto;
use lateen_proto::security::string_match::MatchType;
use lateen_types::NamespacedName;

use crate::{Rejection, wire};

pub(crate) fn parse(wire: proto::Authorization) -> Result<Policy, Rejection> {
    if !wire.extensions.is_empty() {
        return Err(Rejection::UnknownContent);
    }
    let scope = match wire::known("scope", wire.scope)? {
        proto::Scope::Global => Scope::Global,
        proto::Scope::Namespace => Scope::Namespace,
        proto::Scope::WorkloadSelector => Scope::WorkloadSelector,
    };
    let action = match wire::known("action", wire.action)? {
        proto::Action::Allow => Action::Allow,
        proto::Action::Deny => Action::Deny,
    };
    Ok(Policy {
        scope,
        action,
        rules: wire.rules.iter().map(rule).collect::<Result<_, _>>()?,
        dry_run: wire.dry_run,
        name: NamespacedName::new(wire.namespace, wire.name),
    })
}

fn rule(wire: &proto::Rule) -> Result<Rule, Rejection> {
    wire.clauses
        .iter()
        .map(|clause| clause.matches.iter().map(one_match).collect())
        .collect()
}

fn one_match(wire: &proto::Match) -> Result<Match, Rejection> {
    if !wire.extensions.is_empty() {
        return Err(Rejection::UnknownContent);
    }
    Ok(Match {
        namespaces: patterns("namespaces", &wire.namespaces)?,
        not_namespaces: patterns("not_namespaces", &wire.not_namespaces)?,
        service_accounts: accounts(&wire.service_accounts),
        not_service_accounts: accounts(&wire.not_service_accounts),
        principals: patterns("principals", &wire.principals)?,
        not_principals: patterns("not_principals", &wire.not_principals)?,
        source_ips: ranges("source_ips", &wire.source_ips)?,
        not_source_ips: ranges("not_source_ips", &wire.not_source_ips)?,
        destination_ips: ranges("destination_ips", &wire.destination_ips)?,
        not_destination_ips: ranges("not_destination_ips", &wire.not_destination_ips)?,
        destination_ports: ports("destination_ports", &wire.destination_ports)?,
        not_destination_ports: ports("not_destination_ports", &wire.not_destination_ports)?,
    })
}

fn patterns(
    field: &'static str,
    wire: &[proto::StringMatch],
) -> Result<Vec<StringMatch>, Rejection> {
    wire.iter()
        .map(|pattern| {
            match pattern
                .match_type
                .as_ref()
                .ok_or(Rejection::Missing { field })?
            {
                MatchType::Exact(text) => Ok(StringMatch::Exact(text.as_str().into())),
                MatchType::Prefix(text) => Ok(StringMatch::Prefix(text.as_str().into())),
                MatchType::Suffix(text) => Ok(StringMatch::Suffix(text.as_str().into())),
                MatchType::Presence(()) => Ok(StringMatch::Presence),
            }
        })
        .collect()
}

fn accounts(wire: &[proto::ServiceAccountMatch]) -> Vec<ServiceAccount> {
    wire.iter()
        .map(|account| ServiceAccount {
            namespace: account.namespace.as_str().into(),
            name: account.service_account.as_str().into(),
        })
        .collect()
}

fn ranges(field: &'static str, wire: &[proto::Address]) -> Result<Vec<IpNet>, Rejection> {
    wire.iter()
        .map(|range| wire::range(field, &range.address, range.length))
        .collect()
}

fn ports(field: &'static str, wire: &[u32]) -> Result<Vec<u16>, Rejection> {
    wire.iter()
        .map(|port| wire::port_or_zero(field, *port))
        .collect()
}
