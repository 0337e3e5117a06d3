//! Offsets of the running kernel's fields, from its own type information (BTF), as in `/sys/kernel/btf/vmlinux`.

use std::collections::{HashMap, HashSet};

const MAGIC: u16 = 0xeb9f;
/// Structures within structures; the kernel's sockets have five levels.
const DEEPEST: usize = 32;

/// The kinds of types that are looked into, and how much follows the head of the others.
mod kind {
    pub(super) const INT: u32 = 1;
    pub(super) const ARRAY: u32 = 3;
    pub(super) const STRUCT: u32 = 4;
    pub(super) const UNION: u32 = 5;
    pub(super) const ENUM: u32 = 6;
    pub(super) const TYPEDEF: u32 = 8;
    pub(super) const VOLATILE: u32 = 9;
    pub(super) const CONST: u32 = 10;
    pub(super) const RESTRICT: u32 = 11;
    pub(super) const FUNC_PROTO: u32 = 13;
    pub(super) const VAR: u32 = 14;
    pub(super) const DATASEC: u32 = 15;
    pub(super) const DECL_TAG: u32 = 17;
    pub(super) const TYPE_TAG: u32 = 18;
    pub(super) const ENUM64: u32 = 19;
    pub(super) const LAST: u32 = ENUM64;
}

/// Why type information cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BtfError {
    /// It is no type information, or not of this machine's byte order.
    #[error("it is no BTF")]
    Foreign,
    /// It ends in the middle, or points beyond its end.
    #[error("it is cut short")]
    Short,
    /// A type of a kind that is newer than this program, whose length is not known.
    #[error("type {0} is of the unknown kind {1}")]
    UnknownKind(usize, u32),
    /// The kernel has no such field.
    #[error("there is no {0}")]
    Missing(String),
}

/// Types, read once.
#[derive(Debug)]
pub struct Types<'a> {
    strings: &'a [u8],
    /// The head of each type and what follows it; type 0 is `void`.
    types: Vec<(Head, &'a [u8])>,
    /// Structures by name.
    structs: HashMap<&'a [u8], usize>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Head {
    name: u32,
    info: u32,
    /// A size, or another type.
    other: u32,
}

impl Head {
    fn kind(self) -> u32 {
        self.info >> 24 & 0x1f
    }

    fn length(self) -> usize {
        (self.info & 0xffff) as usize
    }

    /// Members' places have the width of a bit field in their upper byte.
    fn has_bit_fields(self) -> bool {
        self.info >> 31 == 1
    }
}

fn word(bytes: &[u8], at: usize) -> Result<u32, BtfError> {
    let end = at.checked_add(4).ok_or(BtfError::Short)?;
    let word = bytes.get(at..end).ok_or(BtfError::Short)?;
    Ok(u32::from_ne_bytes(word.try_into().expect("four bytes")))
}

/// The part of `bytes` behind the header that it describes by `offset` and `length`.
fn section(bytes: &[u8], header: usize, offset: u32, length: u32) -> Result<&[u8], BtfError> {
    let start = header.checked_add(offset as usize).ok_or(BtfError::Short)?;
    let end = start.checked_add(length as usize).ok_or(BtfError::Short)?;
    bytes.get(start..end).ok_or(BtfError::Short)
}

impl<'a> Types<'a> {
    /// Reads type information.
    ///
    /// # Errors
    /// It is none, is cut short, or has kinds of types that are not known.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, BtfError> {
        match bytes.first_chunk() {
            Some(magic) if u16::from_ne_bytes(*magic) == MAGIC => {}
            _ => return Err(BtfError::Foreign),
        }
        let header = word(bytes, 4)? as usize;
        let mut rest = section(bytes, header, word(bytes, 8)?, word(bytes, 12)?)?;
        let strings = section(bytes, header, word(bytes, 16)?, word(bytes, 20)?)?;
        let mut read = Types {
            strings,
            types: vec![(Head::default(), &[])],
            structs: HashMap::new(),
        };
        while !rest.is_empty() {
            let head = Head {
                name: word(rest, 0)?,
                info: word(rest, 4)?,
                other: word(rest, 8)?,
            };
            let length = match head.kind() {
                kind::INT | kind::VAR | kind::DECL_TAG => 4,
                kind::ARRAY => 12,
                kind::STRUCT | kind::UNION | kind::DATASEC | kind::ENUM64 => 12 * head.length(),
                kind::ENUM | kind::FUNC_PROTO => 8 * head.length(),
                kind if kind == 0 || kind > kind::LAST => {
                    return Err(BtfError::UnknownKind(read.types.len(), kind));
                }
                _ => 0,
            };
            let body = rest.get(12..12 + length).ok_or(BtfError::Short)?;
            if head.kind() == kind::STRUCT {
                let name = read.name(head.name)?;
                read.structs.entry(name).or_insert(read.types.len());
            }
            read.types.push((head, body));
            rest = &rest[12 + length..];
        }
        Ok(read)
    }

    fn name(&self, offset: u32) -> Result<&'a [u8], BtfError> {
        let from = self.strings.get(offset as usize..).ok_or(BtfError::Short)?;
        let end = from.iter().position(|byte| *byte == 0);
        Ok(&from[..end.ok_or(BtfError::Short)?])
    }

    /// The bytes between the start of the structure `of` and the field at the end of `path`, each part of which is a
    /// member of the one before. Members of nameless structures and unions count as members of what they are in.
    ///
    /// # Errors
    /// There is no such field, or it is a bit field.
    pub fn offset(&self, of: &str, path: &[&str]) -> Result<u32, BtfError> {
        let missing = || BtfError::Missing(format!("{of}.{}", path.join(".")));
        let mut at = *self.structs.get(of.as_bytes()).ok_or_else(missing)?;
        let mut bits: u32 = 0;
        for part in path {
            let found = self.member(at, part.as_bytes(), 0, &mut HashSet::new())?;
            let (inside, other) = found.ok_or_else(missing)?;
            bits = bits.checked_add(inside).ok_or(BtfError::Short)?;
            at = other;
        }
        Ok(bits / 8)
    }

    /// The place in bits, and the type, of a member. `seen` are the types that were looked into already: one that lacks the
    /// member lacks it wherever else it stands, and looking each time would take exponential time.
    fn member(
        &self,
        of: usize,
        name: &[u8],
        depth: usize,
        seen: &mut HashSet<usize>,
    ) -> Result<Option<(u32, usize)>, BtfError> {
        let bare = self.bare(of)?;
        let (head, body) = *self.types.get(bare).ok_or(BtfError::Short)?;
        let looks = matches!(head.kind(), kind::STRUCT | kind::UNION) && depth <= DEEPEST;
        if !looks || !seen.insert(bare) {
            return Ok(None);
        }
        for member in body.chunks_exact(12) {
            let (own, other) = (self.name(word(member, 0)?)?, word(member, 4)? as usize);
            let mut place = word(member, 8)?;
            if head.has_bit_fields() {
                if place >> 24 != 0 {
                    continue;
                }
                place &= 0xff_ffff;
            }
            if own == name {
                return Ok(Some((place, other)));
            }
            if own.is_empty()
                && let Some((inside, other)) = self.member(other, name, depth + 1, seen)?
            {
                let place = place.checked_add(inside).ok_or(BtfError::Short)?;
                return Ok(Some((place, other)));
            }
        }
        Ok(None)
    }

    /// What a type is without other names for it and without qualifiers.
    fn bare(&self, mut at: usize) -> Result<usize, BtfError> {
        for _ in 0..DEEPEST {
            let (head, _) = self.types.get(at).ok_or(BtfError::Short)?;
            match head.kind() {
                kind::TYPEDEF | kind::VOLATILE | kind::CONST | kind::RESTRICT | kind::TYPE_TAG => {
                    at = head.other as usize
                }
                _ => break,
            }
        }
        Ok(at)
    }

    /// The number that an enumeration gives to a name.
    ///
    /// # Errors
    /// No enumeration has that name.
    pub fn number(&self, name: &str) -> Result<u32, BtfError> {
        for (head, body) in &self.types {
            if head.kind() != kind::ENUM {
                continue;
            }
            for each in body.chunks_exact(8) {
                if self.name(word(each, 0)?)? == name.as_bytes() {
                    return word(each, 4);
                }
            }
        }
        Err(BtfError::Missing(name.to_owned()))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Type information with these types, each given by its words.
    fn blob(strings: &[u8], types: &[&[u32]]) -> Vec<u8> {
        let types: Vec<u8> = types
            .concat()
            .into_iter()
            .flat_map(u32::to_ne_bytes)
            .collect();
        let mut blob = MAGIC.to_ne_bytes().to_vec();
        blob.extend([1, 0]);
        let (types_len, strings_len) = (types.len() as u32, strings.len() as u32);
        for word in [24, 0, types_len, types_len, strings_len] {
            blob.extend(word.to_ne_bytes());
        }
        blob.extend(types);
        blob.extend(strings);
        blob
    }

    const STRINGS: &[u8] = b"\0int\0inner\0outer\0x\0y\0z\0RED\0";

    fn info(kind: u32, length: u32) -> u32 {
        kind << 24 | length
    }

    fn sample() -> Vec<u8> {
        let types: [&[u32]; 6] = [
            // 1: int
            &[1, info(kind::INT, 0), 4, 32],
            // 2: struct inner { int x at 32 bits; }
            &[5, info(kind::STRUCT, 1), 8, 17, 1, 32],
            // 3: const struct inner
            &[0, info(kind::CONST, 0), 2],
            // 4: union { int y; }
            &[0, info(kind::UNION, 1), 4, 19, 1, 0],
            // 5: struct outer { const struct inner z at 64 bits; union {..} at 128 bits; }
            &[11, info(kind::STRUCT, 2), 24, 21, 3, 64, 0, 4, 128],
            // 6: enum { RED = 7 }
            &[0, info(kind::ENUM, 1), 4, 23, 7],
        ];
        blob(STRINGS, &types)
    }

    #[test]
    fn finds_members_of_members() {
        let blob = sample();
        let types = Types::parse(&blob).unwrap();
        assert_eq!(types.offset("inner", &["x"]), Ok(4));
        assert_eq!(types.offset("outer", &["z", "x"]), Ok(12));
        assert_eq!(types.offset("outer", &["y"]), Ok(16), "in a nameless union");
        assert_eq!(types.number("RED"), Ok(7));
    }

    #[test]
    fn says_what_is_missing() {
        let blob = sample();
        let types = Types::parse(&blob).unwrap();
        let error = types.offset("outer", &["z", "y"]).unwrap_err();
        assert_eq!(error.to_string(), "there is no outer.z.y");
        assert!(types.offset("other", &["x"]).is_err());
        assert!(types.number("BLUE").is_err());
    }

    #[test]
    fn refuses_what_is_no_type_information() {
        assert_eq!(Types::parse(b"\x7fELF....").unwrap_err(), BtfError::Foreign);
        assert_eq!(Types::parse(&[]).unwrap_err(), BtfError::Foreign);
    }

    #[test]
    fn refuses_kinds_that_it_does_not_know() {
        let blob = blob(STRINGS, &[&[0, info(20, 0), 0]]);
        assert_eq!(
            Types::parse(&blob).unwrap_err(),
            BtfError::UnknownKind(1, 20)
        );
    }

    #[test]
    fn a_structure_that_contains_itself_ends() {
        let blob = blob(STRINGS, &[&[5, info(kind::STRUCT, 1), 8, 0, 1, 0]]);
        let types = Types::parse(&blob).unwrap();
        assert!(types.offset("inner", &["x"]).is_err());
    }

    /// Four nameless members that are the structure itself: looking into each each time would be 4³² looks.
    #[test]
    fn each_structure_is_looked_into_once() {
        let members = [0, 1, 0, 0, 1, 32, 0, 1, 64, 0, 1, 96];
        let of = [&[5, info(kind::STRUCT, 4), 16], &members[..]].concat();
        let blob = blob(STRINGS, &[&of]);
        let types = Types::parse(&blob).unwrap();
        assert!(types.offset("inner", &["x"]).is_err());
    }

    #[test]
    fn reads_the_running_kernel() {
        let Ok(bytes) = std::fs::read("/sys/kernel/btf/vmlinux") else {
            // Kernels without it are told to their users: see `Unavailable`.
            return;
        };
        let types = Types::parse(&bytes).unwrap();
        assert_eq!(types.offset("sk_buff", &["next"]), Ok(0));
    }

    proptest! {
        #[test]
        fn bytes_of_any_kind_do_no_harm(
            at in 0usize..200, value: u8, cut in 0usize..250, at2 in 0usize..200, value2: u8,
        ) {
            let mut blob = sample();
            let length = blob.len();
            blob[at % length] = value;
            blob[at2 % length] = value2;
            blob.truncate(length.saturating_sub(cut % length).max(1));
            if let Ok(types) = Types::parse(&blob) {
                let _ = types.offset("outer", &["z", "x"]);
                let _ = types.offset("outer", &["y"]);
                let _ = types.number("RED");
            }
        }
    }
}
