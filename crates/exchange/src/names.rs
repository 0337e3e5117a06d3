//! Field names in both models: the numbers of `lateen_h2` and those of `lateen_http` for one name.

use lateen_h2::{Field, Keep, Known};
use lateen_http::PseudoField;

use crate::keep::{keep, named};

/// A name of `lateen_h2` in the message model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Name {
    Pseudo(PseudoField),
    Field(lateen_http::Known),
    /// The message model has no number for it.
    Text,
}

/// The names of the message model for the numbers of `lateen_h2`.
static IN: [Name; Known::ALL.len()] = {
    let mut names = [Name::Text; Known::ALL.len()];
    let mut n = 0;
    while n < names.len() {
        let known = Known::ALL[n];
        names[n] = match known {
            Known::Method => Name::Pseudo(PseudoField::Method),
            Known::Scheme => Name::Pseudo(PseudoField::Scheme),
            Known::Authority => Name::Pseudo(PseudoField::Authority),
            Known::Path => Name::Pseudo(PseudoField::Path),
            Known::Protocol => Name::Pseudo(PseudoField::Protocol),
            Known::Status => Name::Pseudo(PseudoField::Status),
            _ => Name::Text,
        };
        let mut m = 0;
        while m < lateen_http::Known::ALL.len() {
            if is_same(
                known.as_str().as_bytes(),
                lateen_http::Known::ALL[m].as_str().as_bytes(),
            ) {
                names[n] = Name::Field(lateen_http::Known::ALL[m]);
            }
            m += 1;
        }
        n += 1;
    }
    names
};

/// The numbers of `lateen_h2` for those of `lateen_http`, with their places in the peer's table.
static OUT: [(Option<Known>, Keep); 128] = {
    let mut numbers = [(None, Keep::No); 128];
    let mut n = 0;
    while n < lateen_http::Known::ALL.len() {
        let text = lateen_http::Known::ALL[n].as_str().as_bytes();
        let mut m = 0;
        while m < Known::ALL.len() {
            if is_same(text, Known::ALL[m].as_str().as_bytes()) {
                numbers[n] = (Some(Known::ALL[m]), keep(Known::ALL[m]));
            }
            m += 1;
        }
        n += 1;
    }
    numbers
};

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// The name of the message model for a number of `lateen_h2`, or none for a name without one.
#[inline]
pub(crate) fn of_number(known: Option<Known>) -> Name {
    known.map_or(Name::Text, |known| IN[known as usize])
}

/// A field of the message model, with its place in the peer's table. One that came without a place gets none (RFC 7541 §6.2.3).
#[inline]
pub(crate) fn kept(field: lateen_http::Field<'_>) -> Field<'_> {
    let placed = placed(field);
    match field.is_never_indexed() {
        true => placed.secret(),
        false => placed,
    }
}

#[inline]
fn placed(field: lateen_http::Field<'_>) -> Field<'_> {
    if let Some(known) = field.known() {
        let (known, keep) = OUT[known as usize & 127];
        return match known {
            Some(known) => Field::known(known, field.value()).with_keep(keep),
            None => Field::unnumbered(field.name(), field.value()),
        };
    }
    let Some(pseudo) = field.pseudo() else {
        return named(field.name(), field.value());
    };
    let known = match pseudo {
        PseudoField::Method => Known::Method,
        PseudoField::Scheme => Known::Scheme,
        PseudoField::Authority => Known::Authority,
        PseudoField::Path => Known::Path,
        PseudoField::Protocol => Known::Protocol,
        PseudoField::Status => Known::Status,
    };
    Field::known(known, field.value()).with_keep(keep(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_models_mean_the_same_name() {
        for known in lateen_http::Known::ALL {
            let (number, _) = OUT[*known as usize & 127];
            assert_eq!(number, Known::of(known.as_str().as_bytes()), "{known:?}");
        }
        for known in Known::ALL {
            let text = known.as_str();
            match of_number(Some(known)) {
                Name::Pseudo(pseudo) => assert_eq!(pseudo.as_str(), text),
                Name::Field(number) => assert_eq!(number.as_str(), text),
                Name::Text => {
                    assert_eq!(lateen_http::Known::of(text.as_bytes()), None, "{text}");
                    assert!(!known.is_pseudo(), "{text}");
                }
            }
        }
    }
}
