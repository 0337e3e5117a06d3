//! A text with operators, split once into its pieces.

use super::escape;
use super::operator::Operator;
use super::value::{Value, Values};

/// A text with operators.
#[derive(Debug)]
pub(super) struct Template(Vec<Piece>);

#[derive(Debug)]
enum Piece {
    Literal(Box<str>),
    /// An operator, and the most bytes of its value, where the format says so.
    Operator(Operator, Option<usize>),
}

/// An operator as it is written: `%NAME(argument):length%`.
#[derive(Debug, PartialEq, Eq)]
struct Written<'a> {
    name: &'a str,
    argument: Option<&'a str>,
    most: Option<usize>,
}

impl Template {
    /// Splits a text. What is not understood is told in `problems`: an unknown operator has no value, and a `%` that begins none
    /// is a literal.
    pub(super) fn parse(text: &str, problems: &mut Vec<String>) -> Self {
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('%') {
            literal.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            if let Some(behind) = rest.strip_prefix('%') {
                literal.push('%');
                rest = behind;
                continue;
            }
            let Some((written, behind)) = read(rest) else {
                problems.push(format!(
                    "accessLogFormat: the % before {:?} begins no operator; write %% for the character",
                    rest.chars().take(20).collect::<String>()
                ));
                literal.push('%');
                continue;
            };
            let operator = Operator::of(written.name, written.argument).unwrap_or_else(|| {
                let whole = &rest[..rest.len() - behind.len()];
                problems.push(format!(
                    "accessLogFormat: the operator %{whole} is not known here; its value is always -"
                ));
                Operator::Unknown
            });
            if !literal.is_empty() {
                pieces.push(Piece::Literal(std::mem::take(&mut literal).into()));
            }
            pieces.push(Piece::Operator(operator, written.most));
            rest = behind;
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal.into()));
        }
        Self(pieces)
    }

    /// True if an operator is as asked for.
    pub(super) fn any(&self, wanted: &impl Fn(&Operator) -> bool) -> bool {
        let mut pieces = self.0.iter();
        pieces.any(|piece| matches!(piece, Piece::Operator(operator, _) if wanted(operator)))
    }

    /// Writes the text with the values.
    pub(super) fn text(&self, values: &impl Values, line: &mut Vec<u8>) {
        for piece in &self.0 {
            match piece {
                Piece::Literal(text) => line.extend_from_slice(text.as_bytes()),
                Piece::Operator(operator, most) => {
                    value(operator, *most, values).write_text(line);
                }
            }
        }
    }

    /// Writes the JSON value: that of an operator which stands alone, else a string.
    pub(super) fn json(&self, values: &impl Values, line: &mut Vec<u8>) {
        if let [Piece::Operator(operator, most)] = &self.0[..] {
            return value(operator, *most, values).write_json(line);
        }
        let mut text = Vec::new();
        for piece in &self.0 {
            let part = match piece {
                Piece::Literal(literal) => Value::text(&**literal),
                Piece::Operator(operator, most) => value(operator, *most, values),
            };
            part.join(&mut text);
        }
        escape::json(&text, line);
    }
}

fn value<'a>(operator: &'a Operator, most: Option<usize>, values: &'a impl Values) -> Value<'a> {
    match operator {
        Operator::Unknown => Value::Nothing,
        known => match most {
            Some(most) => values.value(known).cut(most),
            None => values.value(known).bounded(),
        },
    }
}

/// Reads an operator behind its first `%`, and returns what follows its last one.
fn read(text: &str) -> Option<(Written<'_>, &str)> {
    let is_name = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_';
    let end = text.bytes().take_while(is_name).count();
    let (name, mut rest) = text.split_at(end);
    if name.is_empty() {
        return None;
    }
    let mut argument = None;
    if let Some(inside) = rest.strip_prefix('(') {
        let (text, behind) = inside.split_once(')')?;
        (argument, rest) = (Some(text), behind);
    }
    let mut most = None;
    if let Some(behind) = rest.strip_prefix(':') {
        let digits = behind.bytes().take_while(u8::is_ascii_digit).count();
        most = Some(behind[..digits].parse().ok()?);
        rest = &behind[digits..];
    }
    let rest = rest.strip_prefix('%')?;
    Some((
        Written {
            name,
            argument,
            most,
        },
        rest,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_are_read_with_argument_and_length() {
        for (text, expected) in [
            ("PROTOCOL%x", Some(("PROTOCOL", None, None, "x"))),
            (
                "REQ(A?:PATH):10%",
                Some(("REQ", Some("A?:PATH"), Some(10), "")),
            ),
            (
                "START_TIME(%Y/%m)%%",
                Some(("START_TIME", Some("%Y/%m"), None, "%")),
            ),
            ("REQ(A%", None),
            ("REQ(A)", None),
            ("REQ(A):%", None),
            ("req(A)%", None),
            ("", None),
        ] {
            let read = read(text)
                .map(|(written, rest)| (written.name, written.argument, written.most, rest));
            assert_eq!(read, expected, "{text}");
        }
    }
}
