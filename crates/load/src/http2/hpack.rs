//! An encoder of header blocks (HPACK, RFC 7541) that sends each field once and then its index.

use lateen_h2::hpack::integer;
use lateen_h2::hpack::statics::STATIC;

/// The size of the dynamic table unless a peer says otherwise (RFC 9113 §6.5.2), in bytes.
const TABLE: usize = 4096;

/// What an entry takes beyond its name and value (RFC 7541 §4.1), in bytes.
const OVERHEAD: usize = 32;

/// Writes the fields of one connection. What fits into the peer's table goes there once and is named
/// by its index from then on; nothing is ever pushed out of it.
#[derive(Debug, Default)]
pub struct Encoder {
    /// What the peer keeps, the oldest first.
    known: Vec<(String, String)>,
    size: usize,
    /// The peer's table is smaller than the standard's: it is not used, and is to be told so.
    refused: bool,
    told: bool,
}

impl Encoder {
    /// What the peer knows: a block encoded while this was the same, and left it the same, is good.
    pub fn generation(&self) -> (usize, bool, bool) {
        (self.known.len(), self.refused, self.told)
    }

    /// Takes the peer's limit of its table.
    pub fn limit(&mut self, size: usize) {
        if size < TABLE && !self.refused {
            self.refused = true;
            self.known.clear();
        }
    }

    /// Begins a block.
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if self.refused && !self.told {
            self.told = true;
            write_integer(0, 5, 0x20, out);
        }
    }

    /// Adds a field to the block.
    pub fn field(&mut self, name: &str, value: &str, out: &mut Vec<u8>) {
        let (mut index, mut whole) = (0, false);
        for (place, (known, content)) in STATIC.iter().enumerate() {
            if *known == name && (index == 0 || *content == value) {
                (index, whole) = (place + 1, *content == value && !value.is_empty());
                if whole {
                    break;
                }
            }
        }
        if !whole {
            let kept = |(known, content): &(String, String)| known == name && content == value;
            if let Some(place) = self.known.iter().position(kept) {
                (index, whole) = (STATIC.len() + self.known.len() - place, true);
            }
        }
        if whole {
            return write_integer(index, 7, 0x80, out);
        }
        let size = name.len() + value.len() + OVERHEAD;
        let keep = !self.refused && self.size + size <= TABLE;
        if keep {
            write_integer(index, 6, 0x40, out);
            self.size += size;
            self.known.push((name.to_owned(), value.to_owned()));
        } else {
            write_integer(index, 4, 0, out);
        }
        for text in (index == 0).then_some(name).into_iter().chain([value]) {
            write_integer(text.len(), 7, 0, out);
            out.extend_from_slice(text.as_bytes());
        }
    }
}

fn write_integer(value: usize, bits: u32, flags: u8, out: &mut Vec<u8>) {
    integer::write(value as u32, bits, flags, out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use lateen_h2::hpack::{Decoder, Fields, Limits, Unreadable};
    use proptest::prelude::*;

    fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<(String, String)>, Unreadable> {
        let mut fields = Fields::new(Limits {
            size: 1 << 20,
            fields: u32::MAX,
        });
        decoder.decode(block, &mut fields)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(fields
            .iter()
            .map(|(name, value)| (text(name), text(value)))
            .collect())
    }

    fn owned(fields: &[(&str, &str)]) -> Vec<(String, String)> {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        fields.iter().map(own).collect()
    }

    #[test]
    fn what_was_sent_before_is_named_by_its_index() {
        let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
        let fields = [
            (":method", "GET"),
            (":path", "/x"),
            ("x-a", "b"),
            ("accept", ""),
        ];
        let mut lengths = Vec::new();
        for _ in 0..3 {
            let mut block = Vec::new();
            encoder.begin(&mut block);
            for (name, value) in fields {
                encoder.field(name, value, &mut block);
            }
            lengths.push(block.len());
            assert_eq!(decode(&mut decoder, &block).unwrap(), owned(&fields));
        }
        assert_eq!(lengths[1..], [4, 4]);
        encoder.limit(100);
        let before = encoder.generation();
        for expected in [1, 0] {
            let mut block = Vec::new();
            encoder.begin(&mut block);
            assert_eq!(block.len(), expected, "the table is given up once");
            encoder.field("x-a", "b", &mut block);
            assert_eq!(
                decode(&mut decoder, &block).unwrap(),
                owned(&[("x-a", "b")])
            );
        }
        // The first entry beyond the static table: index 62.
        assert!(decode(&mut decoder, &[0xbe]).is_err());
        assert_ne!(encoder.generation(), before);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            blocks in prop::collection::vec(
                prop::collection::vec(("[a-e:]{1,3}|:path|accept|date", "[a-z]{0,3}|[a-z ]{200,400}"), 0..9), 1..12),
            limit in prop::option::of(0usize..5000),
        ) {
            let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
            for (number, fields) in blocks.iter().enumerate() {
                if let (1, Some(limit)) = (number, limit) {
                    encoder.limit(limit);
                }
                let mut block = Vec::new();
                encoder.begin(&mut block);
                for (name, value) in fields {
                    encoder.field(name, value, &mut block);
                }
                prop_assert_eq!(&decode(&mut decoder, &block).unwrap(), fields);
            }
        }
    }
}
