//! Patterns over canonical paths, with Istio's templates `{*}` and `{**}`.

use std::fmt;

use lateen_types::Strng;
use serde::{Serialize, Serializer};

use crate::policy::StringMatch;

/// The operator for one segment.
const ONE: &str = "{*}";
/// The operator for any number of segments.
const MANY: &str = "{**}";

/// A pattern over the canonical path without the query.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum PathPattern {
    /// A pattern over the text.
    Text(StringMatch),
    /// A pattern over the segments.
    Template(PathTemplate),
}

impl PathPattern {
    /// True if the pattern covers the path.
    #[inline]
    pub fn matches(&self, path: &[u8]) -> bool {
        match self {
            PathPattern::Text(text) => text.matches_bytes(path),
            PathPattern::Template(template) => template.matches(path),
        }
    }

    /// The pattern with the escapes that canonical paths have. None if it has these already.
    pub(super) fn canonical(&self) -> Option<Self> {
        let text = |text: &Strng| canonical_escapes(text, false).map(Strng::from);
        Some(match self {
            PathPattern::Text(StringMatch::Exact(whole)) => {
                PathPattern::Text(StringMatch::Exact(text(whole)?))
            }
            PathPattern::Text(StringMatch::Prefix(prefix)) => {
                PathPattern::Text(StringMatch::Prefix(text(prefix)?))
            }
            PathPattern::Text(StringMatch::Suffix(suffix)) => {
                PathPattern::Text(StringMatch::Suffix(text(suffix)?))
            }
            PathPattern::Text(StringMatch::Presence) => return None,
            PathPattern::Template(template) => {
                let text = canonical_escapes(&template.text, true)?;
                PathPattern::Template(PathTemplate::new(&text).ok()?)
            }
        })
    }
}

/// The pattern over a path with its query, with the escapes that canonical paths have before the query. None if it has these already.
pub(super) fn canonical_target(pattern: &StringMatch) -> Option<StringMatch> {
    let text = |text: &Strng| {
        let (path, query) = text.split_at(text.find('?').unwrap_or(text.len()));
        Some(Strng::from(canonical_escapes(path, false)? + query))
    };
    Some(match pattern {
        StringMatch::Exact(whole) => StringMatch::Exact(text(whole)?),
        StringMatch::Prefix(prefix) => StringMatch::Prefix(text(prefix)?),
        StringMatch::Suffix(suffix) => StringMatch::Suffix(text(suffix)?),
        StringMatch::Presence => return None,
    })
}

/// The text with capital digits behind each `%`, and with escapes for characters that no path has (RFC 3986 §3.3). The braces
/// of a template are its operators. None if the text has no other form.
fn canonical_escapes(text: &str, is_template: bool) -> Option<String> {
    let mut escape = 0;
    let mut canonical = String::with_capacity(text.len());
    for char in text.chars() {
        let digits = std::mem::take(&mut escape);
        match char {
            '%' => {
                escape = 2;
                canonical.push(char);
            }
            '{' | '}' if is_template => canonical.push(char),
            '"' | '<' | '>' | '^' | '`' | '{' | '|' | '}' => {
                canonical.push_str(&format!("%{:02X}", char as u32));
            }
            _ if digits > 0 && char.is_ascii_hexdigit() => {
                escape = digits - 1;
                canonical.push(char.to_ascii_uppercase());
            }
            _ => canonical.push(char),
        }
    }
    (canonical != text).then_some(canonical)
}

/// A path template: `{*}` stands for one segment that is not empty, `{**}` for any bytes.
///
/// Envoy limits both operators to most of the path characters of RFC 3986, so that a DENY does not cover other bytes
/// (CVE-2025-46821 is one such byte). Here the operators cover every byte, and `{*}` every byte but `/`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PathTemplate {
    text: Strng,
    /// The segments before the last operator or the end.
    segments: Vec<Segment>,
    end: End,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Segment {
    Literal(Strng),
    One,
}

/// The rest of a template behind its segments.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum End {
    /// Nothing.
    Nothing,
    /// `{*}` and the literal end of the same segment.
    One(Strng),
    /// `{**}` and the literal end of the path.
    Many(Strng),
}

/// The reason for which a text is no path template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The text does not begin with a slash.
    #[error("path template {0:?} does not begin with /")]
    NoSlash(String),
    /// A brace or asterisk that is no operator, or a byte that no path has.
    #[error(
        "path template {0:?} has a segment that is neither {{*}}, {{**}} nor plain text; only the last operator may have text behind it"
    )]
    Segment(String),
    /// An operator behind `{**}`.
    #[error("path template {0:?} has an operator behind {{**}}, which must be the last one")]
    BehindMany(String),
}

impl PathTemplate {
    /// Reads a template.
    ///
    /// # Errors
    /// See [`TemplateError`].
    pub fn new(text: &str) -> Result<Self, TemplateError> {
        let bad = |kind: fn(String) -> TemplateError| Err(kind(text.to_owned()));
        let Some(mut rest) = text.strip_prefix('/') else {
            return bad(TemplateError::NoSlash);
        };
        let mut template = Self {
            text: text.into(),
            segments: Vec::new(),
            end: End::Nothing,
        };
        loop {
            let (segment, behind) = match rest.split_once('/') {
                Some((segment, behind)) => (segment, Some(behind)),
                None => (rest, None),
            };
            if let Some(end) = rest.strip_prefix(MANY) {
                if end.contains(ONE) || end.contains(MANY) {
                    return bad(TemplateError::BehindMany);
                }
                if !is_literal(end, true) {
                    return bad(TemplateError::Segment);
                }
                template.end = End::Many(end.into());
                return Ok(template);
            }
            if segment == ONE {
                template.segments.push(Segment::One);
            } else if let (Some(end), None) = (segment.strip_prefix(ONE), behind) {
                if !is_literal(end, false) {
                    return bad(TemplateError::Segment);
                }
                template.end = End::One(end.into());
                return Ok(template);
            } else if !is_literal(segment, false) {
                return bad(TemplateError::Segment);
            } else {
                template.segments.push(Segment::Literal(segment.into()));
            }
            match behind {
                Some(behind) => rest = behind,
                None => return Ok(template),
            }
        }
    }

    /// True if the template covers the path.
    pub fn matches(&self, path: &[u8]) -> bool {
        // Each segment takes its slash, then its bytes.
        let mut rest = path;
        for segment in &self.segments {
            let Some(behind) = rest.strip_prefix(b"/") else {
                return false;
            };
            let end = behind.iter().position(|&byte| byte == b'/');
            let (found, behind) = behind.split_at(end.unwrap_or(behind.len()));
            let fits = match segment {
                Segment::Literal(text) => found == text.as_bytes(),
                Segment::One => !found.is_empty(),
            };
            if !fits {
                return false;
            }
            rest = behind;
        }
        match (&self.end, rest.strip_prefix(b"/")) {
            (End::Nothing, _) => rest.is_empty(),
            (End::One(end), Some(found)) => {
                found.len() > end.len() && !found.contains(&b'/') && found.ends_with(end.as_bytes())
            }
            (End::Many(end), Some(found)) => found.ends_with(end.as_bytes()),
            (_, None) => false,
        }
    }

    /// The text before the first operator: every path that the template covers begins with it.
    pub fn literal_prefix(&self) -> &str {
        let end = self.text.find('{').unwrap_or(self.text.len());
        &self.text[..end]
    }

    /// The template as its author wrote it.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// True if no byte is an operator's, and all are printable ASCII of paths.
fn is_literal(text: &str, may_have_slash: bool) -> bool {
    text.bytes().all(|byte| match byte {
        b'/' => may_have_slash,
        b'*' | b'{' | b'}' | b'?' | b'#' => false,
        _ => byte.is_ascii_graphic(),
    })
}

impl fmt::Display for PathTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for PathTemplate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}
