//! Writes header blocks. What is the same for many requests of a connection goes into the peer's table once and is one
//! byte from then on; nothing is ever pushed out of there, so that an index means the same for as long as the connection
//! stands.

use super::statics::STATIC;
use super::{OVERHEAD, TABLE, integer};

/// Most fields that are kept in a peer's table.
const PINS: usize = 16;

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
}

impl<'a> Field<'a> {
    /// A field that may not come again.
    pub fn new(
        name: &'a (impl AsRef<[u8]> + ?Sized),
        value: &'a (impl AsRef<[u8]> + ?Sized),
    ) -> Self {
        Field {
            name: name.as_ref(),
            value: value.as_ref(),
            keep: Keep::No,
        }
    }

    /// The same, kept by the peer.
    pub fn kept(self) -> Self {
        Field {
            keep: Keep::Yes,
            ..self
        }
    }

    pub(crate) fn is_connect(&self) -> bool {
        self.name == b":method" && self.value == b"CONNECT"
    }

    /// As RFC 9113 §6.5.2 counts it.
    pub(crate) fn size(&self) -> usize {
        self.name.len() + self.value.len() + OVERHEAD
    }
}

/// The beginning of a header block, encoded once for all connections: it uses no table but the static one.
#[derive(Debug, Clone)]
pub struct Prebuilt {
    bytes: Box<[u8]>,
    size: usize,
    connect: bool,
}

impl Prebuilt {
    /// Encodes these fields; [`Keep::Yes`] has no meaning here.
    pub fn new<'a>(fields: impl IntoIterator<Item = Field<'a>>) -> Self {
        let (mut bytes, mut size, mut connect) = (Vec::new(), 0, false);
        for field in fields {
            connect |= field.is_connect();
            size += field.size();
            if !whole(field, &mut bytes) {
                literal(field, &mut bytes);
            }
        }
        Prebuilt {
            bytes: bytes.into(),
            size,
            connect,
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    pub(crate) fn is_connect(&self) -> bool {
        self.connect
    }
}

/// Writes the blocks of one connection.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    /// What the peer keeps, the oldest first: name and value in one piece, and the name's length.
    pins: Vec<(Box<[u8]>, u32)>,
    size: u32,
    /// The peer's table is smaller than the standard's: it is not used, and is to be told so.
    refused: bool,
    told: bool,
}

impl Encoder {
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

    /// Adds a field to the block.
    pub(crate) fn field(&mut self, field: Field<'_>, out: &mut Vec<u8>) {
        if field.keep == Keep::Yes {
            let name = field.name.len();
            let same = |(both, length): &(Box<[u8]>, u32)| {
                *length as usize == name
                    && both.len() == name + field.value.len()
                    && both[name..] == *field.value
                    && both[..name] == *field.name
            };
            if let Some(place) = self.pins.iter().position(same) {
                let index = STATIC.len() + self.pins.len() - place;
                return integer::write(index as u32, 7, 0x80, out);
            }
            if whole(field, out) {
                return;
            }
            if !self.refused
                && self.pins.len() < PINS
                && self.size as usize + field.size() <= TABLE as usize
            {
                self.size += field.size() as u32;
                self.pins
                    .push(([field.name, field.value].concat().into(), name as u32));
                return text(field, 6, 0x40, out);
            }
        } else if whole(field, out) {
            return;
        }
        literal(field, out);
    }
}

/// Writes a field that the static table has.
fn whole(field: Field<'_>, out: &mut Vec<u8>) -> bool {
    // All of them are pseudo-headers, but for one that nobody sends alike.
    if field.keep == Keep::Never || field.name.first() != Some(&b':') {
        return false;
    }
    let same = |(name, value): &(&str, &str)| {
        name.as_bytes() == field.name && value.as_bytes() == field.value && !value.is_empty()
    };
    match STATIC[..14].iter().position(same) {
        Some(place) => {
            integer::write(place as u32 + 1, 7, 0x80, out);
            true
        }
        None => false,
    }
}

fn literal(field: Field<'_>, out: &mut Vec<u8>) {
    let flags = if field.keep == Keep::Never { 0x10 } else { 0 };
    text(field, 4, flags, out);
}

fn text(field: Field<'_>, bits: u32, flags: u8, out: &mut Vec<u8>) {
    let same = |(name, _): &(&str, &str)| name.as_bytes() == field.name;
    let table = if field.name.first() == Some(&b':') {
        &STATIC[..14]
    } else {
        &STATIC[14..]
    };
    let offset = if table.len() == 14 { 1 } else { 15 };
    match table.iter().position(same) {
        Some(place) => integer::write((place + offset) as u32, bits, flags, out),
        None => {
            integer::write(0, bits, flags, out);
            string(field.name, out);
        }
    }
    string(field.value, out);
}

fn string(bytes: &[u8], out: &mut Vec<u8>) {
    integer::write(bytes.len() as u32, 7, 0, out);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::Fields;
    use crate::hpack::Decoder;
    use proptest::prelude::*;

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
        let (mut encoder, mut decoder) = (Encoder::default(), Decoder::new());
        let mut lengths = Vec::new();
        for _ in 0..3 {
            let mut block = Vec::new();
            encoder.begin(&mut block);
            fields
                .iter()
                .for_each(|field| encoder.field(*field, &mut block));
            let mut read = Fields::new(1 << 16);
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
        let mut encoder = Encoder::default();
        let block = |encoder: &mut Encoder| {
            let mut out = Vec::new();
            encoder.begin(&mut out);
            encoder.field(Field::new("a", "b").kept(), &mut out);
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

    proptest! {
        #[test]
        fn every_list_comes_back(
            blocks in prop::collection::vec(
                prop::collection::vec(("(:method|:path|baggage|[a-z]{1,9})", "[ -~]{0,60}", 0u8..3), 0..8), 1..12),
            refuse in prop::option::of(0usize..12),
        ) {
            let (mut encoder, mut decoder) = (Encoder::default(), Decoder::new());
            for (number, fields) in blocks.iter().enumerate() {
                if refuse == Some(number) { encoder.limit(100); }
                let mut block = Vec::new();
                encoder.begin(&mut block);
                for (name, value, keep) in fields {
                    let keep = [Keep::No, Keep::Yes, Keep::Never][usize::from(*keep)];
                    encoder.field(Field { keep, ..Field::new(name, value) }, &mut block);
                }
                let mut read = Fields::new(1 << 16);
                prop_assert_eq!(decoder.decode(&block, &mut read), Ok(()));
                let expected: Vec<_> = fields.iter().map(|(n, v, _)| (n.clone().into_bytes(), v.clone().into_bytes())).collect();
                prop_assert_eq!(list(&read), expected);
            }
        }
    }
}
