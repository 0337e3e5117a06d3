//! Comparisons with a request: the part of a clause that a peer cannot decide.

use std::borrow::Cow;
use std::cell::OnceCell;

use ipnet::IpNet;
use lateen_http::FieldName;

use super::facts::RequestFacts;
use super::path::PathPattern;
use super::policy::{HeaderName, RequestAction, Values};
use crate::policy::StringMatch;

/// A comparison of one attribute of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Check {
    /// The patterns are in lower case.
    Host(Values<StringMatch>),
    Method(Values<StringMatch>),
    Path(Values<PathPattern>),
    Header(HeaderName, Values<StringMatch>),
    RemoteIp(Values<IpNet>),
    /// A condition on a token, of which only the signs are judged.
    Token {
        /// Some value must match.
        needs: bool,
    },
}

/// A request prepared for comparisons.
pub(super) struct Request<'a, F> {
    facts: &'a F,
    /// The authority in lower case, when it is first needed.
    host: OnceCell<Cow<'a, [u8]>>,
}

impl<'a, F: RequestFacts> Request<'a, F> {
    pub(super) fn new(facts: &'a F) -> Self {
        Self {
            facts,
            host: OnceCell::new(),
        }
    }

    /// The authority in lower case.
    #[inline]
    pub(super) fn host(&self) -> &[u8] {
        self.host.get_or_init(|| lower(self.facts.authority()))
    }

    #[inline]
    pub(super) fn method(&self) -> &[u8] {
        self.facts.method()
    }

    #[inline]
    pub(super) fn path(&self) -> &[u8] {
        self.facts.path()
    }

    /// The value of a header; several fields of a name are one value with commas between, as Envoy joins them. `None` if the
    /// request has no such field.
    #[inline]
    pub(super) fn header<'b>(&'b self, name: &'b HeaderName) -> Option<Cow<'b, [u8]>> {
        match name {
            HeaderName::Authority => Some(self.host().into()),
            HeaderName::Method => Some(self.facts.method().into()),
            HeaderName::Target => Some(self.facts.target().into()),
            HeaderName::Scheme => Some(self.facts.scheme().into()),
            HeaderName::Field(name) => joined(self.facts, name),
        }
    }

    /// True if the comparison succeeds for a policy of this action.
    pub(super) fn is(&self, check: &Check, action: RequestAction) -> bool {
        match check {
            Check::Host(values) => {
                let host = self.host();
                values.admit(|pattern| present_or(pattern, host))
            }
            Check::Method(values) => {
                let method = self.method();
                values.admit(|pattern| present_or(pattern, method))
            }
            Check::Path(values) => {
                let path = self.path();
                // A CONNECT has no path. What an ALLOW rule says of paths, exceptions too, admits none.
                !(path.is_empty() && action == RequestAction::Allow)
                    && values.admit(|pattern| pattern.matches(path))
            }
            Check::Header(name, values) => {
                let value = self.header(name);
                let value = value.as_deref();
                values.admit(|pattern| value.is_some_and(|value| present_or(pattern, value)))
            }
            Check::RemoteIp(values) => {
                let ip = self.facts.remote_ip().to_canonical();
                values.admit(|block| block.contains(&ip))
            }
            Check::Token { needs } => {
                let has = self.facts.token_present();
                match action {
                    // A token that nobody verified admits nobody, and may be one that an exception names.
                    RequestAction::Allow => !needs && !has,
                    RequestAction::Deny | RequestAction::Audit | RequestAction::Custom => {
                        has || !needs
                    }
                }
            }
        }
    }
}

/// The pattern over a header that is there: `*` is Envoy's match of presence, which an empty value passes.
#[inline]
fn present_or(pattern: &StringMatch, value: &[u8]) -> bool {
    matches!(pattern, StringMatch::Presence) || pattern.matches_bytes(value)
}

#[inline]
fn joined<'a>(facts: &'a impl RequestFacts, name: &'a FieldName) -> Option<Cow<'a, [u8]>> {
    let mut values = facts.fields(name);
    let first = values.next()?;
    let Some(second) = values.next() else {
        return Some(first.into());
    };
    let mut all = first.to_vec();
    for value in std::iter::once(second).chain(values) {
        all.push(b',');
        all.extend_from_slice(value);
    }
    Some(all.into())
}

fn lower(text: &[u8]) -> Cow<'_, [u8]> {
    // A fold without an early end compares many bytes at once.
    let has_capitals = |any: bool, byte: &u8| any | byte.is_ascii_uppercase();
    if text.iter().fold(false, has_capitals) {
        text.to_ascii_lowercase().into()
    } else {
        text.into()
    }
}
