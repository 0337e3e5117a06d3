//! SPIFFE identities in the form that Istio gives to workloads.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::Strng;

const SCHEME: &str = "spiffe://";

/// Who a workload is: `spiffe://<trust domain>/ns/<namespace>/sa/<service account>`. Cheap to clone.
///
/// The three parts are never empty and hold no `/`, so the text form is unambiguous.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity(Arc<Parts>);

/// One allocation, so that a copy of an identity changes one reference count.
#[derive(Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Parts {
    trust_domain: Strng,
    namespace: Strng,
    service_account: Strng,
}

impl Identity {
    /// Puts an identity together from its parts. Fails if a part is empty or holds a `/` or a control character.
    pub fn new(
        trust_domain: &str,
        namespace: &str,
        service_account: &str,
    ) -> Result<Self, IdentityError> {
        for (part, value) in [
            ("trust domain", trust_domain),
            ("namespace", namespace),
            ("service account", service_account),
        ] {
            if value.is_empty() || value.contains(|c: char| c == '/' || c.is_control()) {
                return Err(IdentityError::Part {
                    part,
                    value: value.to_owned(),
                });
            }
        }
        Ok(Self(Arc::new(Parts {
            trust_domain: trust_domain.into(),
            namespace: namespace.into(),
            service_account: service_account.into(),
        })))
    }

    /// The authority that vouches for the identity.
    pub fn trust_domain(&self) -> &Strng {
        &self.0.trust_domain
    }

    /// The Kubernetes namespace.
    pub fn namespace(&self) -> &Strng {
        &self.0.namespace
    }

    /// The Kubernetes service account.
    pub fn service_account(&self) -> &Strng {
        &self.0.service_account
    }

    /// The whole identity as it stands in a certificate.
    pub fn uri(&self) -> String {
        self.to_string()
    }

    /// The texts that make [`Identity::uri`] one after the other.
    pub fn pieces(&self) -> [&str; 6] {
        [
            SCHEME,
            &self.0.trust_domain,
            "/ns/",
            &self.0.namespace,
            "/sa/",
            &self.0.service_account,
        ]
    }

    /// The identity as authorization policies spell it: without `spiffe://`.
    pub fn principal(&self) -> String {
        let mut uri = self.to_string();
        uri.drain(..SCHEME.len());
        uri
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{SCHEME}{}/ns/{}/sa/{}",
            self.0.trust_domain, self.0.namespace, self.0.service_account
        )
    }
}

impl FromStr for Identity {
    type Err = IdentityError;

    /// Parses the URI form; it must split into exactly five parts, two of which are the words `ns` and `sa`.
    fn from_str(uri: &str) -> Result<Self, IdentityError> {
        let shape = || IdentityError::Shape {
            uri: uri.to_owned(),
        };
        let mut parts = uri.strip_prefix(SCHEME).ok_or_else(shape)?.split('/');
        match [
            parts.next(),
            parts.next(),
            parts.next(),
            parts.next(),
            parts.next(),
            parts.next(),
        ] {
            [
                Some(trust_domain),
                Some("ns"),
                Some(namespace),
                Some("sa"),
                Some(account),
                None,
            ] => Self::new(trust_domain, namespace, account),
            _ => Err(shape()),
        }
    }
}

impl Serialize for Identity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Why a text is not an identity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// The URI has another form.
    #[error(
        "{uri:?} is not a workload identity; expected spiffe://TRUST-DOMAIN/ns/NAMESPACE/sa/SERVICE-ACCOUNT"
    )]
    Shape {
        /// The text as given.
        uri: String,
    },
    /// One part cannot stand in an identity.
    #[error(
        "{part} {value:?} cannot be part of an identity; it must not be empty or hold '/' or control characters"
    )]
    Part {
        /// Which part.
        part: &'static str,
        /// Its text as given.
        value: String,
    },
}

/// A peer whose certificate proved its identity in a completed TLS handshake.
///
/// Policy accepts nothing weaker. Only the code that verifies certificates may make one: a check over the sources looks
/// for other callers of [`VerifiedPeer::by_certificate`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct VerifiedPeer(Identity);

impl VerifiedPeer {
    /// States that a handshake verified this identity. Reserved to the TLS crate (and to tests).
    pub fn by_certificate(identity: Identity) -> Self {
        Self(identity)
    }

    /// Who the peer is.
    pub fn identity(&self) -> &Identity {
        &self.0
    }
}

impl fmt::Display for VerifiedPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn refuses_whatever_is_not_five_parts() {
        for uri in [
            "",
            "spiffe://",
            "cluster.local/ns/a/sa/b",
            "https://cluster.local/ns/a/sa/b",
            "SPIFFE://cluster.local/ns/a/sa/b",
            "spiffe://cluster.local/ns/a/sa",
            "spiffe://cluster.local/ns/a/sa/b/",
            "spiffe://cluster.local/ns/a/sa/b/c",
            "spiffe://cluster.local/sa/a/ns/b",
            "spiffe://cluster.local/ns//sa/b",
            "spiffe:///ns/a/sa/b",
            "spiffe://cluster.local/ns/a/sa/b\n",
        ] {
            assert!(uri.parse::<Identity>().is_err(), "{uri:?} was accepted");
        }
    }

    #[test]
    fn reads_and_spells_its_parts() {
        let id: Identity = "spiffe://cluster.local/ns/default/sa/web".parse().unwrap();
        assert_eq!(&**id.trust_domain(), "cluster.local");
        assert_eq!(&**id.namespace(), "default");
        assert_eq!(&**id.service_account(), "web");
        assert_eq!(id.uri(), "spiffe://cluster.local/ns/default/sa/web");
        assert_eq!(id.pieces().concat(), id.uri());
        assert_eq!(id.principal(), "cluster.local/ns/default/sa/web");
    }

    #[test]
    fn a_slash_cannot_shift_the_parts() {
        assert!(Identity::new("td", "a/sa/b", "c").is_err());
        assert!(Identity::new("td", "", "c").is_err());
    }

    proptest! {
        #[test]
        fn round_trips(td in "[a-z0-9.-]{1,20}", ns in "[^/\\p{Cc}]{1,20}", sa in "[^/\\p{Cc}]{1,20}") {
            let id = Identity::new(&td, &ns, &sa).unwrap();
            prop_assert_eq!(id.to_string().parse::<Identity>().unwrap(), id);
        }

        #[test]
        fn never_panics_and_what_it_accepts_it_spells_alike(text in "(spiffe://)?[a-z/ns]{0,30}|\\PC{0,40}") {
            if let Ok(id) = text.parse::<Identity>() {
                prop_assert_eq!(id.uri(), text);
            }
        }
    }
}
