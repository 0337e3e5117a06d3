//! Policies of a document.

use ipnet::IpNet;
use lateen_proto::security as proto;
use lateen_proto::security::string_match::MatchType;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use yaml_serde::Value;

use super::address::bytes_of;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Policy {
    name: String,
    namespace: String,
    scope: Scope,
    action: Action,
    #[serde(default)]
    rules: Vec<Vec<Vec<Match>>>,
    #[serde(default)]
    dry_run: bool,
}

#[derive(Deserialize)]
enum Scope {
    Global,
    Namespace,
    WorkloadSelector,
}

#[derive(Deserialize)]
enum Action {
    Allow,
    Deny,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Match {
    namespaces: Vec<Text>,
    not_namespaces: Vec<Text>,
    service_accounts: Vec<Account>,
    not_service_accounts: Vec<Account>,
    principals: Vec<Text>,
    not_principals: Vec<Text>,
    source_ips: Vec<IpNet>,
    not_source_ips: Vec<IpNet>,
    destination_ips: Vec<IpNet>,
    not_destination_ips: Vec<IpNet>,
    destination_ports: Vec<u16>,
    not_destination_ports: Vec<u16>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Account {
    namespace: String,
    service_account: String,
}

/// A pattern: `!Exact text` as YAML tags it, or `Exact: text` as a dump has it; and the same of `Prefix`, `Suffix` and
/// `Presence`, which says nothing more.
struct Text(MatchType);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let shape = || {
            D::Error::custom(
                "a pattern is one of Exact, Prefix and Suffix with its text, or Presence",
            )
        };
        let (kind, text) = match Value::deserialize(deserializer)? {
            Value::Tagged(tagged) => (tagged.tag.to_string(), tagged.value),
            Value::Mapping(map) if map.len() == 1 => {
                let (kind, text) = map.into_iter().next().ok_or_else(shape)?;
                (kind.as_str().ok_or_else(shape)?.to_owned(), text)
            }
            Value::String(kind) => (kind, Value::Null),
            _ => return Err(shape()),
        };
        let text = text.as_str().map(str::to_owned);
        match (kind.trim_start_matches('!'), text) {
            ("Exact", Some(text)) => Ok(Self(MatchType::Exact(text))),
            ("Prefix", Some(text)) => Ok(Self(MatchType::Prefix(text))),
            ("Suffix", Some(text)) => Ok(Self(MatchType::Suffix(text))),
            ("Presence", None) => Ok(Self(MatchType::Presence(()))),
            _ => Err(shape()),
        }
    }
}

impl Policy {
    pub(super) fn named(self) -> (String, proto::Authorization) {
        let name = format!("{}/{}", self.namespace, self.name);
        let clause = |matches: Vec<Match>| proto::Clause {
            matches: matches.into_iter().map(Match::wire).collect(),
        };
        let rule = |clauses: Vec<Vec<Match>>| proto::Rule {
            clauses: clauses.into_iter().map(clause).collect(),
        };
        let wire = proto::Authorization {
            name: self.name,
            namespace: self.namespace,
            scope: match self.scope {
                Scope::Global => proto::Scope::Global,
                Scope::Namespace => proto::Scope::Namespace,
                Scope::WorkloadSelector => proto::Scope::WorkloadSelector,
            }
            .into(),
            action: match self.action {
                Action::Allow => proto::Action::Allow,
                Action::Deny => proto::Action::Deny,
            }
            .into(),
            rules: self.rules.into_iter().map(rule).collect(),
            dry_run: self.dry_run,
            extensions: Vec::new(),
        };
        (name, wire)
    }
}

impl Match {
    fn wire(self) -> proto::Match {
        proto::Match {
            namespaces: texts(self.namespaces),
            not_namespaces: texts(self.not_namespaces),
            service_accounts: accounts(self.service_accounts),
            not_service_accounts: accounts(self.not_service_accounts),
            principals: texts(self.principals),
            not_principals: texts(self.not_principals),
            source_ips: ranges(self.source_ips),
            not_source_ips: ranges(self.not_source_ips),
            destination_ips: ranges(self.destination_ips),
            not_destination_ips: ranges(self.not_destination_ips),
            destination_ports: ports(&self.destination_ports),
            not_destination_ports: ports(&self.not_destination_ports),
            extensions: Vec::new(),
        }
    }
}

fn texts(patterns: Vec<Text>) -> Vec<proto::StringMatch> {
    patterns
        .into_iter()
        .map(|text| proto::StringMatch {
            match_type: Some(text.0),
        })
        .collect()
}

fn accounts(accounts: Vec<Account>) -> Vec<proto::ServiceAccountMatch> {
    accounts
        .into_iter()
        .map(|account| proto::ServiceAccountMatch {
            namespace: account.namespace,
            service_account: account.service_account,
        })
        .collect()
}

fn ranges(ranges: Vec<IpNet>) -> Vec<proto::Address> {
    ranges
        .into_iter()
        .map(|range| proto::Address {
            address: bytes_of(range.addr()),
            length: range.prefix_len().into(),
        })
        .collect()
}

fn ports(ports: &[u16]) -> Vec<u32> {
    ports.iter().copied().map(u32::from).collect()
}
