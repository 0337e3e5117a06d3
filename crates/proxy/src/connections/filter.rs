//! Which connections somebody wants to see.

use lateen_admin::parameters;

use super::line::{End, Line};

/// All of its parts must fit; one that is absent fits everything.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Filter {
    pub(super) follow: bool,
    namespace: Option<String>,
    /// A name, or the beginning of one followed by `*`.
    pod: Option<String>,
    peer: Option<String>,
    service: Option<String>,
    direction: Option<String>,
    only: Option<Only>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Only {
    Denied,
    Failed,
}

impl Filter {
    /// From a query. A filter that was misspelt must not look like one that finds nothing.
    pub(super) fn parse(query: &str) -> Result<Self, String> {
        let mut filter = Self::default();
        for (name, value) in parameters(query) {
            match (name.as_str(), value.as_str()) {
                ("follow", "" | "true") => filter.follow = true,
                ("follow", "false") => filter.follow = false,
                ("only", "denied") => filter.only = Some(Only::Denied),
                ("only", "failed") => filter.only = Some(Only::Failed),
                ("direction", "inbound" | "outbound") => filter.direction = Some(value),
                ("follow" | "only" | "direction", value) => {
                    return Err(format!(
                        "{name}={value}: use follow=true, only=denied or failed, direction=inbound or outbound"
                    ));
                }
                (_, "") => return Err(format!("{name}: give it a value")),
                ("namespace", _) => filter.namespace = Some(value),
                ("pod", _) => filter.pod = Some(value),
                ("peer", _) => filter.peer = Some(value),
                ("service", _) => filter.service = Some(value),
                _ => {
                    return Err(format!(
                        "{name}: no such parameter; use follow, namespace, pod, peer, service, direction and only"
                    ));
                }
            }
        }
        Ok(filter)
    }

    pub(super) fn takes(&self, line: &Line) -> bool {
        let ends = [&line.source, &line.destination];
        let either = |fits: &dyn Fn(&End) -> bool| ends.into_iter().any(fits);
        let in_namespace =
            |namespace: &String| either(&|end| end.namespace.as_deref() == Some(namespace));
        let of_pod = |pod: &String| either(&|end| fits_pod(end, self.namespace.as_deref(), pod));
        let with_peer = |peer: &String| either(&|end| fits_peer(end, peer));
        let to_service = |wanted: &String| {
            let hostname = line.service.as_deref();
            hostname.is_some_and(|hostname| {
                hostname == wanted
                    || hostname
                        .strip_prefix(wanted.as_str())
                        .is_some_and(|rest| rest.starts_with('.'))
            })
        };
        self.namespace.as_ref().is_none_or(in_namespace)
            && self.pod.as_ref().is_none_or(of_pod)
            && self.peer.as_ref().is_none_or(with_peer)
            && self.service.as_ref().is_none_or(to_service)
            && self
                .direction
                .as_ref()
                .is_none_or(|way| way == line.direction)
            && match self.only {
                None => true,
                Some(Only::Denied) => line.denied(),
                Some(Only::Failed) => line.error.is_some() && !line.retried,
            }
    }
}

fn fits_pod(end: &End, namespace: Option<&str>, pod: &str) -> bool {
    if namespace.is_some() && end.namespace.as_deref() != namespace {
        return false;
    }
    end.workload
        .as_deref()
        .is_some_and(|name| match pod.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == pod,
        })
}

/// By name, by identity, or by identity without its scheme.
fn fits_peer(end: &End, peer: &str) -> bool {
    end.workload.as_deref() == Some(peer)
        || end
            .identity
            .as_deref()
            .is_some_and(|uri| uri == peer || uri.strip_prefix("spiffe://") == Some(peer))
}

#[cfg(test)]
mod tests {
    use super::super::Passed;
    use super::*;

    fn end(namespace: &str, name: &str) -> End {
        End {
            address: None,
            workload: Some(name.into()),
            namespace: Some(namespace.into()),
            identity: Some(format!("spiffe://cluster.local/ns/{namespace}/sa/{name}")),
        }
    }

    fn line(flags: Option<&'static str>) -> Line {
        Line {
            event: None,
            id: None,
            pair: None,
            direction: "inbound",
            source: end("shop", "web-1"),
            destination: end("data", "store-7"),
            service: Some("store.data.svc.cluster.local".into()),
            protocol: None,
            requests: None,
            wanted: None,
            tunnelled: true,
            tunnel: None,
            allowed_by: None,
            denied: None,
            denied_by_peer: false,
            retried: false,
            would_deny: None,
            state: "open",
            seconds: 0.0,
            bytes: Passed::default(),
            flags,
            error: flags.map(Into::into),
        }
    }

    #[test]
    fn each_part_chooses() {
        for (query, taken) in [
            ("", true),
            ("namespace=shop", true),
            ("namespace=data", true),
            ("namespace=other", false),
            ("pod=web-1", true),
            ("pod=web", false),
            ("pod=web-*", true),
            ("pod=web-1&namespace=data", false),
            ("peer=store-7", true),
            ("peer=spiffe://cluster.local/ns/shop/sa/web-1", true),
            ("peer=cluster.local/ns/shop/sa/web-1", true),
            ("peer=web", false),
            ("service=store", true),
            ("service=store.data", true),
            ("service=store.data.svc.cluster.local", true),
            ("service=sto", false),
            ("direction=inbound&service=store", true),
            ("direction=outbound", false),
            ("only=denied", true),
            ("only=failed", true),
        ] {
            let filter = Filter::parse(query).unwrap();
            assert_eq!(filter.takes(&line(Some("DENY"))), taken, "{query}");
        }
        let denied = Filter::parse("only=denied").unwrap();
        assert!(!denied.takes(&line(Some("CONNECT"))) && !denied.takes(&line(None)));
        let mut by_peer = line(Some("CONNECT"));
        by_peer.denied_by_peer = true;
        assert!(denied.takes(&by_peer), "the server's proxy denied it");
        let failed = Filter::parse("only=failed").unwrap();
        assert!(failed.takes(&line(Some("CONNECT"))) && !failed.takes(&line(None)));
        let mut attempt = line(Some("CONNECT"));
        attempt.retried = true;
        assert!(!failed.takes(&attempt), "its connection went elsewhere");
    }

    #[test]
    fn what_is_misspelt_is_refused() {
        for query in [
            "only=allowed",
            "name=x",
            "direction=in",
            "pod=",
            "pod",
            "follow=2",
        ] {
            assert!(Filter::parse(query).is_err(), "{query}");
        }
        assert!(Filter::parse("follow&pod=a").unwrap().follow);
    }
}
