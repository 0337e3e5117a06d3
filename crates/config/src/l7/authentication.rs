//! Token rules from the wire. They say where tokens are; no token is verified yet.

use bytes::Bytes;
use lateen_http::FieldName;
use lateen_policy::request::{TokenField, TokenPlaces};
use lateen_proto::l7 as proto;
use lateen_types::{NamespacedName, Strng};
use serde::Serialize;

use super::{message, target};
use crate::Rejection;
use crate::attached::Target;
use crate::resource::Resource;

/// The token rules of a RequestAuthentication and what they are attached to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Authentication {
    /// Namespace and name of the RequestAuthentication.
    pub name: NamespacedName,
    /// The rules hold for requests for any of them.
    pub targets: Vec<Target>,
    /// The issuers, one a rule.
    pub issuers: Vec<Strng>,
    /// Where the rules look for tokens. Without rules there are no places.
    pub places: TokenPlaces,
}

impl Authentication {
    /// Reads the resource of this xDS name. Refused, as far as its targets can be read they are given to `refused`.
    pub(super) fn read(
        name: &str,
        bytes: &Bytes,
        refused: impl FnOnce(Option<Vec<Target>>),
    ) -> Result<Self, Rejection> {
        target::read_attached(
            bytes,
            |wire: &proto::Authentication| &wire.targets,
            |wire| parse(name, wire),
            refused,
        )
    }
}

impl Resource for Authentication {
    fn parse(name: &str, bytes: Bytes) -> Result<Self, Rejection> {
        Self::read(name, &bytes, |_| {})
    }
}

fn parse(name: &str, wire: &proto::Authentication) -> Result<Authentication, Rejection> {
    let mut places = TokenPlaces::none();
    for rule in &wire.rules {
        places.extend(&places_of(rule)?);
    }
    Ok(Authentication {
        name: message::named(name, &wire.namespace, &wire.name)?,
        targets: target::parse_all(&wire.targets)?,
        issuers: wire
            .rules
            .iter()
            .map(|rule| rule.issuer.as_str().into())
            .collect(),
        places,
    })
}

fn places_of(rule: &proto::TokenRule) -> Result<TokenPlaces, Rejection> {
    let names = |field: &'static str, list: &[String]| -> Result<Vec<Strng>, Rejection> {
        let one = |name: &String| match name.as_str() {
            "" => Err(Rejection::Missing { field }),
            name => Ok(name.into()),
        };
        list.iter().map(one).collect()
    };
    let places = TokenPlaces {
        fields: rule.fields.iter().map(field).collect::<Result<_, _>>()?,
        params: names("params", &rule.params)?,
        cookies: names("cookies", &rule.cookies)?,
    };
    Ok(if places.is_none() {
        TokenPlaces::default()
    } else {
        places
    })
}

fn field(wire: &proto::TokenField) -> Result<TokenField, Rejection> {
    let name = FieldName::new(&wire.name).ok_or_else(|| {
        Rejection::Invalid(format!(
            "fields: {:?} is not the name of a field",
            wire.name
        ))
    })?;
    Ok(TokenField {
        name,
        prefix: wire.prefix.as_str().into(),
    })
}
