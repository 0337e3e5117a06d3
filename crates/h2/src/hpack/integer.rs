//! Integers (RFC 7541 §5.1).

use super::Unreadable;

/// Reads one with a prefix of so many bits. What is longer than any block of ours is refused.
#[inline]
pub fn read(block: &mut &[u8], bits: u32) -> Result<u32, Unreadable> {
    const CUT: Unreadable = "it is cut short";
    let mask = (1u32 << bits) - 1;
    let (first, mut rest) = block.split_first().ok_or(CUT)?;
    let mut value = u32::from(*first) & mask;
    if value == mask {
        let mut shift = 0;
        loop {
            let (byte, more) = rest.split_first().ok_or(CUT)?;
            rest = more;
            value += u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
            shift += 7;
            if shift > 21 {
                return Err("an integer is too large");
            }
        }
    }
    *block = rest;
    Ok(value)
}

/// Writes one behind `flags` in its first byte.
#[inline]
pub fn write(value: u32, bits: u32, flags: u8, out: &mut Vec<u8>) {
    let mask = (1u32 << bits) - 1;
    if value < mask {
        return out.push(flags | value as u8);
    }
    out.push(flags | mask as u8);
    let mut rest = value - mask;
    while rest >= 0x80 {
        out.push(rest as u8 & 0x7f | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 7541 C.1.
    #[test]
    fn the_examples_of_the_rfc_are_read_and_written() {
        for (value, bits, bytes) in [
            (10, 5, &b"\x0a"[..]),
            (1337, 5, b"\x1f\x9a\x0a"),
            (42, 8, b"\x2a"),
        ] {
            let mut out = Vec::new();
            write(value, bits, 0, &mut out);
            assert_eq!(out, bytes);
            assert_eq!(read(&mut &bytes[..], bits), Ok(value));
        }
    }

    #[test]
    fn what_is_cut_or_too_large_is_refused() {
        assert!(read(&mut &b""[..], 7).is_err());
        assert!(read(&mut &b"\x7f"[..], 7).is_err());
        assert!(read(&mut &b"\x7f\xff\xff\xff\xff\x01"[..], 7).is_err());
    }

    proptest! {
        #[test]
        fn every_integer_comes_back(value in 0u32..1 << 28, bits in 4u32..8) {
            let mut out = Vec::new();
            write(value, bits, 0, &mut out);
            let mut rest = &out[..];
            prop_assert_eq!(read(&mut rest, bits), Ok(value));
            prop_assert!(rest.is_empty());
        }
    }
}
