//! The places of a request in which a token may be.

use lateen_http::{FieldName, Known};
use lateen_types::Strng;
use serde::{Serialize, Serializer};

use super::facts::RequestFacts;

/// Places in which a token is looked for. Anything there counts as a token, also what is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TokenPlaces {
    /// Fields.
    pub fields: Vec<TokenField>,
    /// Query parameters.
    pub params: Vec<Strng>,
    /// Cookies.
    pub cookies: Vec<Strng>,
}

/// A field in which a token may be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TokenField {
    /// Its name.
    #[serde(serialize_with = "as_text")]
    pub name: FieldName,
    /// The text before the token. Empty: the whole value is a token.
    pub prefix: Strng,
}

impl Default for TokenPlaces {
    /// The places of a rule that names none: `authorization` with `Bearer `, and the query parameter `access_token`.
    fn default() -> Self {
        Self {
            fields: vec![TokenField {
                name: Known::Authorization.into(),
                prefix: "Bearer ".into(),
            }],
            params: vec!["access_token".into()],
            cookies: Vec::new(),
        }
    }
}

impl TokenPlaces {
    /// No places.
    pub fn none() -> Self {
        Self {
            fields: Vec::new(),
            params: Vec::new(),
            cookies: Vec::new(),
        }
    }

    /// True if there are none.
    pub fn is_none(&self) -> bool {
        self.fields.is_empty() && self.params.is_empty() && self.cookies.is_empty()
    }

    /// Adds the places of another rule.
    pub fn extend(&mut self, other: &TokenPlaces) {
        let add = |own: &mut Vec<Strng>, names: &[Strng]| {
            for name in names {
                if !own.contains(name) {
                    own.push(name.clone());
                }
            }
        };
        for field in &other.fields {
            if !self.fields.contains(field) {
                self.fields.push(field.clone());
            }
        }
        add(&mut self.params, &other.params);
        add(&mut self.cookies, &other.cookies);
    }

    /// True if a request has anything in one of the places.
    pub fn has_token(&self, facts: &impl RequestFacts) -> bool {
        let in_field = |field: &TokenField| {
            let mut values = facts.fields(&field.name);
            values.any(|value| has_prefix(value, field.prefix.as_bytes()))
        };
        self.fields.iter().any(in_field)
            || !self.params.is_empty() && self.is_in_query(facts.target())
            || !self.cookies.is_empty() && self.is_in_cookies(facts)
    }

    fn is_in_query(&self, target: &[u8]) -> bool {
        let Some(at) = target.iter().position(|&byte| byte == b'?') else {
            return false;
        };
        let mut names = target[at + 1..].split(|&byte| byte == b'&').map(name);
        names.any(|name| {
            self.params
                .iter()
                .any(|param| decoded(name).eq(param.bytes()))
        })
    }

    fn is_in_cookies(&self, facts: &impl RequestFacts) -> bool {
        let field = FieldName::from(Known::Cookie);
        facts.fields(&field).any(|value| {
            let mut names = value
                .split(|&byte| byte == b';')
                .map(|pair| name(pair).trim_ascii());
            names.any(|name| self.cookies.iter().any(|cookie| name == cookie.as_bytes()))
        })
    }
}

/// True if the prefix is anywhere in the value, as Envoy looks for it, in any case of letters. A prefix ends with the blanks that
/// the value may lack at its end.
fn has_prefix(value: &[u8], prefix: &[u8]) -> bool {
    let prefix = prefix.trim_ascii();
    prefix.is_empty()
        || value
            .windows(prefix.len())
            .any(|window| window.eq_ignore_ascii_case(prefix))
}

/// The part before the first `=`.
fn name(pair: &[u8]) -> &[u8] {
    let end = pair.iter().position(|&byte| byte == b'=');
    &pair[..end.unwrap_or(pair.len())]
}

/// The bytes of a name in a query without their percent-encoding.
fn decoded(name: &[u8]) -> impl Iterator<Item = u8> {
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    let mut rest = name;
    std::iter::from_fn(move || {
        let (&first, behind) = rest.split_first()?;
        if let (b'%', [high, low, ..]) = (first, behind)
            && let (Some(high), Some(low)) = (digit(*high), digit(*low))
        {
            rest = &behind[2..];
            return Some(high << 4 | low);
        }
        rest = behind;
        Some(if first == b'+' { b' ' } else { first })
    })
}

fn as_text<S: Serializer>(name: &FieldName, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(name.as_str())
}
