//! Encoder of header blocks. A field that is the same for many requests of a connection goes into the peer's table once, and
//! costs one byte from then on.
//!
//! No entry is ever evicted, so an index keeps its meaning for the life of the connection. A connection writes either requests
//! or responses, so the two never share these entries.

use super::statics::STATIC;
use super::{FieldLine, Known, OVERHEAD, TABLE, huffman, integer};
use crate::config::Config;
use crate::flags;

/// What the peer's decoder should do with a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// It may not come again: a literal without indexing.
    No,
    /// It comes again on this connection: kept in the peer's table while there is room.
    Yes,
    /// It is secret: never indexed, here or by whoever passes it on (RFC 7541 §7.1.3).
    Never,
}

/// A field to be sent. Names must be in lower case.
#[derive(Debug, Clone, Copy)]
pub struct Field<'a> {
    /// A pseudo-header's name begins with a colon.
    pub name: &'a [u8],
    /// Any bytes but NUL, CR and LF.
    pub value: &'a [u8],
    /// Whether the peer keeps it.
    pub keep: Keep,
    /// The number of the name, if it has one.
    pub(crate) known: Option<Known>,
}

impl<'a> Field<'a> {
    /// A field that may not come again.
    pub fn new(
        name: &'a (impl AsRef<[u8]> + ?Sized),
        value: &'a (impl AsRef<[u8]> + ?Sized),
    ) -> Self {
        Field::numbered(Known::of(name.as_ref()), name.as_ref(), value.as_ref())
    }

    /// The same, of a name whose number is known: nothing is looked up.
    #[inline]
    pub fn known(known: Known, value: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Field::numbered(Some(known), known.as_str().as_bytes(), value.as_ref())
    }

    /// The same, of a name that has no number: nothing is looked up. A name that has one is sent in full.
    #[inline]
    pub fn unnumbered(name: &'a [u8], value: &'a [u8]) -> Self {
        Field::numbered(None, name, value)
    }

    /// A field as it was received, to be sent on.
    pub fn of(line: FieldLine<'a>) -> Self {
        let keep = match line.never_indexed {
            true => Keep::Never,
            false => Keep::No,
        };
        Field::numbered(line.known, line.name, line.value).with_keep(keep)
    }

    #[inline]
    pub(crate) fn numbered(known: Option<Known>, name: &'a [u8], value: &'a [u8]) -> Self {
        Field {
            name,
            value,
            keep: Keep::No,
            known,
        }
    }

    /// The same, which the peer keeps as `keep` says.
    #[inline]
    pub fn with_keep(self, keep: Keep) -> Self {
        Field { keep, ..self }
    }

    /// The same, kept by the peer.
    pub fn kept(self) -> Self {
        Field {
            keep: Keep::Yes,
            ..self
        }
    }

    /// The same, never indexed.
    pub fn secret(self) -> Self {
        Field {
            keep: Keep::Never,
            ..self
        }
    }

    /// What a request with this field is, as bits of a stream's state.
    #[inline]
    pub(crate) fn request_flags(&self) -> u16 {
        match (self.known, self.value) {
            (Some(Known::Method), b"CONNECT") => flags::CONNECT,
            (Some(Known::Method), b"HEAD") => flags::HEAD,
            (Some(Known::Protocol), _) => flags::EXTENDED,
            _ => 0,
        }
    }

    /// As RFC 9113 §6.5.2 counts it.
    #[inline]
    pub(crate) fn size(&self) -> usize {
        self.name.len() + self.value.len() + OVERHEAD
    }
}

/// The beginning of a header block, encoded once for all connections: it uses no table but the static one, and no Huffman
/// code.
#[derive(Debug, Clone)]
pub struct Prebuilt {
    bytes: Box<[u8]>,
    size: usize,
    request: u16,
}

impl Prebuilt {
    /// Encodes these fields; [`Keep::Yes`] has no meaning here.
    pub fn new<'a>(fields: impl IntoIterator<Item = Field<'a>>) -> Self {
        let (mut bytes, mut size, mut request) = (Vec::new(), 0, 0);
        for field in fields {
            request |= field.request_flags();
            size += field.size();
            if !whole(&field, &mut bytes) {
                literal(&field, false, &mut bytes);
            }
        }
        Prebuilt {
            bytes: bytes.into(),
            size,
            request,
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// A field that the peer keeps.
#[derive(Debug)]
struct Pin {
    /// Name and value in one piece.
    both: Box<[u8]>,
    /// The length of the name.
    name: u32,
    known: Option<Known>,
}

impl Pin {
    #[inline]
    fn is(&self, field: &Field<'_>) -> bool {
        let name = field.name.len();
        self.known == field.known
            && self.name as usize == name
            && self.both.len() == name + field.value.len()
            && self.both[name..] == *field.value
            && (self.known.is_some() || self.both[..name] == *field.name)
    }
}

/// Writes the blocks of one connection.
#[derive(Debug)]
pub(crate) struct Encoder {
    /// What the peer keeps, the oldest first.
    pins: Vec<Pin>,
    /// What the pins take of the peer's table, in bytes.
    size: u32,
    /// Most pins, see [`Config::pins`].
    most: u8,
    /// See [`Config::huffman`].
    huffman: bool,
    /// The peer's table is smaller than the standard's: it is not used, and is to be told so.
    refused: bool,
    told: bool,
}

impl Encoder {
    pub(crate) fn new(config: &Config) -> Self {
        Encoder {
            pins: Vec::new(),
            size: 0,
            most: config.pins,
            huffman: config.huffman,
            refused: false,
            told: false,
        }
    }

    /// Takes the peer's limit of its table.
    pub(crate) fn limit(&mut self, size: u32) {
        if size < TABLE && !self.refused {
            self.refused = true;
            self.pins = Vec::new();
        }
    }

    /// Begins a block.
    #[inline]
    pub(crate) fn begin(&mut self, out: &mut Vec<u8>) {
        if self.refused && !self.told {
            self.told = true;
            integer::write(0, 5, 0x20, out);
        }
    }

    /// The state that [`Encoder::restore`] brings back.
    #[inline]
    pub(crate) fn mark(&self) -> Mark {
        Mark {
            pins: self.pins.len(),
            size: self.size,
            told: self.told,
        }
    }

    /// Forgets the blocks since `mark`, none of which was sent.
    #[cold]
    pub(crate) fn restore(&mut self, mark: Mark) {
        self.pins.truncate(mark.pins);
        self.size = mark.size;
        self.told = mark.told;
    }

    /// Adds a field to the block.
    pub(crate) fn field(&mut self, field: &Field<'_>, out: &mut Vec<u8>) {
        // All names that the static table has with a value are pseudo-headers, but for one that nobody sends alike.
        let is_pseudo = field.known.is_some_and(Known::is_pseudo);
        if field.keep == Keep::Yes {
            if let Some(place) = self.pins.iter().position(|pin| pin.is(field)) {
                let index = STATIC.len() + self.pins.len() - place;
                return integer::write(index as u32, 7, 0x80, out);
            }
            if is_pseudo && whole(field, out) {
                return;
            }
            if !self.refused
                && self.pins.len() < usize::from(self.most)
                && self.size as usize + field.size() <= TABLE as usize
            {
                self.size += field.size() as u32;
                self.pins.push(Pin {
                    both: [field.name, field.value].concat().into(),
                    name: field.name.len() as u32,
                    known: field.known,
                });
                return text(field, 6, 0x40, self.huffman, out);
            }
        } else if is_pseudo && whole(field, out) {
            return;
        }
        literal(field, self.huffman, out);
    }
}

/// The part of an encoder's state that a block changes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    pins: usize,
    size: u32,
    told: bool,
}

/// Writer of the fields of one message.
#[derive(Debug)]
pub struct BlockWriter<'a> {
    encoder: &'a mut Encoder,
    out: &'a mut Vec<u8>,
    /// The size of the fields as RFC 9113 §6.5.2 counts it.
    size: usize,
    request: u16,
}

impl<'a> BlockWriter<'a> {
    /// Begins a block with fields that are encoded already.
    #[inline]
    pub(crate) fn new(
        encoder: &'a mut Encoder,
        out: &'a mut Vec<u8>,
        prebuilt: Option<&Prebuilt>,
    ) -> Self {
        encoder.begin(out);
        let (mut size, mut request) = (0, 0);
        if let Some(prebuilt) = prebuilt {
            out.extend_from_slice(prebuilt.bytes());
            (size, request) = (prebuilt.size, prebuilt.request);
        }
        BlockWriter {
            encoder,
            out,
            size,
            request,
        }
    }

    /// Adds a field. Pseudo-header fields come first.
    #[inline]
    pub fn field(&mut self, field: Field<'_>) {
        self.size += field.size();
        if field.known.is_some_and(Known::is_pseudo) {
            self.request |= field.request_flags();
        }
        self.encoder.field(&field, self.out);
    }

    /// The size of the fields, and what a request with them is as bits of a stream's state.
    #[inline]
    pub(crate) fn end(self) -> (usize, u16) {
        (self.size, self.request)
    }
}

/// Writes a pseudo-header field that the static table has.
fn whole(field: &Field<'_>, out: &mut Vec<u8>) -> bool {
    let Some(known) = field.known.filter(|known| known.is_pseudo()) else {
        return false;
    };
    let (first, last) = known.indices();
    if first == 0 || field.keep == Keep::Never || field.value.is_empty() {
        return false;
    }
    let found =
        (first..=last).find(|index| STATIC[usize::from(*index) - 1].1.as_bytes() == field.value);
    if let Some(index) = found {
        integer::write(index.into(), 7, 0x80, out);
    }
    found.is_some()
}

#[inline]
fn literal(field: &Field<'_>, huffman: bool, out: &mut Vec<u8>) {
    let flags = if field.keep == Keep::Never { 0x10 } else { 0 };
    text(field, 4, flags, huffman, out);
}

#[inline]
fn text(field: &Field<'_>, bits: u32, flags: u8, huffman: bool, out: &mut Vec<u8>) {
    let index = field.known.map_or(0, |known| known.indices().0);
    integer::write(index.into(), bits, flags, out);
    if index == 0 {
        string(field.name, huffman, out);
    }
    string(field.value, huffman, out);
}

#[inline]
fn string(bytes: &[u8], huffman: bool, out: &mut Vec<u8>) {
    if huffman && huffman_string(bytes, out) {
        return;
    }
    integer::write(bytes.len() as u32, 7, 0, out);
    out.extend_from_slice(bytes);
}

/// Writes a string in the Huffman code, unless it is longer so.
#[inline(never)]
fn huffman_string(bytes: &[u8], out: &mut Vec<u8>) -> bool {
    let length = huffman::length(bytes);
    if length >= bytes.len() {
        return false;
    }
    integer::write(length as u32, 7, 0x80, out);
    huffman::encode(bytes, out);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hpack::{Decoder, Fields, Limits};
    use proptest::prelude::*;

    const LIMITS: Limits = Limits {
        size: 1 << 16,
        fields: 1000,
    };

    fn encoder() -> Encoder {
        Encoder::new(&Config::tunnel())
    }

    fn list(fields: &Fields) -> Vec<(Vec<u8>, Vec<u8>)> {
        fields
            .iter()
            .map(|(n, v)| (n.to_vec(), v.to_vec()))
            .collect()
    }

    #[test]
    fn what_is_kept_is_a_byte_the_second_time() {
        let fields = [
            Field::new(":method", "CONNECT").kept(),
            Field::new(":authority", "10.0.0.7:80"),
            Field::new("baggage", &[b'x'; 150]).kept(),
        ];
        let (mut encoder, mut decoder) = (encoder(), Decoder::new());
        let mut lengths = Vec::new();
        for _ in 0..3 {
            let mut block = Vec::new();
            encoder.begin(&mut block);
            fields
                .iter()
                .for_each(|field| encoder.field(field, &mut block));
            let mut read = Fields::new(LIMITS);
            decoder.decode(&block, &mut read).expect("it is good");
            assert_eq!(read.get("baggage"), Some(&[b'x'; 150][..]));
            assert_eq!(read.get(":authority"), Some(&b"10.0.0.7:80"[..]));
            lengths.push(block.len());
        }
        assert!(lengths[0] > 160);
        assert_eq!(lengths[1..], [15, 15]);
    }

    /// RFC 7541 §4.2: the next block says so, once, and nothing is kept from then on.
    #[test]
    fn a_peer_with_a_small_table_is_told_that_it_is_not_used() {
        let mut encoder = encoder();
        let block = |encoder: &mut Encoder| {
            let mut out = Vec::new();
            encoder.begin(&mut out);
            encoder.field(&Field::new("a", "b").kept(), &mut out);
            out
        };
        assert_eq!(block(&mut encoder), b"\x40\x01a\x01b");
        assert_eq!(block(&mut encoder), [0xbe]);
        encoder.limit(4095);
        assert_eq!(block(&mut encoder), b"\x20\0\x01a\x01b");
        assert_eq!(block(&mut encoder), b"\0\x01a\x01b");
    }

    #[test]
    fn a_status_is_a_byte() {
        assert_eq!(
            Prebuilt::new([Field::new(":status", "200")]).bytes(),
            [0x88]
        );
    }

    /// RFC 7541 C.4.1 and C.6.1: strings in the Huffman code, where that is shorter.
    #[test]
    fn huffman_strings_are_those_of_the_rfc() {
        let mut encoder = encoder();
        encoder.huffman = true;
        let mut out = Vec::new();
        encoder.field(&Field::new(":authority", "www.example.com"), &mut out);
        assert_eq!(
            out,
            b"\x01\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff"
        );
        out.clear();
        encoder.field(&Field::new("cache-control", "private"), &mut out);
        assert_eq!(out, b"\x0f\x09\x85\xae\xc3\x77\x1a\x4b");
        // The code of these is longer than they are.
        out.clear();
        encoder.field(&Field::new("a", "{}~^"), &mut out);
        assert_eq!(out, b"\0\x01a\x04{}~^");
    }

    #[test]
    fn a_field_is_the_same_whether_its_number_was_looked_up_or_given() {
        for known in Known::ALL {
            let (mut one, mut other) = (Vec::new(), Vec::new());
            encoder().field(&Field::new(known.as_str(), "x"), &mut one);
            encoder().field(&Field::known(known, "x"), &mut other);
            assert_eq!(one, other);
            let mut read = Fields::new(LIMITS);
            Decoder::new().decode(&one, &mut read).expect("it is good");
            let line = read.lines().next().expect("it is there");
            assert_eq!(
                (line.known, line.name),
                (Some(known), known.as_str().as_bytes())
            );
        }
    }

    #[test]
    fn no_more_is_kept_than_the_configuration_says() {
        let config = Config {
            pins: 2,
            ..Config::tunnel()
        };
        let mut encoder = Encoder::new(&config);
        let mut lengths = Vec::new();
        for _ in 0..2 {
            for value in ["1", "2", "3"] {
                let mut out = Vec::new();
                encoder.field(&Field::new("a", value).kept(), &mut out);
                lengths.push(out.len());
            }
        }
        assert_eq!(lengths, [5, 5, 5, 1, 1, 5]);
    }

    proptest! {
        #[test]
        fn every_list_comes_back(
            blocks in prop::collection::vec(
                prop::collection::vec(("(:method|:path|baggage|[a-z]{1,9})", "[ -~]{0,60}", 0u8..3), 0..8), 1..12),
            refuse in prop::option::of(0usize..12),
            huffman: bool,
        ) {
            let (mut encoder, mut decoder) = (encoder(), Decoder::new());
            encoder.huffman = huffman;
            for (number, fields) in blocks.iter().enumerate() {
                if refuse == Some(number) { encoder.limit(100); }
                let mut block = Vec::new();
                encoder.begin(&mut block);
                for (name, value, keep) in fields {
                    let keep = [Keep::No, Keep::Yes, Keep::Never][usize::from(*keep)];
                    encoder.field(&Field { keep, ..Field::new(name, value) }, &mut block);
                }
                let mut read = Fields::new(LIMITS);
                prop_assert_eq!(decoder.decode(&block, &mut read), Ok(()));
                let expected: Vec<_> = fields.iter().map(|(n, v, _)| (n.clone().into_bytes(), v.clone().into_bytes())).collect();
                prop_assert_eq!(list(&read), expected);
            }
        }
    }
}
