//! Decoder of header blocks into [`Fields`], which holds no more than the limit of a header list.

use super::statics::STATIC;
use super::table::Table;
use super::{Fields, Known, TABLE, Unreadable, huffman, integer};

/// A table's field: its number if it is a known one, its name and its value.
type Entry<'a> = (Option<Known>, &'a [u8], &'a [u8]);

const NO_FIELD: Unreadable = "an index of no field";

/// Reads the blocks that one peer sends on one connection.
#[derive(Debug)]
pub struct Decoder {
    table: Table,
}

impl Default for Decoder {
    fn default() -> Self {
        Decoder::new()
    }
}

impl Decoder {
    /// A decoder with an empty table of 4,096 bytes (RFC 9113 §6.5.2).
    pub fn new() -> Self {
        Decoder {
            table: Table::new(),
        }
    }

    /// Gives back memory that what the peer keeps here does not need.
    pub(crate) fn rest(&mut self) {
        self.table.rest();
    }

    /// Adds one block to `fields`. Fields beyond its limits are counted there and dropped.
    ///
    /// # Errors
    /// The block cannot be read. The connection is of no more use.
    pub fn decode(&mut self, mut block: &[u8], fields: &mut Fields) -> Result<(), Unreadable> {
        let mut begun = false;
        while let Some(&first) = block.first() {
            if first & 0x80 != 0 {
                let index = integer::read(&mut block, 7)?;
                match (index as usize).checked_sub(STATIC.len() + 1) {
                    Some(place) => {
                        let entry = self.table.whole(place);
                        let (known, both, name) = entry.ok_or(NO_FIELD)?;
                        fields.push_entry(known, both, name);
                    }
                    None => {
                        let (known, name, value) = self.entry(index)?;
                        fields.push(known, name, value);
                    }
                }
            } else if first & 0xe0 == 0x20 {
                let most = integer::read(&mut block, 5)?;
                if begun || most > TABLE {
                    return Err("a table size that may not be");
                }
                self.table.resize(most);
                continue;
            } else {
                self.literal(&mut block, first, fields)?;
            }
            begun = true;
        }
        Ok(())
    }

    fn literal(
        &mut self,
        block: &mut &[u8],
        first: u8,
        fields: &mut Fields,
    ) -> Result<(), Unreadable> {
        let keep = first & 0x40 != 0;
        let index = integer::read(block, if keep { 6 } else { 4 })?;
        fields.begin(first & 0xf0 == 0x10);
        if index == 0 {
            string(block, fields)?;
            fields.end_new_name();
        } else {
            let (known, name, _) = self.entry(index)?;
            fields.append(name);
            fields.end_name(known);
        }
        string(block, fields)?;
        match fields.end_value() {
            None if keep => self.table.clear(),
            Some((known, name, value)) if keep => self.table.insert(known, name, value),
            _ => {}
        }
        Ok(())
    }

    #[inline]
    fn entry(&self, index: u32) -> Result<Entry<'_>, Unreadable> {
        let place = (index as usize).checked_sub(1).ok_or(NO_FIELD)?;
        match STATIC.get(place) {
            Some((name, value)) => Ok((Known::of_static(place), name.as_bytes(), value.as_bytes())),
            None => self.table.get(place - STATIC.len()).ok_or(NO_FIELD),
        }
    }
}

/// Reads a string (RFC 7541 §5.2) to the end of the field that is being made.
fn string(block: &mut &[u8], fields: &mut Fields) -> Result<(), Unreadable> {
    const CUT: Unreadable = "it is cut short";
    let huffman = block.first().ok_or(CUT)? & 0x80 != 0;
    let length = integer::read(block, 7)?;
    let (text, rest) = block.split_at_checked(length as usize).ok_or(CUT)?;
    *block = rest;
    if huffman {
        return fields.append_with(|out, most| huffman::decode(text, out, most));
    }
    fields.append(text);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hpack::Limits;
    use proptest::prelude::*;

    fn limits(size: u32) -> Limits {
        Limits {
            size,
            fields: 100_000,
        }
    }

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
        digits
            .chunks(2)
            .map(|pair| (pair[0] << 4 | pair[1]) as u8)
            .collect()
    }

    fn read(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<(String, String)>, Unreadable> {
        let mut fields = Fields::new(limits(1 << 16));
        decoder.decode(block, &mut fields)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(fields
            .iter()
            .map(|(name, value)| (text(name), text(value)))
            .collect())
    }

    fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter()
            .map(|(n, v)| (n.to_string(), v.to_string()))
            .collect()
    }

    /// RFC 7541 C.2: one field each, on a connection of its own.
    #[test]
    fn single_fields_of_the_rfc_are_read() {
        for (block, name, value) in [
            (
                "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
                "custom-key",
                "custom-header",
            ),
            (
                "040c 2f73 616d 706c 652f 7061 7468",
                ":path",
                "/sample/path",
            ),
            (
                "1008 7061 7373 776f 7264 0673 6563 7265 74",
                "password",
                "secret",
            ),
            ("82", ":method", "GET"),
        ] {
            let list = read(&mut Decoder::new(), &hex(block));
            assert_eq!(list, Ok(pairs(&[(name, value)])));
        }
    }

    /// RFC 7541 §6.2.3, and C.2.3.
    #[test]
    fn literal_that_is_never_indexed_is_marked() {
        let mut fields = Fields::new(limits(1000));
        let block = [
            hex("040c 2f73 616d 706c 652f 7061 7468"),
            hex("1008 7061 7373 776f 7264 0673 6563 7265 74"),
            hex("1401 2f 40 0161 0162 be 82"),
        ];
        Decoder::new()
            .decode(&block.concat(), &mut fields)
            .expect("it is good");
        let lines = fields.lines().map(|line| line.never_indexed);
        assert_eq!(
            lines.collect::<Vec<_>>(),
            [false, true, true, false, false, false]
        );
        assert!(
            fields
                .places()
                .map(|place| place.never_indexed)
                .eq(fields.lines().map(|line| line.never_indexed))
        );
    }

    /// RFC 7541 C.3 and C.4: the same three requests, without and with Huffman.
    #[test]
    fn requests_of_the_rfc_are_read() {
        let first = [
            (":method", "GET"),
            (":scheme", "http"),
            (":path", "/"),
            (":authority", "www.example.com"),
        ];
        let second = [
            first[0],
            first[1],
            first[2],
            first[3],
            ("cache-control", "no-cache"),
        ];
        let third = [
            first[0],
            (":scheme", "https"),
            (":path", "/index.html"),
            first[3],
            ("custom-key", "custom-value"),
        ];
        for blocks in [
            [
                "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
                "8286 84be 5808 6e6f 2d63 6163 6865",
                "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
            ],
            [
                "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
                "8286 84be 5886 a8eb 1064 9cbf",
                "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
            ],
        ] {
            let mut decoder = Decoder::new();
            for (block, list) in blocks.iter().zip([&first[..], &second, &third]) {
                assert_eq!(read(&mut decoder, &hex(block)), Ok(pairs(list)));
            }
        }
    }

    /// RFC 7541 C.5 and C.6: responses, with a table of 256 bytes that evicts.
    #[test]
    fn responses_of_the_rfc_are_read() {
        let date = ("date", "Mon, 21 Oct 2013 20:13:21 GMT");
        let place = ("location", "https://www.example.com");
        let first = [
            (":status", "302"),
            ("cache-control", "private"),
            date,
            place,
        ];
        let second = [(":status", "307"), first[1], date, place];
        let third = [
            (":status", "200"),
            first[1],
            ("date", "Mon, 21 Oct 2013 20:13:22 GMT"),
            place,
            ("content-encoding", "gzip"),
            (
                "set-cookie",
                "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
            ),
        ];
        for blocks in [
            [
                "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
                "4803 3330 37c1 c0bf",
                "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
            ],
            [
                "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
                "4883 640e ffc1 c0bf",
                "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
            ],
        ] {
            let mut decoder = Decoder::new();
            decoder.table.resize(256);
            for (block, list) in blocks.iter().zip([&first[..], &second, &third]) {
                assert_eq!(read(&mut decoder, &hex(block)), Ok(pairs(list)));
            }
        }
    }

    #[test]
    fn what_the_rfc_forbids_is_refused() {
        for (block, why) in [
            ("80", "index 0"),
            ("be", "nothing is in the table yet"),
            ("ff ff ff ff ff 01", "an integer without end"),
            ("82 20", "a table size behind a field"),
            ("3f e2 1f", "a table size above ours"),
            ("40 05 61", "a name cut short"),
            ("40 01 61", "no value"),
            ("00 82 ff ff 01 61", "bad Huffman"),
            ("40", "a name without its length"),
            ("40 01", "a name without its text"),
            ("41 8c f1 e3", "a Huffman value cut short"),
            ("7f ff ff ff ff 7f", "an index beyond both tables"),
            ("40 ff ff ff ff 7f", "a length beyond the block"),
        ] {
            assert!(read(&mut Decoder::new(), &hex(block)).is_err(), "{why}");
        }
    }

    /// A large entry named many times costs a byte each: nothing of it is kept beyond the limit.
    #[test]
    fn a_bomb_is_counted_and_not_kept() {
        let mut block = hex("40 01 61 7f 81 1d");
        block.extend([b'x'; 127 + 1 + 29 * 128]);
        let mut decoder = Decoder::new();
        read(&mut decoder, &block).expect("it fits");
        let mut fields = Fields::new(limits(16 * 1024));
        decoder
            .decode(&[0xbe; 16_000], &mut fields)
            .expect("each is good");
        assert!(fields.is_too_large());
        assert!(fields.kept() <= 16 * 1024 + TABLE as usize);
    }

    /// RFC 7541 §4.4, also where the header list has no room for it.
    #[test]
    fn an_entry_larger_than_the_table_empties_it() {
        let mut decoder = Decoder::new();
        read(&mut decoder, &hex("40 01 61 01 62")).expect("it fits");
        assert!(decoder.table.get(0).is_some());
        let mut block = hex("40 01 61 7f 81 7f");
        block.extend([b'x'; 127 + 1 + 127 * 128]);
        let mut fields = Fields::new(limits(500));
        decoder.decode(&block, &mut fields).expect("it is good");
        assert!(fields.is_too_large() && fields.is_empty());
        assert!(decoder.table.get(0).is_none());
    }

    /// What a list has no room for is still known to the peer by its index.
    #[test]
    fn an_entry_that_the_list_has_no_room_for_is_kept_in_the_table() {
        let mut decoder = Decoder::new();
        let mut block = hex("40 01 61 7f 81 0e");
        block.extend([b'x'; 127 + 1 + 14 * 128]);
        let mut fields = Fields::new(limits(1000));
        decoder.decode(&block, &mut fields).expect("it is good");
        assert!(fields.is_too_large());
        assert_eq!(
            decoder.table.get(0).map(|(_, _, value)| value.len()),
            Some(1920)
        );
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(blocks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..5)) {
            let mut decoder = Decoder::new();
            let mut fields = Fields::new(limits(500));
            for block in blocks {
                fields.clear();
                let read = decoder.decode(&block, &mut fields);
                prop_assert!(fields.kept() <= 500 + TABLE as usize);
                if read.is_err() { break; }
            }
        }
    }
}
