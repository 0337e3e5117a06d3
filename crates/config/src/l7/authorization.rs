//! Policies of requests from the wire.

use std::sync::Arc;

use bytes::Bytes;
use lateen_policy::request::{
    OperationMatch, RequestAction, RequestPolicy, RequestRule, SourceMatch,
};
use lateen_proto::l7 as proto;
use serde::Serialize;

use super::{conditions, message, target, values};
use crate::attached::Target;
use crate::resource::Resource;
use crate::{Rejection, wire};

/// A policy of requests and what it is attached to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Authorization {
    /// The policy covers requests for any of them.
    pub targets: Vec<Target>,
    /// The policy.
    #[serde(flatten)]
    pub policy: Arc<RequestPolicy>,
}

impl Authorization {
    /// Reads the resource of this xDS name. Refused, as far as its targets can be read they are given to `refused`.
    pub(super) fn read(
        name: &str,
        bytes: &Bytes,
        refused: impl FnOnce(Option<Vec<Target>>),
    ) -> Result<Self, Rejection> {
        target::read_attached(
            bytes,
            |wire: &proto::Authorization| &wire.targets,
            |wire| parse(name, wire),
            refused,
        )
    }
}

impl Resource for Authorization {
    fn parse(name: &str, bytes: Bytes) -> Result<Self, Rejection> {
        Self::read(name, &bytes, |_| {})
    }
}

fn parse(name: &str, wire: &proto::Authorization) -> Result<Authorization, Rejection> {
    let action = match wire::known("action", wire.action)? {
        proto::Action::Allow => RequestAction::Allow,
        proto::Action::Deny => RequestAction::Deny,
        proto::Action::Audit => RequestAction::Audit,
        proto::Action::Custom => RequestAction::Custom,
    };
    Ok(Authorization {
        targets: target::parse_all(&wire.targets)?,
        policy: Arc::new(RequestPolicy {
            name: message::named(name, &wire.namespace, &wire.name)?,
            action,
            dry_run: wire.dry_run,
            provider: wire.provider.as_str().into(),
            rules: wire.rules.iter().map(rule).collect::<Result<_, _>>()?,
        }),
    })
}

fn rule(wire: &proto::Rule) -> Result<RequestRule, Rejection> {
    Ok(RequestRule {
        from: wire.from.iter().map(source).collect::<Result<_, _>>()?,
        to: wire.to.iter().map(operation).collect::<Result<_, _>>()?,
        when: wire
            .when
            .iter()
            .map(conditions::parse)
            .collect::<Result<_, _>>()?,
    })
}

fn source(wire: &proto::Source) -> Result<SourceMatch, Rejection> {
    use values::{account, block, both, text};
    Ok(SourceMatch {
        principals: both("principals", &wire.principals, &wire.not_principals, text)?,
        request_principals: both(
            "request_principals",
            &wire.request_principals,
            &wire.not_request_principals,
            text,
        )?,
        namespaces: both("namespaces", &wire.namespaces, &wire.not_namespaces, text)?,
        service_accounts: both(
            "service_accounts",
            &wire.service_accounts,
            &wire.not_service_accounts,
            account,
        )?,
        trust_domains: both(
            "trust_domains",
            &wire.trust_domains,
            &wire.not_trust_domains,
            text,
        )?,
        ip_blocks: both("ip_blocks", &wire.ip_blocks, &wire.not_ip_blocks, block)?,
        remote_ip_blocks: both(
            "remote_ip_blocks",
            &wire.remote_ip_blocks,
            &wire.not_remote_ip_blocks,
            block,
        )?,
    })
}

fn operation(wire: &proto::Operation) -> Result<OperationMatch, Rejection> {
    use values::{both, path, port, text};
    Ok(OperationMatch {
        hosts: both("hosts", &wire.hosts, &wire.not_hosts, text)?,
        ports: both("ports", &wire.ports, &wire.not_ports, port)?,
        methods: both("methods", &wire.methods, &wire.not_methods, text)?,
        paths: both("paths", &wire.paths, &wire.not_paths, path)?,
    })
}
