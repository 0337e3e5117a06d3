//! Searches for classes of bytes, several bytes at a time.

use crate::scan::{TOKEN, is_control};

/// Eight bytes of value 1.
pub const ONES: u64 = u64::MAX / 255;
/// The highest bit of eight bytes.
pub const HIGH: u64 = ONES << 7;

/// Marks, by their highest bits, the bytes of `word` that equal `byte`. Marks above the lowest may be false.
#[inline(always)]
pub fn equal(word: u64, byte: u8) -> u64 {
    let zero = word ^ (ONES * byte as u64);
    zero.wrapping_sub(ONES) & !zero & HIGH
}

/// Marks the bytes of `word` below `byte`, which is at most 128. Marks above the lowest may be false.
#[inline(always)]
pub fn below(word: u64, byte: u8) -> u64 {
    word.wrapping_sub(ONES * byte as u64) & !word & HIGH
}

/// Marks the bytes of `word` that are neither a letter nor a hyphen. All marks below a byte beyond ASCII are exact.
#[inline(always)]
fn unusual(word: u64) -> u64 {
    let lower = word | (ONES << 5);
    let from_a = (lower | HIGH) - ONES * b'a' as u64;
    let above_z = lower.wrapping_add(ONES * (0x7f - b'z' as u64));
    let hyphen = word ^ (ONES * b'-' as u64);
    let not_hyphen = ((hyphen & !HIGH) + !HIGH) | hyphen;
    (!from_a | lower | above_z) & not_hyphen & HIGH
}

/// The position of the first byte from `at` on that `is_stop` names, or the length of `bytes`. `stops` marks at least these in a word.
#[inline(always)]
pub fn find(
    bytes: &[u8],
    at: usize,
    stops: impl Fn(u64) -> u64,
    is_stop: impl Fn(u8) -> bool,
) -> usize {
    let mut rest = bytes.get(at..).unwrap_or_default();
    while let Some((chunk, behind)) = rest.split_first_chunk::<8>() {
        let marks = stops(u64::from_le_bytes(*chunk));
        if marks != 0 {
            return bytes.len() - rest.len() + marks.trailing_zeros() as usize / 8;
        }
        rest = behind;
    }
    let found = rest.iter().position(|&byte| is_stop(byte));
    bytes.len() - rest.len() + found.unwrap_or(rest.len())
}

/// Skips groups of sixteen bytes without a stop. The compiler makes vector instructions of it if `is_stop` has no branches.
#[inline(always)]
pub fn skip(bytes: &[u8], at: usize, is_stop: impl Fn(u8) -> bool) -> usize {
    let mut rest = bytes.get(at..).unwrap_or_default();
    while let Some((chunk, behind)) = rest.split_first_chunk::<16>() {
        if chunk.iter().fold(false, |any, &byte| any | is_stop(byte)) {
            break;
        }
        rest = behind;
    }
    bytes.len() - rest.len()
}

/// Marks the control characters among sixteen bytes with all eight bits. The compiler makes vector instructions of it.
#[inline(always)]
fn controls(chunk: &[u8; 16]) -> u128 {
    let mut marks = [0; 16];
    for (mark, &byte) in marks.iter_mut().zip(chunk) {
        *mark = 0u8.wrapping_sub(u8::from(is_control(byte)));
    }
    u128::from_le_bytes(marks)
}

/// The position of the first control character from `at` on, or the length of `bytes`. HTAB is no control character here.
#[inline]
pub fn control(bytes: &[u8], at: usize) -> usize {
    let mut rest = bytes.get(at..).unwrap_or_default();
    while let Some((chunk, behind)) = rest.split_first_chunk::<16>() {
        let marks = controls(chunk);
        if marks != 0 {
            return bytes.len() - rest.len() + marks.trailing_zeros() as usize / 8;
        }
        rest = behind;
    }
    let left = rest.len();
    let found = match bytes.last_chunk::<16>() {
        // The last sixteen bytes once more, without those that were searched.
        Some(chunk) if left > 0 => {
            let marks = controls(chunk) >> (8 * (16 - left));
            (marks.trailing_zeros() as usize / 8).min(left)
        }
        Some(_) => 0,
        None => rest
            .iter()
            .position(|&byte| is_control(byte))
            .unwrap_or(left),
    };
    bytes.len() - left + found
}

/// The position of the first byte from `at` on that no token has, or the length of `bytes`.
#[inline]
pub fn token(bytes: &[u8], at: usize) -> usize {
    // Nearly all names consist of letters and hyphens.
    let mut at = find(bytes, at, unusual, |byte| !TOKEN[byte as usize]);
    while at < bytes.len() && TOKEN[bytes[at] as usize] {
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn searches_find_what_a_look_at_each_byte_finds(
            bytes in prop::collection::vec(prop_oneof![9 => 0x2du8..0x7b, 1 => any::<u8>()], 0..70),
            at in 0usize..80,
        ) {
            let from = at.min(bytes.len());
            let by_hand = |is_stop: &dyn Fn(u8) -> bool| {
                let found = bytes[from..].iter().position(|&byte| is_stop(byte));
                found.map_or(bytes.len(), |found| from + found)
            };
            prop_assert_eq!(control(&bytes, at), by_hand(&is_control));
            prop_assert_eq!(token(&bytes, at), by_hand(&|byte| !TOKEN[byte as usize]));
        }
    }
}
