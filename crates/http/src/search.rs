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

/// The position of the first control character from `at` on, or the length of `bytes`. HTAB is no control character here.
#[inline]
pub fn control(bytes: &[u8], at: usize) -> usize {
    let mut at = skip(bytes, at, is_control);
    loop {
        at = find(
            bytes,
            at,
            |word| below(word, 0x20) | equal(word, 0x7f),
            is_control,
        );
        if bytes.get(at) != Some(&b'\t') {
            return at;
        }
        at = skip(bytes, at + 1, is_control);
    }
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
