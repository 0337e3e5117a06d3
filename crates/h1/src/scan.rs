//! Byte classes of RFC 9110 §5.6.2 and RFC 3986, and searches for them several bytes at a time.

use lateen_http::search::{HIGH, below, equal, find, skip};
pub(crate) use lateen_http::search::{control, token};

/// The position of the first byte from `at` on that a request target cannot have, or the length of `bytes`.
#[inline]
pub(crate) fn target(bytes: &[u8], at: usize) -> usize {
    let stops = |word| below(word, 0x21) | equal(word, 0x7f) | equal(word, b'#') | (word & HIGH);
    find(bytes, at, stops, |byte| {
        !byte.is_ascii_graphic() || byte == b'#'
    })
}

/// The position of the first byte that no registered name has, or the length of `bytes`.
#[inline]
pub(crate) fn host(bytes: &[u8]) -> usize {
    let is_unusual = |byte: u8| {
        ((byte | 0x20).wrapping_sub(b'a') >= 26)
            & ((byte.wrapping_sub(b'-') >= 13) | (byte == b'/'))
    };
    let mut at = skip(bytes, 0, is_unusual);
    while at < bytes.len() && HOST[bytes[at] as usize] {
        at += 1;
    }
    at
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

/// Bytes of a registered name (RFC 3986 §3.2.2), except the comma: two joined Host fields would have one.
static HOST: [bool; 256] = {
    let mut table = tokens();
    let mut byte = 0;
    while byte < 256 {
        table[byte] &= !matches!(byte as u8, b'#' | b'^' | b'`' | b'|');
        table[byte] |= matches!(byte as u8, b'(' | b')' | b';' | b'=');
        byte += 1;
    }
    table
};

/// A decimal number below 2^64, digits only.
pub(crate) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |sum, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
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
            prop_assert_eq!(token(&bytes, from), first(&|byte| !is_token(&[byte])));
            prop_assert_eq!(host(&bytes[from..]) + from, first(&|byte| !byte.is_ascii_alphanumeric() && !b"-._~%!$&'()*+;=".contains(&byte)));
            prop_assert_eq!(target(&bytes, from), first(&|byte| byte <= 32 || byte >= 127 || byte == b'#'));
        }

        #[test]
        fn searches_find_a_single_byte_in_text(text in "[ -~]{0,40}", byte in any::<u8>(), at in 0usize..40) {
            let mut bytes = text.into_bytes();
            bytes.insert(at.min(bytes.len()), byte);
            let first = |stops: &dyn Fn(u8) -> bool| bytes.iter().position(|&byte| stops(byte)).unwrap_or(bytes.len());
            prop_assert_eq!(control(&bytes, 0), first(&|byte| byte != 9 && (byte < 32 || byte == 127)));
            prop_assert_eq!(target(&bytes, 0), first(&|byte| byte <= 32 || byte >= 127 || byte == b'#'));
        }

        #[test]
        fn searches_find_the_end_of_a_name(text in "[a-zA-Z-]{0,40}", rest in "[ -~]{0,20}", byte in any::<u8>()) {
            let mut bytes = text.into_bytes();
            bytes.push(byte);
            bytes.extend_from_slice(rest.as_bytes());
            let first = |stops: &dyn Fn(u8) -> bool| bytes.iter().position(|&byte| stops(byte)).unwrap_or(bytes.len());
            prop_assert_eq!(token(&bytes, 0), first(&|byte| !is_token(&[byte])));
            prop_assert_eq!(host(&bytes), first(&|byte| !byte.is_ascii_alphanumeric() && !b"-._~%!$&'()*+;=".contains(&byte)));
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

    #[test]
    fn numbers_are_digits_and_do_not_overflow() {
        assert_eq!(decimal(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(decimal(b"007"), Some(7));
        for bad in [
            &b""[..],
            b"-1",
            b"+1",
            b"1 2",
            b"1,1",
            b"0x1",
            b"18446744073709551616",
            b"1_0",
        ] {
            assert_eq!(decimal(bad), None, "{}", String::from_utf8_lossy(bad));
        }
    }
}
