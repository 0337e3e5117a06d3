//! Byte classes of RFC 9110 §5.5 and §5.6.2, and searches for them eight bytes at a time.

/// Eight bytes of value 1.
const ONES: u64 = u64::MAX / 255;
/// The highest bit of eight bytes.
const HIGH: u64 = ONES << 7;

/// Marks the bytes that equal `byte`. The lowest mark is exact; higher marks may be false.
#[inline(always)]
fn equal(word: u64, byte: u8) -> u64 {
    let zero = word ^ (ONES * byte as u64);
    zero.wrapping_sub(ONES) & !zero & HIGH
}

/// Marks the bytes below `byte`, which is at most 128. The lowest mark is exact; higher marks may be false.
#[inline(always)]
fn below(word: u64, byte: u8) -> u64 {
    word.wrapping_sub(ONES * byte as u64) & !word & HIGH
}

/// The position of the first byte from `at` on for which `stops` holds, or the length of `bytes`.
#[inline(always)]
fn find(
    bytes: &[u8],
    mut at: usize,
    marks: impl Fn(u64) -> u64,
    stops: impl Fn(u8) -> bool,
) -> usize {
    while let Some(chunk) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let hit = marks(u64::from_le_bytes(*chunk));
        if hit == 0 {
            at += 8;
            continue;
        }
        at += hit.trailing_zeros() as usize / 8;
        if stops(bytes[at]) {
            return at;
        }
        at += 1;
    }
    while at < bytes.len() && !stops(bytes[at]) {
        at += 1;
    }
    at
}

/// The position of the first control character from `at` on, or the length of `bytes`. HTAB is no control character here.
#[inline]
pub(crate) fn control(bytes: &[u8], at: usize) -> usize {
    find(
        bytes,
        at,
        |word| below(word, 0x20) | equal(word, 0x7f),
        is_control,
    )
}

/// The position of the first byte from `at` on that a request target cannot have, or the length of `bytes`.
#[inline]
pub(crate) fn target(bytes: &[u8], at: usize) -> usize {
    let marks = |word| below(word, 0x21) | equal(word, 0x7f) | equal(word, b'#') | (word & HIGH);
    find(bytes, at, marks, |byte| {
        !byte.is_ascii_graphic() || byte == b'#'
    })
}

/// The position of the first byte from `at` on that no token has, or the length of `bytes`.
#[inline(always)]
pub(crate) fn token(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() && TOKEN[bytes[at] as usize] {
        at += 1;
    }
    at
}

/// True for control characters that a field value cannot have (RFC 9110 §5.5).
fn is_control(byte: u8) -> bool {
    byte.is_ascii_control() && byte != b'\t'
}

/// True if `bytes` is a token (RFC 9110 §5.6.2).
pub(crate) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && token(bytes, 0) == bytes.len()
}

/// `bytes` without SP and HTAB at either end (RFC 9110 §5.6.3).
pub(crate) fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// The elements of a comma-separated list (RFC 9110 §5.6.1), trimmed, empty ones included.
pub(crate) fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(trim)
}

static TOKEN: [bool; 256] = tokens();

const fn tokens() -> [bool; 256] {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = matches!(
            byte as u8,
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.'
                | b'^' | b'_' | b'`' | b'|' | b'~'
        );
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn searches_agree_with_a_scan_of_single_bytes(bytes in prop::collection::vec(any::<u8>(), 0..40), from in 0usize..40) {
            let from = from.min(bytes.len());
            let first = |stops: &dyn Fn(u8) -> bool| bytes[from..].iter().position(|&byte| stops(byte)).map_or(bytes.len(), |n| from + n);
            prop_assert_eq!(control(&bytes, from), first(&|byte| byte != 9 && (byte < 32 || byte == 127)));
            prop_assert_eq!(target(&bytes, from), first(&|byte| byte <= 32 || byte >= 127 || byte == b'#'));
        }

        #[test]
        fn searches_find_a_single_byte_in_text(text in "[ -~]{0,40}", byte in any::<u8>(), at in 0usize..40) {
            let mut bytes = text.into_bytes();
            bytes.insert(at.min(bytes.len()), byte);
            let first = bytes.iter().position(|&byte| byte != 9 && (byte < 32 || byte == 127));
            prop_assert_eq!(control(&bytes, 0), first.unwrap_or(bytes.len()));
        }
    }

    #[test]
    fn tokens_are_those_of_the_grammar() {
        for byte in 0..=255u8 {
            let expected = byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
            assert_eq!(is_token(&[byte]), expected, "{byte}");
        }
        assert!(!is_token(b""));
    }
}
