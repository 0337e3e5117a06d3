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
    fn canonical(&self) -> Option<Self> {
        Some(match self {
            PathPattern::Text(text) => {
                PathPattern::Text(mapped(text, |text| canonical_escapes(text, false))?)
            }
            PathPattern::Template(template) => {
                let text = canonical_escapes(&template.text, true)?;
                PathPattern::Template(PathTemplate::new(&text).ok()?)
            }
        })
    }

    /// The pattern over decoded paths, if its author wrote escapes. None if it has none.
    fn decoded(&self) -> Option<Self> {
        Some(match self {
            PathPattern::Text(text) => PathPattern::Text(mapped(text, decoded_text)?),
            PathPattern::Template(template) => PathPattern::Template(template.decoded()?),
        })
    }

    /// The pattern with each octet of its text as one character, as decoded paths have them. None if its text is ASCII.
    fn spread(&self) -> Option<Self> {
        let octets =
            |text: &str| (!text.is_ascii()).then(|| text.bytes().map(char::from).collect());
        match self {
            PathPattern::Text(text) => mapped(text, octets).map(PathPattern::Text),
            // Templates are ASCII.
            PathPattern::Template(_) => None,
        }
    }
}

/// A pattern over one form of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PathValue {
    /// The pattern.
    pub(super) pattern: PathPattern,
    form: Form,
}

/// The form of a path that a pattern is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Canonical,
    Decoded,
    Either,
}

impl PathValue {
    /// The values of a pattern that admits requests. It covers the canonical path alone: `/a/b` is not `/a%2Fb` for it.
    pub(super) fn strict(pattern: &PathPattern) -> impl Iterator<Item = Self> {
        let of = |pattern| Self {
            pattern,
            form: Form::Canonical,
        };
        [Some(pattern.clone()), pattern.canonical()]
            .into_iter()
            .flatten()
            .map(of)
    }

    /// The values of a pattern that keeps requests out. It also covers each path that decodes to what its author wrote, since the
    /// application may decode the path: `/a@b` is also `/a%40b` for it, and `/a/b` also `/a%2Fb`.
    pub(super) fn wide(pattern: &PathPattern) -> impl Iterator<Item = Self> {
        let of = |form| move |pattern| Self { pattern, form };
        let spread = pattern.spread();
        let own = match spread {
            None => Form::Either,
            Some(_) => Form::Canonical,
        };
        [
            Some(of(own)(pattern.clone())),
            pattern.canonical().map(of(Form::Canonical)),
            spread.map(of(Form::Decoded)),
            pattern.decoded().map(of(Form::Decoded)),
        ]
        .into_iter()
        .flatten()
    }

    /// True if the pattern covers the path. `decoded` is asked for its decoded form, if it has another one.
    #[inline]
    pub(super) fn matches<'a>(
        &self,
        path: &[u8],
        decoded: impl FnOnce() -> Option<&'a [u8]>,
    ) -> bool {
        match self.form {
            Form::Canonical => self.pattern.matches(path),
            Form::Decoded => self.pattern.matches(decoded().unwrap_or(path)),
            Form::Either => {
                self.pattern.matches(path)
                    || decoded().is_some_and(|decoded| self.pattern.matches(decoded))
            }
        }
    }
}

/// The path without escapes, each of its octets as one character: a text whatever its octets are. None if that is the path itself.
pub(super) fn decoded(path: &[u8]) -> Option<Vec<u8>> {
    if path.is_ascii() && !path.contains(&b'%') {
        return None;
    }
    let octets: String = octets(path).map(|(octet, _)| char::from(octet)).collect();
    Some(octets.into_bytes())
}

/// The octets that a text with escapes stands for. Each has the text behind `%` if it was escaped.
fn octets(text: &[u8]) -> impl Iterator<Item = (u8, Option<&[u8]>)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if let [b'%', behind @ ..] = rest
            && let Some((digits, behind)) = behind.split_at_checked(2)
            && let (Some(high), Some(low)) = (hex(digits[0]), hex(digits[1]))
        {
            rest = behind;
            return Some((high << 4 | low, Some(digits)));
        }
        let (octet, behind) = rest.split_first()?;
        rest = behind;
        Some((*octet, None))
    })
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|digit| digit as u8)
}

/// The text of a pattern without its escapes, as [`decoded`] has it. None if it has no escapes.
fn decoded_text(text: &str) -> Option<String> {
    let is_escaped = octets(text.as_bytes()).any(|(_, digits)| digits.is_some());
    is_escaped.then(|| {
        let octets = octets(text.as_bytes());
        octets.map(|(octet, _)| char::from(octet)).collect()
    })
}

/// The pattern with its text mapped. None if there is no other text.
fn mapped(pattern: &StringMatch, map: impl Fn(&str) -> Option<String>) -> Option<StringMatch> {
    let map = |text: &Strng| map(text).map(Strng::from);
    Some(match pattern {
        StringMatch::Exact(whole) => StringMatch::Exact(map(whole)?),
        StringMatch::Prefix(prefix) => StringMatch::Prefix(map(prefix)?),
        StringMatch::Suffix(suffix) => StringMatch::Suffix(map(suffix)?),
        StringMatch::Presence => return None,
    })
}

/// The pattern over a path with its query, with the escapes that canonical paths have before the query. None if it has these already.
pub(super) fn canonical_target(pattern: &StringMatch) -> Option<StringMatch> {
    mapped(pattern, |text| {
        let (path, query) = text.split_at(text.find('?').unwrap_or(text.len()));
        Some(canonical_escapes(path, false)? + query)
    })
}

/// The text as canonical paths have it (RFC 3986 §6.2.2): escapes have capital digits, unreserved characters have none, and
/// octets that no path has (§3.3) have one. The braces of a template are its operators. None if the text has no other form.
fn canonical_escapes(text: &str, is_template: bool) -> Option<String> {
    let mut canonical = String::with_capacity(text.len());
    for (octet, digits) in octets(text.as_bytes()) {
        let is_escaped = match octet {
            b'{' | b'}' if is_template && digits.is_none() => false,
            b'"' | b'<' | b'>' | b'^' | b'`' | b'{' | b'|' | b'}' | ..=b' ' | 0x7f.. => true,
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => false,
            _ => digits.is_some(),
        };
        if is_escaped {
            canonical.push_str(&format!("%{octet:02X}"));
        } else {
            canonical.push(char::from(octet));
        }
    }
    // The end of a beginning may cut an escape off.
    if let [.., b'%', digit] = canonical.as_bytes()
        && digit.is_ascii_hexdigit()
    {
        let last = canonical.split_off(canonical.len() - 1);
        canonical.push_str(&last.to_ascii_uppercase());
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
    /// The text before the first operator.
    prefix: Strng,
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
            prefix: text[..text.find('{').unwrap_or(text.len())].into(),
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
                // The end of a decoded template may have slashes.
                let one = found.strip_suffix(end.as_bytes());
                one.is_some_and(|one| !one.is_empty() && !one.contains(&b'/'))
            }
            (End::Many(end), Some(found)) => found.ends_with(end.as_bytes()),
            (_, None) => false,
        }
    }

    /// The text before the first operator: every path that the template covers begins with it.
    pub fn literal_prefix(&self) -> &str {
        &self.prefix
    }

    /// The template over decoded paths. None if its text has no escapes.
    fn decoded(&self) -> Option<Self> {
        decoded_text(&self.text)?;
        let decode = |text: &Strng| decoded_text(text).map_or_else(|| text.clone(), Strng::from);
        let mut segments = Vec::new();
        for segment in &self.segments {
            match segment {
                Segment::One => segments.push(Segment::One),
                Segment::Literal(text) => {
                    let text = decode(text);
                    segments.extend(text.split('/').map(|part| Segment::Literal(part.into())));
                }
            }
        }
        Some(Self {
            text: self.text.clone(),
            prefix: decode(&self.prefix),
            segments,
            end: match &self.end {
                End::Nothing => End::Nothing,
                End::One(end) => End::One(decode(end)),
                End::Many(end) => End::Many(decode(end)),
            },
        })
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
