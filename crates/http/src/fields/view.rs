//! Searches of a field list by name, and its fields with lower-case names.

use crate::fields::{Field, Fields, Span};
use crate::name::FieldName;

impl Fields {
    /// The bytes of the fields as lines of HTTP/1, which Istio's byte counters come close to.
    pub fn lines_len(&self) -> usize {
        let live = self.0.spans.iter().filter(|span| span.is_live());
        live.map(|span| {
            let name = match (span.flags & Span::NAME_ADDED, span.known) {
                (0, _) | (_, None) => usize::from(span.name_end.saturating_sub(span.name)),
                (_, Some(known)) => known.as_str().len(),
            };
            name + usize::from(span.value_end.saturating_sub(span.value)) + ": \r\n".len()
        })
        .sum()
    }

    /// Gives the fields with lower-case names to `emit`. `names` holds those that arrived otherwise and have no number.
    pub(crate) fn lower<'a>(&'a self, names: &'a mut Vec<u8>, mut emit: impl FnMut(Field<'a>)) {
        names.clear();
        if self.has_others() {
            for field in self.iter().filter(Field::has_capitals) {
                names.extend(field.name.iter().map(u8::to_ascii_lowercase));
            }
        }
        let mut lowered = &names[..];
        for mut field in self.iter() {
            if let Some(known) = field.known {
                field.name = known.as_str().as_bytes();
            } else if !lowered.is_empty() && field.has_capitals() {
                (field.name, lowered) = lowered.split_at(field.name.len());
            }
            emit(field);
        }
    }

    /// The values of all fields of a name: by number if it has one, else by comparison without regard to case.
    pub fn named<'a>(&'a self, name: &'a FieldName) -> impl Iterator<Item = &'a [u8]> {
        let known = name.known();
        let numbered = known.map(|known| self.all(known));
        let has_others = known.is_none() && self.has_others();
        let others = has_others.then(|| self.others(name.as_str()));
        numbered
            .into_iter()
            .flatten()
            .chain(others.into_iter().flatten())
    }

    /// False only if there is no field of a name. It costs less than [`Fields::named`].
    #[inline]
    pub fn may_have(&self, name: &FieldName) -> bool {
        match name.known() {
            Some(known) => self.has(known),
            None => self.has_others(),
        }
    }

    /// The values of all fields of a name without a number.
    fn others<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.iter()
            .filter(move |field| {
                field.known.is_none() && field.name.eq_ignore_ascii_case(name.as_bytes())
            })
            .map(|field| field.value)
    }
}
