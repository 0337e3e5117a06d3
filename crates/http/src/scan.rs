//! Byte classes of RFC 9110 §5.5, §5.6.2 and RFC 3986, and searches over them.

/// True for control characters that a field value cannot have (RFC 9110 §5.5). HTAB is allowed, and so are bytes beyond ASCII.
pub(crate) const fn is_control(byte: u8) -> bool {
    ((byte < 0x20) & (byte != b'\t')) | (byte == 0x7f)
}

/// True if any byte satisfies `class`. The compiler makes vector instructions of it if `class` has no branches.
#[inline(always)]
pub(crate) fn contains(bytes: &[u8], class: impl Fn(u8) -> bool) -> bool {
    let mut rest = bytes;
    while let Some((chunk, behind)) = rest.split_first_chunk::<64>() {
        if chunk.iter().fold(false, |any, &byte| any | class(byte)) {
            return true;
        }
        rest = behind;
    }
    while let Some((chunk, behind)) = rest.split_first_chunk::<16>() {
        if chunk.iter().fold(false, |any, &byte| any | class(byte)) {
            return true;
        }
        rest = behind;
    }
    // The last sixteen bytes once more cost less than up to fifteen by themselves.
    match (rest, bytes.last_chunk::<16>()) {
        ([], _) => false,
        (_, Some(chunk)) => chunk.iter().fold(false, |any, &byte| any | class(byte)),
        (rest, None) => rest.iter().any(|&byte| class(byte)),
    }
}

/// True if `bytes` can be a field value once surrounding white space is gone (RFC 9110 §5.5).
#[inline]
pub(crate) fn is_value(bytes: &[u8]) -> bool {
    if bytes.len() >= 16 {
        return !contains(bytes, is_control);
    }
    let has_low = match (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        (Some(front), Some(back)) => {
            may_be_control(u64::from_le_bytes(*front)) | may_be_control(u64::from_le_bytes(*back))
        }
        _ => match (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
            (Some(front), Some(back)) => may_be_control(
                u64::from(u32::from_le_bytes(*front)) | u64::from(u32::from_le_bytes(*back)) << 32,
            ),
            _ => true,
        },
    };
    !has_low || !bytes.iter().any(|&byte| is_control(byte))
}

/// True if one of eight bytes is a control character or HTAB.
#[inline(always)]
const fn may_be_control(word: u64) -> bool {
    const ONES: u64 = u64::MAX / 0xff;
    const HIGH: u64 = ONES << 7;
    let delete = word ^ (ONES * 0x7f);
    let low = word.wrapping_sub(ONES * 0x20) & !word;
    (low | (delete.wrapping_sub(ONES) & !delete)) & HIGH != 0
}

/// True if `bytes` is a token (RFC 9110 §5.6.2).
pub(crate) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|&byte| TOKEN[byte as usize])
}

/// True if `bytes` is a token without capital letters (RFC 9113 §8.2).
pub(crate) fn is_lower_token(bytes: &[u8]) -> bool {
    is_token(bytes) && !bytes.iter().any(u8::is_ascii_uppercase)
}

/// `bytes` without SP and HTAB at either end (RFC 9110 §5.6.3).
#[inline]
pub(crate) fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// The elements of a comma-separated list (RFC 9110 §5.6.1), trimmed, without empty ones.
pub(crate) fn elements(value: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    value
        .split(|&byte| byte == b',')
        .map(trim)
        .filter(|element| !element.is_empty())
}

/// The number that `digits` spell. None unless all are digits and the number has 64 bits.
pub(crate) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |sum, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

/// The byte that two hexadecimal digits spell.
pub(crate) fn hex(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| (byte as char).to_digit(16);
    Some((digit(high)? << 4 | digit(low)?) as u8)
}

/// True for characters that are never percent-encoded in the normal form (RFC 3986 §2.3).
pub(crate) const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

pub(crate) static TOKEN: [bool; 256] = {
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
};

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn values_are_judged_like_single_bytes(bytes in prop::collection::vec(any::<u8>(), 0..50)) {
            let good = bytes.iter().all(|&byte| byte == 9 || (byte >= 32 && byte != 127));
            prop_assert_eq!(is_value(&bytes), good);
        }

        #[test]
        fn one_bad_byte_is_found_anywhere(text in "[ -~]{0,40}", byte in any::<u8>(), at in 0usize..40) {
            let mut bytes = text.into_bytes();
            bytes.insert(at.min(bytes.len()), byte);
            prop_assert_eq!(is_value(&bytes), byte == 9 || (byte >= 32 && byte != 127));
        }
    }

    #[test]
    fn numbers_are_digits_only_and_may_not_overflow() {
        assert_eq!(decimal(b"18446744073709551615"), Some(u64::MAX));
        for bad in [
            &b""[..],
            b"-1",
            b"+1",
            b"1 2",
            b"0x1",
            b"18446744073709551616",
        ] {
            assert_eq!(decimal(bad), None, "{}", String::from_utf8_lossy(bad));
        }
    }
}
