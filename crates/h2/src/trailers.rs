//! Trailers that wait behind a stream's data. They are kept as fields, not as an encoded block: blocks must be encoded in the
//! order in which they are written (RFC 7541 §2.2), and other blocks are written first.

use crate::hpack::{Field, Keep, Known};

/// Lengths of one field's name and value, and how the peer is to keep it.
#[derive(Debug, Clone, Copy)]
struct Span {
    name: u32,
    value: u32,
    keep: Keep,
    known: Option<Known>,
}

/// A field section that is sent later.
#[derive(Debug)]
pub(crate) struct Trailers {
    /// Names and values, one behind the other.
    bytes: Box<[u8]>,
    spans: Box<[Span]>,
}

impl Trailers {
    pub(crate) fn new(fields: &[Field<'_>]) -> Self {
        let length = fields
            .iter()
            .map(|field| field.name.len() + field.value.len());
        let mut bytes = Vec::with_capacity(length.sum());
        let span = |field: &Field<'_>| {
            bytes.extend_from_slice(field.name);
            bytes.extend_from_slice(field.value);
            Span {
                name: field.name.len() as u32,
                value: field.value.len() as u32,
                keep: field.keep,
                known: field.known,
            }
        };
        let spans = fields.iter().map(span).collect();
        Trailers {
            bytes: bytes.into(),
            spans,
        }
    }

    /// Bytes of memory that it takes.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len() + self.spans.len() * size_of::<Span>()
    }

    /// The fields in order.
    pub(crate) fn fields(&self) -> impl Iterator<Item = Field<'_>> {
        let mut rest = &self.bytes[..];
        self.spans.iter().map(move |span| {
            let (name, behind) = rest.split_at(span.name as usize);
            let (value, behind) = behind.split_at(span.value as usize);
            rest = behind;
            Field {
                keep: span.keep,
                ..Field::numbered(span.known, name, value)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back_as_they_were() {
        let fields = [
            Field::new("grpc-status", "0").kept(),
            Field::new("x-empty", ""),
            Field {
                keep: Keep::Never,
                ..Field::new("x-secret", "s")
            },
        ];
        let trailers = Trailers::new(&fields);
        let whole = |field: &Field<'_>| format!("{field:?}");
        let before: Vec<_> = fields.iter().map(whole).collect();
        let after: Vec<_> = trailers.fields().map(|field| whole(&field)).collect();
        assert_eq!(before, after);
        assert_eq!(trailers.size(), 28 + 3 * size_of::<Span>());
        assert_eq!(Trailers::new(&[]).fields().count(), 0);
        assert_eq!(Trailers::new(&[]).size(), 0);
    }
}
