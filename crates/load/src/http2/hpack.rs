//! Compressed fields (HPACK, RFC 7541): a decoder for whatever a peer sends, and an encoder that names
//! what it has sent before.

use std::collections::VecDeque;

use lateen_h2::hpack::statics::STATIC;
use lateen_h2::hpack::{huffman, integer};

use crate::http::Malformed;

/// The size of the dynamic table unless a peer says otherwise (RFC 9113 §6.5.2), in bytes.
const TABLE: usize = 4096;

/// What an entry takes beyond its name and value (RFC 7541 §4.1), in bytes.
const OVERHEAD: usize = 32;

/// The longest string that is read, in bytes.
const MAX_STRING: usize = 64 * 1024;

/// Reads the fields that one peer sends on one connection.
#[derive(Debug)]
pub struct Decoder {
    /// The newest entry first.
    table: VecDeque<(Vec<u8>, Vec<u8>)>,
    size: usize,
    most: usize,
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder {
            table: VecDeque::new(),
            size: 0,
            most: TABLE,
            name: Vec::new(),
            value: Vec::new(),
        }
    }
}

impl Decoder {
    /// Reads one block and hands its fields out, in order. After an error the connection is of no
    /// more use.
    pub fn decode(
        &mut self,
        mut block: &[u8],
        mut field: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), Malformed> {
        let mut begun = false;
        while let Some(&first) = block.first() {
            if first & 0x80 != 0 {
                let index = integer(&mut block, 7)?;
                let (name, value) = self.entry(index)?;
                field(name, value);
            } else if first & 0xe0 == 0x20 {
                let most = integer(&mut block, 5)?;
                if begun || most > TABLE {
                    return Err(Malformed("a table size that may not be"));
                }
                self.most = most;
                self.evict(0);
                continue;
            } else {
                let keep = first & 0x40 != 0;
                let index = integer(&mut block, if keep { 6 } else { 4 })?;
                self.name.clear();
                self.value.clear();
                if index == 0 {
                    string(&mut block, &mut self.name)?;
                } else {
                    let name = self.entry(index)?.0.to_vec();
                    self.name = name;
                }
                string(&mut block, &mut self.value)?;
                field(&self.name, &self.value);
                if keep {
                    self.keep();
                }
            }
            begun = true;
        }
        Ok(())
    }

    fn entry(&self, index: usize) -> Result<(&[u8], &[u8]), Malformed> {
        let bad = Malformed("an index of no field");
        if let Some((name, value)) = STATIC.get(index.checked_sub(1).ok_or(bad)?) {
            return Ok((name.as_bytes(), value.as_bytes()));
        }
        let (name, value) = self.table.get(index - 1 - STATIC.len()).ok_or(bad)?;
        Ok((name, value))
    }

    fn keep(&mut self) {
        let size = self.name.len() + self.value.len() + OVERHEAD;
        self.evict(size);
        // One that is larger than the table leaves it empty (RFC 7541 §4.4).
        if size <= self.most {
            self.size += size;
            self.table
                .push_front((self.name.clone(), self.value.clone()));
        }
    }

    /// Makes room for so many bytes.
    fn evict(&mut self, room: usize) {
        while self.size + room > self.most
            && let Some((name, value)) = self.table.pop_back()
        {
            self.size -= name.len() + value.len() + OVERHEAD;
        }
    }
}

/// Reads an integer with a prefix of so many bits (RFC 7541 §5.1).
fn integer(block: &mut &[u8], bits: u32) -> Result<usize, Malformed> {
    integer::read(block, bits)
        .map(|value| value as usize)
        .map_err(Malformed)
}

/// Reads a string to the end of `out` (RFC 7541 §5.2).
fn string(block: &mut &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
    let cut = Malformed("a field block is cut short");
    let huffman = block.first().ok_or(cut)? & 0x80 != 0;
    let length = integer(block, 7)?;
    if length > MAX_STRING {
        return Err(Malformed("a field is longer than 64 KiB"));
    }
    let (text, rest) = block.split_at_checked(length).ok_or(cut)?;
    *block = rest;
    if huffman {
        // No code is shorter than five bits.
        return huffman::decode(text, out, 2 * MAX_STRING)
            .map(|_| ())
            .map_err(Malformed);
    }
    out.extend_from_slice(text);
    Ok(())
}

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
    use proptest::prelude::*;

    fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<(String, String)>, Malformed> {
        let mut fields = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        decoder.decode(block, |name, value| fields.push((text(name), text(value))))?;
        Ok(fields)
    }

    fn owned(fields: &[(&str, &str)]) -> Vec<(String, String)> {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        fields.iter().map(own).collect()
    }

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        let pair =
            |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.chunks(2).map(pair).collect()
    }

    #[test]
    fn the_requests_of_the_rfc_are_read() {
        // RFC 7541 C.4: three requests on one connection, Huffman-coded.
        let mut decoder = Decoder::default();
        let first = [
            (":method", "GET"),
            (":scheme", "http"),
            (":path", "/"),
            (":authority", "www.example.com"),
        ];
        let block = hex("8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff");
        assert_eq!(decode(&mut decoder, &block).unwrap(), owned(&first));
        let block = hex("8286 84be 5886 a8eb 1064 9cbf");
        let second = [&first[..], &[("cache-control", "no-cache")]].concat();
        assert_eq!(decode(&mut decoder, &block).unwrap(), owned(&second));
        let block = hex("8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf");
        let third = [
            (":method", "GET"),
            (":scheme", "https"),
            (":path", "/index.html"),
            (":authority", "www.example.com"),
            ("custom-key", "custom-value"),
        ];
        assert_eq!(decode(&mut decoder, &block).unwrap(), owned(&third));
        assert_eq!(decoder.size, 164);
    }

    #[test]
    fn a_smaller_table_pushes_out_what_is_oldest() {
        // RFC 7541 C.5: responses with a table of 256 bytes.
        let mut decoder = Decoder::default();
        let resize = hex("3fe101");
        let first = hex(
            "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        );
        decode(&mut decoder, &[resize, first].concat()).unwrap();
        assert_eq!(decoder.size, 222);
        let fields = decode(&mut decoder, &hex("4803 3330 37c1 c0bf")).unwrap();
        assert_eq!(fields[0], (":status".to_owned(), "307".to_owned()));
        assert_eq!(fields[3].1, "https://www.example.com");
        assert_eq!(decoder.size, 222, "the 302 is gone");
    }

    #[test]
    fn bad_blocks_are_refused() {
        let table = [
            "80",
            "be",
            "ff",
            "40",
            "4001",
            "400161",
            "3fe21f",
            "8220",
            "7f ffffffff 7f",
            "41 8c f1e3",
            "40 ff ffff ff7f",
        ];
        for text in table {
            assert!(
                decode(&mut Decoder::default(), &hex(text)).is_err(),
                "{text}"
            );
        }
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
        assert!(decoder.table.is_empty());
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

        #[test]
        fn no_bytes_make_it_panic(blocks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 1..5)) {
            let mut decoder = Decoder::default();
            for block in blocks {
                let _ = decode(&mut decoder, &block);
                prop_assert!(decoder.size <= TABLE);
            }
        }
    }
}
