//! The Huffman code (RFC 7541 §5.2 and Appendix B).

use super::Unreadable;

/// The longest code, in bits.
const LONGEST: usize = 30;

/// The symbol that ends a string, and may never be in one.
const END: u16 = 256;

/// The length of each symbol's code in bits. The code is canonical: the lengths say all of it.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

/// For each length: its first code, how many there are, and where their symbols begin.
struct Codes {
    first: [u32; LONGEST + 1],
    count: [u32; LONGEST + 1],
    begin: [u16; LONGEST + 1],
    symbols: [u16; 257],
    /// The code of each symbol.
    code: [u32; 257],
    /// By the next eight bits: the symbol and the length of a code of at most eight, or no length.
    short: [(u8, u8); 256],
}

static CODES: Codes = codes();

const fn codes() -> Codes {
    let mut codes = Codes {
        first: [0; LONGEST + 1],
        count: [0; LONGEST + 1],
        begin: [0; LONGEST + 1],
        symbols: [0; 257],
        code: [0; 257],
        short: [(0, 0); 256],
    };
    let (mut length, mut place) = (1, 0);
    while length <= LONGEST {
        codes.first[length] = (codes.first[length - 1] + codes.count[length - 1]) << 1;
        codes.begin[length] = place;
        let mut symbol = 0;
        while symbol <= END {
            if LENGTHS[symbol as usize] as usize == length {
                codes.symbols[place as usize] = symbol;
                codes.code[symbol as usize] = codes.first[length] + codes.count[length];
                if length <= 8 {
                    let code = codes.first[length] + codes.count[length];
                    let (mut bits, end) = (code << (8 - length), (code + 1) << (8 - length));
                    while bits < end {
                        codes.short[bits as usize] = (symbol as u8, length as u8);
                        bits += 1;
                    }
                }
                codes.count[length] += 1;
                place += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    codes
}

/// The length of a string in this code, in bytes.
pub fn length(text: &[u8]) -> usize {
    let bits = text
        .iter()
        .map(|byte| usize::from(LENGTHS[usize::from(*byte)]));
    bits.sum::<usize>().div_ceil(8)
}

/// Encodes a string to the end of `out`, padded with ones (RFC 7541 §5.2).
pub fn encode(text: &[u8], out: &mut Vec<u8>) {
    // The bits that are not written yet, at the bottom: fewer than eight between two symbols.
    let (mut bits, mut have) = (0u64, 0u32);
    for byte in text {
        let length = u32::from(LENGTHS[usize::from(*byte)]);
        bits = bits << length | u64::from(CODES.code[usize::from(*byte)]);
        have += length;
        while have >= 8 {
            have -= 8;
            out.push((bits >> have) as u8);
        }
    }
    if have > 0 {
        out.push((bits << (8 - have)) as u8 | 0xff >> have);
    }
}

/// Decodes a string to the end of `out`, which may grow by `most` bytes; what is beyond is dropped. Returns its length.
pub fn decode(input: &[u8], out: &mut Vec<u8>, most: usize) -> Result<usize, Unreadable> {
    let before = out.len();
    let mut length = 0;
    // The bits that are not decoded yet, at the top.
    let (mut bits, mut have) = (0u64, 0usize);
    let mut rest = input.iter();
    loop {
        while have <= 56 {
            let Some(byte) = rest.next() else { break };
            bits |= u64::from(*byte) << (56 - have);
            have += 8;
        }
        let (symbol, n) = CODES.short[(bits >> 56) as usize];
        let (symbol, n) = match usize::from(n) {
            n @ 1.. if n <= have => (symbol, n),
            0 => match long(bits, have)? {
                Some(found) => found,
                None => break,
            },
            _ => break,
        };
        bits <<= n;
        have -= n;
        if out.len() - before < most {
            out.push(symbol);
        }
        length += 1;
    }
    // What is left are the first bits of the end symbol: ones, and fewer than eight.
    if have > 7 || bits != !(u64::MAX >> have) {
        return Err("a Huffman string is padded wrongly");
    }
    Ok(length)
}

/// The symbol of a code of more than eight bits; `None` if it is not all there.
fn long(bits: u64, have: usize) -> Result<Option<(u8, usize)>, Unreadable> {
    for n in 9..=LONGEST.min(have) {
        let beyond = ((bits >> (64 - n)) as u32).wrapping_sub(CODES.first[n]);
        if beyond < CODES.count[n] {
            let symbol = CODES.symbols[usize::from(CODES.begin[n]) + beyond as usize];
            return match u8::try_from(symbol) {
                Ok(symbol) => Ok(Some((symbol, n))),
                Err(_) => Err("the end of a Huffman string is in it"),
            };
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encode(text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        super::encode(text, &mut out);
        assert_eq!(out.len(), length(text));
        out
    }

    #[test]
    fn the_examples_of_the_rfc_are_read() {
        // RFC 7541 C.4.1, C.4.2, C.6.1.
        let table: [(&[u8], &[u8]); 4] = [
            (
                b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff",
                b"www.example.com",
            ),
            (b"\xa8\xeb\x10\x64\x9c\xbf", b"no-cache"),
            (b"\x64\x02", b"302"),
            (
                b"\x9d\x29\xad\x17\x18\x63\xc7\x8f\x0b\x97\xc8\xe9\xae\x82\xae\x43\xd3",
                b"https://www.example.com",
            ),
        ];
        for (input, expected) in table {
            let mut out = Vec::new();
            assert_eq!(decode(input, &mut out, 100), Ok(expected.len()));
            assert_eq!(out, expected);
            assert_eq!(encode(expected), input);
        }
    }

    #[test]
    fn bad_padding_and_the_end_symbol_are_refused() {
        for input in [&b"\xff\xff\xff\xff"[..], b"\xff", b"\x00", b"\x1f\xff"] {
            assert!(decode(input, &mut Vec::new(), 100).is_err(), "{input:?}");
        }
        assert_eq!(
            decode(b"\x07", &mut Vec::new(), 100),
            Ok(1),
            "0 and three ones"
        );
    }

    #[test]
    fn what_is_too_long_is_counted_and_not_kept() {
        let mut out = b"before".to_vec();
        assert_eq!(decode(&encode(&[b'a'; 50]), &mut out, 3), Ok(50));
        assert_eq!(out, b"beforeaaa");
    }

    proptest! {
        #[test]
        fn every_string_comes_back(text in prop::collection::vec(any::<u8>(), 0..100)) {
            let mut out = Vec::new();
            prop_assert_eq!(decode(&encode(&text), &mut out, 100), Ok(text.len()));
            prop_assert_eq!(out, text);
        }

        #[test]
        fn no_bytes_make_it_panic(input in prop::collection::vec(any::<u8>(), 0..100)) {
            let mut out = Vec::new();
            let _ = decode(&input, &mut out, 1000);
            prop_assert!(out.len() <= input.len() * 8 / 5);
        }
    }
}
