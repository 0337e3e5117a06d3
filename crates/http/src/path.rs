//! Paths in one form, and the query apart (RFC 3986 §3.3, §3.4, §6.2.2).

mod normalise;
mod rules;

use std::fmt;

use bytes::Bytes;

pub use rules::{Parameters, PathLevel, PathRules};

use crate::refusal::Cause;

/// The path and the query of a request, in the one form that routes, policies, logs and upstreams see.
///
/// Visible ASCII without a fragment. It begins with `/`, or it is `*` (for OPTIONS alone).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Path {
    text: Bytes,
    /// The length of the path: the position of `?` if there is a query.
    length: u16,
}

impl Path {
    /// Reads `path` or `path?query`, a slice of `buffer`. The text stays in the buffer if it has the one form already.
    #[inline]
    pub(crate) fn parse(buffer: &Bytes, target: &[u8], rules: PathRules) -> Result<Path, Cause> {
        if target.first() != Some(&b'/') {
            return Err(Cause::Target);
        }
        let scanned = normalise::scan(target, rules.level);
        check_query(&target[scanned.length..])?;
        if scanned.is_plain {
            return Ok(Path {
                text: buffer.slice_ref(target),
                length: scanned.length as u16,
            });
        }
        Path::rewritten(target, scanned.length, rules)
    }

    fn rewritten(target: &[u8], length: usize, rules: PathRules) -> Result<Path, Cause> {
        let (path, query) = target.split_at(length);
        let mut text = normalise::canonical(path, rules)?;
        let length = text.len();
        text.extend_from_slice(query);
        // Escapes that were added may make a path longer than its head was.
        let limit = crate::fields::MAX_BYTES;
        if text.len() > limit {
            return Err(Cause::TargetTooLong { limit });
        }
        Ok(Path {
            text: text.into(),
            length: length as u16,
        })
    }

    /// The path of `OPTIONS *`, which names no resource (RFC 9110 §9.3.7).
    pub(crate) fn asterisk() -> Path {
        Path {
            text: Bytes::from_static(b"*"),
            length: 1,
        }
    }

    /// The path of a target without one (RFC 9112 §3.2.2), with its query.
    pub(crate) fn rootless(query: &[u8]) -> Result<Path, Cause> {
        check_query(query)?;
        Ok(Path {
            text: [b"/", query].concat().into(),
            length: 1,
        })
    }

    /// The path of a rule, or a rewritten path. It has the same form as paths of requests under the same rules.
    pub fn new(target: &str, rules: PathRules) -> Result<Path, Cause> {
        if target.len() > crate::fields::MAX_BYTES {
            return Err(Cause::TargetTooLong {
                limit: crate::fields::MAX_BYTES,
            });
        }
        let bytes = Bytes::copy_from_slice(target.as_bytes());
        Path::parse(&bytes, &bytes, rules)
    }

    /// The path without the query.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.text[..self.length as usize]
    }

    /// The query without `?`, as the client sent it.
    pub fn query(&self) -> Option<&[u8]> {
        self.text.get(self.length as usize + 1..)
    }

    /// `path` or `path?query`: the target that an upstream receives.
    #[inline]
    pub fn target(&self) -> &[u8] {
        &self.text
    }

    /// Copies the text out of the buffer that it keeps alive.
    pub(crate) fn detach(&mut self) {
        self.text = Bytes::copy_from_slice(&self.text);
    }

    /// True for `*`.
    pub fn is_asterisk(&self) -> bool {
        self.as_bytes() == b"*"
    }
}

/// Judges `?query` or nothing. A query is not normalised.
#[inline]
fn check_query(query: &[u8]) -> Result<(), Cause> {
    let is_bad = |byte: u8| (byte <= b' ') | (byte >= 0x7f) | (byte == b'#');
    if query.is_empty() || !crate::scan::contains(query, is_bad) {
        return Ok(());
    }
    Err(match query.contains(&b'#') {
        true => Cause::Fragment,
        false => Cause::PathCharacter,
    })
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.text))
    }
}
