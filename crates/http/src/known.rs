//! Numbers of well-known field names, and the perfect hash that finds them.

mod list;
mod set;

pub use list::Known;
pub(crate) use set::NameSet;

/// The number of slots of the hash table; a power of two.
const SLOTS: usize = 1024;
/// The multiplier for which no two names share a slot. `cargo test -p lateen-http multiplier` names another if the list changes.
const MULTIPLIER: u64 = 0x0e82_b6a8_fab5_f3cf;
/// The slot value of no name. `ENTRIES` has an entry there that no name equals.
const NONE: u8 = 127;

impl Known {
    /// The name in lower case.
    pub const fn as_str(self) -> &'static str {
        list::TEXTS[self as usize]
    }

    /// The number of a name in any case of letters (RFC 9110 §5.1).
    #[inline]
    pub fn of(name: &[u8]) -> Option<Known> {
        let (front, back) = ends(name)?;
        let entry = &ENTRIES[TABLE[slot(front, back, name.len(), MULTIPLIER)] as usize & 127];
        let differs = ((front ^ entry.front) & entry.front_mask)
            | ((back ^ entry.back) & entry.back_mask)
            | (name.len() as u64 ^ entry.length);
        if differs != 0 {
            return None;
        }
        if name.len() > 16 && !name.eq_ignore_ascii_case(entry.text) {
            return None;
        }
        Some(entry.known)
    }

    /// The number of a name that has no capital letters, as HTTP/2 demands (RFC 9113 §8.2).
    #[inline]
    pub fn of_lower(name: &[u8]) -> Option<Known> {
        let (front, back) = ends(name)?;
        let entry = &ENTRIES[TABLE[slot(front, back, name.len(), MULTIPLIER)] as usize & 127];
        let differs =
            (front ^ entry.front) | (back ^ entry.back) | (name.len() as u64 ^ entry.length);
        // The two words are all of a name of at most 16 bytes.
        if differs != 0 || name.len() > 16 && name != entry.text {
            return None;
        }
        Some(entry.known)
    }
}

/// A known name with the words that are compared.
#[derive(Clone, Copy)]
struct Entry {
    front: u64,
    back: u64,
    /// All bits but the one that tells the case of a letter.
    front_mask: u64,
    back_mask: u64,
    length: u64,
    text: &'static [u8],
    known: Known,
}

/// Two words of a name: its first and its last bytes, overlapping if it is short. Of a name of more than 16 bytes the second
/// eight stand for the first, which many names share. None if the name is empty.
#[inline(always)]
const fn ends(name: &[u8]) -> Option<(u64, u64)> {
    if let (Some(front), Some(back)) = (name.first_chunk::<8>(), name.last_chunk::<8>()) {
        if name.len() > 16
            && let Some((_, rest)) = name.split_first_chunk::<8>()
            && let Some(second) = rest.first_chunk::<8>()
        {
            return Some((u64::from_le_bytes(*second), u64::from_le_bytes(*back)));
        }
        return Some((u64::from_le_bytes(*front), u64::from_le_bytes(*back)));
    }
    if let (Some(front), Some(back)) = (name.first_chunk::<4>(), name.last_chunk::<4>()) {
        let (front, back) = (u32::from_le_bytes(*front), u32::from_le_bytes(*back));
        return Some((front as u64, back as u64));
    }
    match name {
        [one] => Some((*one as u64, 0)),
        [one, two] => Some((*one as u64, *two as u64)),
        [one, two, three] => Some((*one as u64 | (*two as u64) << 8, *three as u64)),
        _ => None,
    }
}

const CASE: u64 = 0x2020_2020_2020_2020;

#[inline(always)]
const fn slot(front: u64, back: u64, length: usize, multiplier: u64) -> usize {
    let mixed = (front | CASE) ^ (back | CASE).rotate_left(23) ^ (length as u64);
    (mixed.wrapping_mul(multiplier) >> (64 - SLOTS.trailing_zeros())) as usize
}

/// 0x20 in each byte that is a lower-case letter.
const fn letters(word: u64) -> u64 {
    let bytes = word.to_le_bytes();
    let mut mask = [0; 8];
    let mut n = 0;
    while n < 8 {
        if bytes[n].is_ascii_lowercase() {
            mask[n] = 0x20;
        }
        n += 1;
    }
    u64::from_le_bytes(mask)
}

static ENTRIES: [Entry; 128] = {
    let absent = Entry {
        front: 0,
        back: 0,
        front_mask: 0,
        back_mask: 0,
        length: u64::MAX,
        text: &[],
        known: list::ALL[0],
    };
    let mut entries = [absent; 128];
    let mut n = 0;
    while n < list::COUNT {
        let text = list::TEXTS[n].as_bytes();
        if let Some((front, back)) = ends(text) {
            entries[n] = Entry {
                front,
                back,
                front_mask: !letters(front),
                back_mask: !letters(back),
                length: text.len() as u64,
                text,
                known: list::ALL[n],
            };
        }
        n += 1;
    }
    entries
};

static TABLE: [u8; SLOTS] = match table(MULTIPLIER) {
    Some(table) => table,
    None => panic!("two field names share a slot: choose another multiplier"),
};

/// The hash table, or None if two names share a slot.
const fn table(multiplier: u64) -> Option<[u8; SLOTS]> {
    let mut table = [NONE; SLOTS];
    let mut n = 0;
    while n < list::COUNT {
        let text = list::TEXTS[n].as_bytes();
        let Some((front, back)) = ends(text) else {
            return None;
        };
        let slot = slot(front, back, text.len(), multiplier);
        if table[slot] != NONE {
            return None;
        }
        table[slot] = n as u8;
        n += 1;
    }
    Some(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_name_is_found_in_any_case_and_its_neighbours_are_not() {
        for &known in list::ALL {
            let text = known.as_str();
            let upper = text.to_ascii_uppercase();
            assert_eq!(Known::of(text.as_bytes()), Some(known), "{text}");
            assert_eq!(Known::of(upper.as_bytes()), Some(known), "{text}");
            assert_eq!(Known::of_lower(text.as_bytes()), Some(known), "{text}");
            assert_eq!(Known::of_lower(upper.as_bytes()), None, "{text}");
            for at in 0..text.len() {
                for byte in 0..=255u8 {
                    let mut other = text.as_bytes().to_vec();
                    other[at] = byte;
                    let found = Known::of(&other).map(Known::as_str);
                    let lower = other.to_ascii_lowercase();
                    let expected = list::TEXTS
                        .iter()
                        .copied()
                        .find(|known| known.as_bytes() == lower);
                    assert_eq!(found, expected, "{text} with {byte} at {at}");
                }
            }
            assert_eq!(
                Known::of(&text.as_bytes()[1..]).map(Known::as_str),
                list::TEXTS
                    .iter()
                    .copied()
                    .find(|other| *other == &text[1..])
            );
        }
        assert_eq!(Known::of(b""), None);
    }

    #[test]
    fn names_are_unique_tokens_in_lower_case() {
        let mut texts = list::TEXTS.to_vec();
        texts.sort_unstable();
        texts.dedup();
        assert_eq!(texts.len(), list::COUNT);
        for text in texts {
            let is_token =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            assert!(text.bytes().all(is_token), "{text}");
        }
        assert!(
            list::COUNT < NONE as usize,
            "the table has room for 126 names"
        );
    }

    #[test]
    fn the_multiplier_has_no_collisions() {
        let mut candidate = MULTIPLIER;
        for _ in 0..1_000_000 {
            if table(candidate).is_some() {
                assert_eq!(candidate, MULTIPLIER, "use {candidate:#x}");
                return;
            }
            candidate = candidate
                .wrapping_mul(0x5851_f42d_4c95_7f2d)
                .wrapping_add(0x1405_7b7e_f767_814e)
                | 1;
        }
        panic!("no multiplier was found: use more slots");
    }
}
