//! The values of operators.

use std::borrow::Cow;

use lateen_telemetry::{LONGEST_TEXT, cut_text};

use super::escape;
use super::operator::Operator;

/// The value of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    /// There is none: `-` in text, `null` in JSON.
    Nothing,
    /// A text, which may be a peer's.
    Text(Cow<'a, [u8]>),
    /// A number, which JSON writes as one.
    Number(u64),
}

/// What a line tells of.
pub(crate) trait Values {
    /// The value of an operator.
    fn value<'a>(&'a self, operator: &'a Operator) -> Value<'a>;
}

impl<'a> Value<'a> {
    /// A text of our own.
    pub(crate) fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::Text(match text.into() {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        })
    }

    /// A text of a peer, if there is one.
    pub(crate) fn bytes(bytes: Option<&'a [u8]>) -> Self {
        bytes.map_or(Self::Nothing, |bytes| Self::Text(Cow::Borrowed(bytes)))
    }

    /// The value as it is shown, if there is one.
    pub(crate) fn shown(shown: Option<impl ToString>) -> Self {
        shown.map_or(Self::Nothing, |shown| Self::text(shown.to_string()))
    }

    /// The first so many bytes of a text; a character of UTF-8 stays whole.
    pub(super) fn cut(self, most: usize) -> Self {
        let Self::Text(text) = &self else {
            return self;
        };
        if text.len() <= most {
            return self;
        }
        let end = match std::str::from_utf8(text) {
            Ok(text) => text.floor_char_boundary(most),
            Err(_) => most,
        };
        Self::Text(text[..end].to_vec().into())
    }

    /// The value, of which a long text is cut and says so.
    pub(super) fn bounded(self) -> Self {
        match self {
            Self::Text(text) if text.len() > LONGEST_TEXT => {
                Self::Text(cut_text(&text).into_owned().into())
            }
            other => other,
        }
    }

    pub(super) fn write_text(&self, line: &mut Vec<u8>) {
        match self {
            Self::Nothing => line.push(b'-'),
            Self::Text(text) => escape::text(text, line),
            Self::Number(number) => line.extend_from_slice(number.to_string().as_bytes()),
        }
    }

    pub(super) fn write_json(&self, line: &mut Vec<u8>) {
        match self {
            Self::Nothing => line.extend_from_slice(b"null"),
            Self::Text(text) => escape::json(text, line),
            Self::Number(number) => line.extend_from_slice(number.to_string().as_bytes()),
        }
    }

    /// Adds the value to a text that is escaped as a whole.
    pub(super) fn join(&self, text: &mut Vec<u8>) {
        match self {
            Self::Nothing => text.push(b'-'),
            Self::Text(part) => text.extend_from_slice(part),
            Self::Number(number) => text.extend_from_slice(number.to_string().as_bytes()),
        }
    }
}
