//! The hostnames of the mesh that a client may mean by a name.

use hickory_proto::rr::Name;

/// A name as services have it: in lower case, without the dot at its end. `None` if no host can have it.
pub(crate) fn host(name: &Name) -> Option<String> {
    let mut host = String::with_capacity(name.len());
    for label in name.iter() {
        if !host.is_empty() {
            host.push('.');
        }
        for &byte in label {
            if !byte.is_ascii_graphic() || byte == b'.' {
                return None;
            }
            host.push(char::from(byte.to_ascii_lowercase()));
        }
    }
    (!host.is_empty()).then_some(host)
}

/// The hostnames that a client of `namespace` may mean by `host`, the likeliest first, each once: the name itself, what
/// Kubernetes would make of it, and the same of what is left without one of the client's search domains.
pub(crate) fn aliases(host: &str, namespace: &str, domain: &str) -> Vec<String> {
    let mut aliases = Vec::new();
    let mut add = |alias: String| {
        if !aliases.contains(&alias) {
            aliases.push(alias);
        }
    };
    add(host.to_owned());
    expand(host, namespace, domain, &mut add);
    // The search list of every pod with the default DNS policy.
    let search = [
        format!(".{namespace}.svc.{domain}"),
        format!(".svc.{domain}"),
        format!(".{domain}"),
    ];
    for suffix in &search {
        if let Some(stripped) = host.strip_suffix(suffix.as_str()) {
            add(stripped.to_owned());
            expand(stripped, namespace, domain, &mut add);
        }
    }
    aliases
}

/// What a name is short for, by the number of its labels: `service`, `service.namespace`, `service.namespace.svc`, or
/// the same of a pod with a subdomain, which has one label more.
fn expand(host: &str, namespace: &str, domain: &str, add: &mut impl FnMut(String)) {
    let is_svc = host.ends_with(".svc");
    match host.split('.').count() {
        1 => add(format!("{host}.{namespace}.svc.{domain}")),
        2 => {
            add(format!("{host}.svc.{domain}"));
            add(format!("{host}.{namespace}.svc.{domain}"));
        }
        3 => {
            if is_svc {
                add(format!("{host}.{domain}"));
            }
            add(format!("{host}.svc.{domain}"));
        }
        4 if is_svc => add(format!("{host}.{domain}")),
        _ => {}
    }
}

/// The wildcard hostnames that cover a host, the closest first: `*.example.com`, `*.com`.
pub(crate) fn wildcards(host: &str) -> impl Iterator<Item = String> {
    host.match_indices('.')
        .map(|(dot, _)| format!("*{}", &host[dot..]))
}

/// Whether a name, or what a wildcard covers, is the domain or within it.
pub(crate) fn is_within(name: &str, domain: &str) -> bool {
    name.strip_suffix(domain)
        .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// The namespace that a name of the cluster's domain belongs to: `shop` for `web.shop.svc.DOMAIN` and what is below it.
pub(crate) fn namespace<'a>(name: &'a str, domain: &str) -> Option<&'a str> {
    let rest = name.strip_suffix(domain)?.strip_suffix(".svc.")?;
    let (_, namespace) = rest.rsplit_once('.')?;
    Some(namespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_may_mean() {
        let table: [(&str, &[&str]); 9] = [
            ("web", &["web", "web.shop.svc.mesh.local"]),
            (
                "web.other",
                &[
                    "web.other",
                    "web.other.svc.mesh.local",
                    "web.other.shop.svc.mesh.local",
                ],
            ),
            (
                "web.other.svc",
                &[
                    "web.other.svc",
                    "web.other.svc.mesh.local",
                    "web.other.svc.svc.mesh.local",
                ],
            ),
            (
                "pod.web.other.svc",
                &["pod.web.other.svc", "pod.web.other.svc.mesh.local"],
            ),
            (
                "web.other.svc.mesh.local",
                &[
                    "web.other.svc.mesh.local",
                    "web.other",
                    "web.other.shop.svc.mesh.local",
                    "web.other.svc",
                    "web.other.svc.svc.mesh.local",
                ],
            ),
            (
                "web.shop.svc.mesh.local",
                &[
                    "web.shop.svc.mesh.local",
                    "web",
                    "web.shop",
                    "web.shop.shop.svc.mesh.local",
                    "web.shop.svc",
                    "web.shop.svc.svc.mesh.local",
                ],
            ),
            (
                "example.com.shop.svc.mesh.local",
                &[
                    "example.com.shop.svc.mesh.local",
                    "example.com",
                    "example.com.svc.mesh.local",
                    "example.com.shop",
                    "example.com.shop.svc",
                ],
            ),
            (
                "mesh.local",
                &[
                    "mesh.local",
                    "mesh.local.svc.mesh.local",
                    "mesh.local.shop.svc.mesh.local",
                ],
            ),
            ("a.b.c.d.e", &["a.b.c.d.e"]),
        ];
        for (host, expected) in table {
            assert_eq!(aliases(host, "shop", "mesh.local"), expected, "{host}");
        }
    }

    #[test]
    fn whose_a_name_is() {
        let table = [
            ("web.shop.svc.mesh.local", true, Some("shop")),
            ("db-0.db.shop.svc.mesh.local", true, Some("shop")),
            ("*.shop.svc.mesh.local", true, Some("shop")),
            ("shop.svc.mesh.local", true, None),
            ("*.svc.mesh.local", true, None),
            ("*.mesh.local", true, None),
            ("10-0-0-1.shop.pod.mesh.local", true, None),
            ("mesh.local", true, None),
            ("*.local", false, None),
            ("web.shop.svc.othermesh.local", false, None),
            ("web.shop.svc", false, None),
        ];
        for (name, within, of) in table {
            assert_eq!(is_within(name, "mesh.local"), within, "{name}");
            assert_eq!(namespace(name, "mesh.local"), of, "{name}");
        }
    }

    #[test]
    fn wildcards_stop_before_the_root() {
        let all: Vec<_> = wildcards("a.b.com").collect();
        assert_eq!(all, ["*.b.com", "*.com"]);
        assert_eq!(wildcards("com").count(), 0);
    }
}
