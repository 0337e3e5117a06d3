//! Trust domain aliases of a mesh, as Istio applies them to the principals of policies.

use lateen_types::Strng;

use crate::policy::StringMatch;

/// The name by which policies mean the mesh's own trust domain, whatever it is called.
const POINTER: &str = "cluster.local";

/// The trust domain of the mesh and its aliases. A principal of one of them is a principal of all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustDomains(Vec<Strng>);

impl TrustDomains {
    /// The mesh's trust domain and its aliases.
    pub fn new(own: impl Into<Strng>, aliases: impl IntoIterator<Item = Strng>) -> Self {
        let mut all = vec![own.into()];
        for alias in aliases {
            if !all.contains(&alias) {
                all.push(alias);
            }
        }
        Self(all)
    }

    /// The principals that a policy's principal stands for. It stands for itself alone unless it has the five parts of an
    /// identity and a trust domain of the mesh, or `cluster.local`, or a wildcard that covers a trust domain of the mesh.
    pub(super) fn expand(&self, principal: &StringMatch) -> Vec<StringMatch> {
        let written = match principal {
            StringMatch::Exact(text) => text.to_string(),
            StringMatch::Prefix(text) => format!("{text}*"),
            StringMatch::Suffix(text) => format!("*{text}"),
            StringMatch::Presence => "*".to_owned(),
        };
        let alone = || vec![principal.clone()];
        let Some((domain, path)) = written.split_once('/') else {
            return alone();
        };
        if path.split('/').count() != 4 || domain == "*" {
            return alone();
        }
        let covers = |own: &str| match domain.strip_prefix('*') {
            Some(end) => own.ends_with(end),
            None => own == domain,
        };
        if domain != POINTER && !self.0.iter().any(|own| covers(own)) {
            return alone();
        }
        let mut expanded = Vec::new();
        for own in &self.0 {
            let one = if covers(own) {
                principal.clone()
            } else {
                match path.strip_suffix('*') {
                    Some(path) => StringMatch::Prefix(format!("{own}/{path}").into()),
                    None => StringMatch::Exact(format!("{own}/{path}").into()),
                }
            };
            if !expanded.contains(&one) {
                expanded.push(one);
            }
        }
        expanded
    }
}

impl Default for TrustDomains {
    /// A mesh of the trust domain `cluster.local` without aliases.
    fn default() -> Self {
        Self::new(POINTER, [])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Istio's notation of a pattern.
    fn pattern(text: &str) -> StringMatch {
        match (text.strip_prefix('*'), text.strip_suffix('*')) {
            (Some(""), _) => StringMatch::Presence,
            (Some(end), _) => StringMatch::Suffix(end.into()),
            (_, Some(start)) => StringMatch::Prefix(start.into()),
            _ => StringMatch::Exact(text.into()),
        }
    }

    fn expands(principal: &str, expected: &[&str]) {
        let domains = TrustDomains::new("td1", ["old-td".into(), "some-td".into()]);
        let expected: Vec<_> = expected.iter().map(|text| pattern(text)).collect();
        assert_eq!(domains.expand(&pattern(principal)), expected, "{principal}");
    }

    #[test]
    fn a_principal_of_the_mesh_stands_for_all_its_trust_domains() {
        let all = |path: &str| {
            ["td1", "old-td", "some-td"]
                .map(|domain| format!("{domain}/{path}"))
                .to_vec()
        };
        for (principal, path) in [
            ("td1/ns/foo/sa/bar", "ns/foo/sa/bar"),
            ("old-td/ns/foo/sa/bar", "ns/foo/sa/bar"),
            ("cluster.local/ns/foo/sa/bar", "ns/foo/sa/bar"),
            ("some-td/ns/foo/sa/*", "ns/foo/sa/*"),
        ] {
            let expected = all(path);
            let expected: Vec<_> = expected.iter().map(String::as_str).collect();
            expands(principal, &expected);
        }
    }

    #[test]
    fn a_wildcard_stays_for_the_domains_that_it_covers() {
        expands(
            "*-td/ns/foo/sa/bar",
            &["td1/ns/foo/sa/bar", "*-td/ns/foo/sa/bar"],
        );
    }

    #[test]
    fn other_principals_stand_for_themselves() {
        for principal in [
            "*",
            "*/ns/foo/sa/bar",
            "*/sa/bar",
            "td1/ns/foo/*",
            "td1*",
            "elsewhere/ns/foo/sa/bar",
            "*-elsewhere/ns/foo/sa/bar",
            "td1/ns/foo/sa/bar/more",
        ] {
            expands(principal, &[principal]);
        }
    }
}
