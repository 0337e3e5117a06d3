//! Comparisons with a request: the part of a clause that a peer cannot decide.

use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

use ipnet::IpNet;
use lateen_http::FieldName;

use super::facts::RequestFacts;
use super::path::{self, PathValue};
use super::policy::{HeaderName, RequestAction, Values};
use crate::policy::StringMatch;

/// A comparison of one attribute of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Check {
    /// The patterns are in lower case.
    Host(Values<StringMatch>),
    Method(Values<StringMatch>),
    Path(Values<PathValue>),
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
    /// The path without escapes if it has any, when it is first needed.
    decoded_path: OnceCell<Option<Vec<u8>>>,
    /// The joined values of names of several fields, when they are first needed. Few requests have any, so that they are apart.
    joined: OnceCell<Box<RefCell<JoinedNames>>>,
}

/// The separators with which applications join the fields of a name into one value (RFC 9110 §5.3).
const SEPARATORS: [&[u8]; 2] = [b",", b", "];

/// The values of all fields of a name, joined with each separator.
type Joined = [Vec<u8>; SEPARATORS.len()];

/// The names whose fields have been joined, and their joined values.
type JoinedNames = Vec<(FieldName, Rc<Joined>)>;

impl<'a, F: RequestFacts> Request<'a, F> {
    pub(super) fn new(facts: &'a F) -> Self {
        Self {
            facts,
            host: OnceCell::new(),
            decoded_path: OnceCell::new(),
            joined: OnceCell::new(),
        }
    }

    /// The authority in lower case.
    #[inline]
    pub(super) fn host(&self) -> &[u8] {
        self.host.get_or_init(|| lower(self.facts.authority()))
    }

    /// The authority as it is.
    #[inline]
    pub(super) fn authority(&self) -> &[u8] {
        self.facts.authority()
    }

    #[inline]
    pub(super) fn method(&self) -> &[u8] {
        self.facts.method()
    }

    #[inline]
    pub(super) fn path(&self) -> &[u8] {
        self.facts.path()
    }

    /// The canonical path without escapes, each octet as one character. None if it has none.
    #[inline]
    pub(super) fn decoded_path(&self) -> Option<&[u8]> {
        let decoded = self
            .decoded_path
            .get_or_init(|| path::decoded(self.facts.path()));
        decoded.as_deref()
    }

    /// The values of a header: of each field of the name, since an application may read any of them.
    #[inline]
    pub(super) fn each_value(&self, name: &HeaderName, mut take: impl FnMut(&[u8])) {
        match name {
            HeaderName::Authority => take(self.host()),
            HeaderName::Method => take(self.facts.method()),
            HeaderName::Target => take(self.facts.target()),
            HeaderName::Scheme => take(self.facts.scheme()),
            HeaderName::Field(name) if !self.facts.may_have(name) => {}
            HeaderName::Field(name) => self.facts.fields(name).for_each(take),
        }
    }

    /// True of the path and the scheme of a CONNECT, which has neither.
    #[inline]
    fn is_without(&self, name: &HeaderName) -> bool {
        matches!(name, HeaderName::Target | HeaderName::Scheme) && self.facts.target().is_empty()
    }

    /// Gives the joined values of a name of several fields to `take`: an application may read these in place of the fields.
    #[cold]
    pub(super) fn joined_values(&self, name: &HeaderName, take: impl FnMut(&[u8])) {
        let HeaderName::Field(name) = name else {
            return;
        };
        // `take` may ask for joined values itself, so nothing is borrowed when it runs.
        let joined = self.joined_fields(name);
        joined.iter().map(Vec::as_slice).for_each(take);
    }

    /// The joined values of a name. They are kept for all rules, so that long fields are copied once in a request.
    fn joined_fields(&self, name: &FieldName) -> Rc<Joined> {
        let mut all = self.joined.get_or_init(Box::default).borrow_mut();
        if let Some((_, joined)) = all.iter().find(|(known, _)| known == name) {
            return joined.clone();
        }
        let fields: Vec<&[u8]> = self.facts.fields(name).collect();
        let joined = Rc::new(SEPARATORS.map(|separator| fields.join(separator)));
        all.push((name.clone(), joined.clone()));
        joined
    }

    /// True if the fields of a name pass the values for a policy of this action. Which of several fields an application reads is
    /// unknown (CVE-2026-26308): an ALLOW rule needs all of them to pass, and one field is enough for other rules.
    ///
    /// An application may also read the fields as one value. What keeps requests out therefore covers the joined value as well: the
    /// values of DENY, AUDIT and CUSTOM rules, and the exceptions of ALLOW rules.
    fn fields_pass(
        &self,
        name: &HeaderName,
        values: &Values<StringMatch>,
        action: RequestAction,
    ) -> bool {
        let (mut some, mut all, mut fields) = (false, true, 0);
        self.each_value(name, |value| {
            let passes = values.admit(|pattern| present_or(pattern, value));
            (some, all, fields) = (some | passes, all & passes, fields + 1);
        });
        match (fields, action) {
            (0, _) => values.admit(|_| false),
            (_, RequestAction::Allow) => {
                let mut excepted = false;
                if fields > 1 && all && !values.not.is_empty() {
                    self.joined_values(name, |joined| {
                        excepted |= values.not.iter().any(|pattern| present_or(pattern, joined));
                    });
                }
                all && !excepted
            }
            (_, RequestAction::Deny | RequestAction::Audit | RequestAction::Custom) => {
                if fields > 1 && !some && !values.any.is_empty() {
                    self.joined_values(name, |joined| {
                        some |= values.admit(|pattern| present_or(pattern, joined));
                    });
                }
                some
            }
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
                    && values.admit(|value| value.matches(path, || self.decoded_path()))
            }
            Check::Header(name, values) => {
                // The same holds where a condition calls the path or the scheme a header.
                !(action == RequestAction::Allow && self.is_without(name))
                    && self.fields_pass(name, values, action)
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

fn lower(text: &[u8]) -> Cow<'_, [u8]> {
    // A fold without an early end compares many bytes at once.
    let has_capitals = |any: bool, byte: &u8| any | byte.is_ascii_uppercase();
    if text.iter().fold(false, has_capitals) {
        text.to_ascii_lowercase().into()
    } else {
        text.into()
    }
}
