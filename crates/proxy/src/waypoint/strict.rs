//! PeerAuthentications of endpoints that speak no tunnel: one that demands mTLS refuses the plain text that they would be sent.

use std::net::{IpAddr, Ipv4Addr};

use lateen_config::{Snapshot, Workload};
use lateen_policy::{Applied, Connection, written};

use super::endpoint::Endpoint;
use super::view::View;

/// The policy that stands for every PeerAuthentication without exceptions for ports. The names are Istio's.
const STATIC: &str = "istio_converted_static_strict";

/// The prefix of the policy's name for a PeerAuthentication with such exceptions; the object's name follows.
const CONVERTED: &str = "converted_peer_authentication_";

/// The part of the uids of endpoints that are written into a ServiceEntry.
const INLINE: &str = "/ServiceEntry/";

/// The reason why an endpoint is not sent plain text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{workload} is outside of the mesh, so it would be sent plain text, and {rule} demands mTLS; label its pod istio.io/dataplane-mode=ambient, or have the PeerAuthentication admit plain text for it by mode PERMISSIVE"
)]
pub(super) struct PlainTextForbidden {
    /// The uid.
    workload: String,
    /// The PeerAuthentication, as far as its policy names it.
    rule: String,
}

/// The reason why an endpoint is not sent plain text, if there is one. A policy that is not known here may be one.
pub(super) fn forbidden(view: &View, endpoint: &Endpoint) -> Option<PlainTextForbidden> {
    let View { snapshot, own, .. } = view;
    forbidden_at(snapshot, &own.network, endpoint)
}

fn forbidden_at(
    snapshot: &Snapshot,
    network: &str,
    endpoint: &Endpoint,
) -> Option<PlainTextForbidden> {
    if endpoint.hop.tunnel.is_some() {
        return None;
    }
    // The address that the client dialled may be a pod's, too.
    let at = || snapshot.workload(network, endpoint.hop.address.ip());
    let workload = endpoint.workload.as_ref().or_else(at)?;
    if workload.authorization_policies.is_empty() || is_inline(workload) {
        return None;
    }
    let connection = Connection {
        peer: None,
        source_ip: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        destination: endpoint.hop.address,
    };
    let mut policies = snapshot.policies_for(workload);
    policies.find_map(|policy| {
        let (rule, refuses) = match policy {
            Applied::Policy(policy) => {
                let rule = rule(&policy.name.to_string())?;
                (rule, policy.matches(&connection))
            }
            Applied::Unknown(name) => (rule(name)?, true),
        };
        refuses.then(|| PlainTextForbidden {
            workload: workload.uid.to_string(),
            rule,
        })
    })
}

/// True for an endpoint that is written into a ServiceEntry. PeerAuthentications are about pods and WorkloadEntries.
fn is_inline(workload: &Workload) -> bool {
    workload.uid.as_str().contains(INLINE)
}

/// The PeerAuthentication that a policy stands for, in words; none for other policies.
fn rule(policy: &str) -> Option<String> {
    let policy = written(policy);
    let (namespace, name) = policy.split_once('/')?;
    if name == STATIC {
        return Some(format!(
            "a PeerAuthentication of the mesh, of its namespace or of its labels (policy {policy})"
        ));
    }
    let own = name.strip_prefix(CONVERTED)?;
    Some(format!("PeerAuthentication {namespace}/{own}"))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use lateen_config::Store;
    use lateen_config::next_hop::NextHop;
    use lateen_proto::security::string_match::MatchType;
    use lateen_proto::security::{Action, Authorization, StringMatch};
    use lateen_testkit::wds;

    use super::*;

    const PORT: u16 = 8080;

    /// The policy of a PeerAuthentication that demands mTLS on these ports, or on all if there are none.
    fn strict(namespace: &str, name: &str, ports: &[u32]) -> Authorization {
        let mut policy = wds::policy(name, Action::Deny, &[]);
        policy.namespace = namespace.to_owned();
        let only = &mut policy.rules[0].clauses[0].matches[0];
        only.not_principals = vec![StringMatch {
            match_type: Some(MatchType::Presence(())),
        }];
        only.destination_ports = ports.to_vec();
        policy
    }

    /// The refusal of an endpoint in plain text that carries these policies, while `known` are in force.
    fn said(uid: &str, carries: &[&str], known: &[Authorization]) -> Option<String> {
        let ip = Ipv4Addr::new(192, 0, 2, 1);
        let mut workload = wds::plain(wds::workload("app", "n1", ip.into()));
        workload.uid = uid.to_owned();
        workload.authorization_policies = carries.iter().map(|name| (*name).to_owned()).collect();
        let mut store = Store::new("", None);
        for policy in known {
            let name = format!("{}/{}", policy.namespace, policy.name);
            store.upsert_authorization(&name, policy.clone()).unwrap();
        }
        store.upsert(uid, wds::workload_resource(workload)).unwrap();
        let snapshot = store.snapshot();
        let workload = Arc::clone(snapshot.workload_by_uid(uid).unwrap());
        let target = SocketAddr::from((ip, PORT));
        let hop = NextHop::Plain {
            workload,
            service: None,
            target,
        };
        let endpoint = Endpoint::of(hop);
        forbidden_at(&snapshot, "", &endpoint).map(|why| why.to_string())
    }

    const POD: &str = "Kubernetes//Pod/default/app";

    #[test]
    fn a_strict_mode_forbids_plain_text_and_is_named_with_its_cure() {
        let name = "istio-system/istio_converted_static_strict";
        let text = said(POD, &[name], &[strict("istio-system", STATIC, &[])]).unwrap();
        for part in [POD, name, "istio.io/dataplane-mode=ambient", "PERMISSIVE"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn a_mode_of_ports_counts_for_its_ports_alone() {
        let own = "default/converted_peer_authentication_db";
        let of_port = |port| {
            let policy = strict("default", "converted_peer_authentication_db", &[port]);
            said(POD, &[own], &[policy])
        };
        let text = of_port(PORT.into()).unwrap();
        assert!(
            text.contains("PeerAuthentication default/db demands"),
            "{text}"
        );
        assert_eq!(of_port(9090), None);
    }

    #[test]
    fn a_policy_that_has_not_come_forbids_plain_text() {
        assert!(said(POD, &["default/converted_peer_authentication_db"], &[]).is_some());
    }

    #[test]
    fn other_policies_and_endpoints_of_entries_are_let_be() {
        let deny = wds::policy("deny", Action::Deny, &["x"]);
        assert_eq!(said(POD, &["default/deny"], &[deny]), None);
        assert_eq!(said(POD, &["default/unknown"], &[]), None);
        let entry = "Kubernetes/networking.istio.io/ServiceEntry/default/out/192.0.2.1";
        let name = "istio-system/istio_converted_static_strict";
        let policy = strict("istio-system", STATIC, &[]);
        assert_eq!(said(entry, &[name], &[policy]), None);
    }
}
