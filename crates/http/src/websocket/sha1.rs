//! SHA-1 (RFC 3174) for the WebSocket handshake, where it proves nothing but that the server read the request.

pub(super) fn digest(message: &[u8]) -> [u8; 20] {
    let mut padded = message.to_vec();
    padded.push(0x80);
    padded.resize((padded.len() + 8).next_multiple_of(64) - 8, 0);
    padded.extend_from_slice(&(message.len() as u64 * 8).to_be_bytes());
    let mut state: [u32; 5] = [
        0x6745_2301,
        0xefcd_ab89,
        0x98ba_dcfe,
        0x1032_5476,
        0xc3d2_e1f0,
    ];
    let (blocks, _) = padded.as_chunks::<64>();
    for block in blocks {
        add(&mut state, block);
    }
    let mut out = [0; 20];
    for (bytes, word) in out.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    out
}

fn add(state: &mut [u32; 5], block: &[u8; 64]) {
    let mut words = [0u32; 80];
    let (chunks, _) = block.as_chunks::<4>();
    for (word, bytes) in words.iter_mut().zip(chunks) {
        *word = u32::from_be_bytes(*bytes);
    }
    for t in 16..80 {
        words[t] = (words[t - 3] ^ words[t - 8] ^ words[t - 14] ^ words[t - 16]).rotate_left(1);
    }
    let [mut a, mut b, mut c, mut d, mut e] = *state;
    for (t, word) in words.iter().enumerate() {
        let (f, k) = match t {
            0..20 => ((b & c) | (!b & d), 0x5a82_7999),
            20..40 => (b ^ c ^ d, 0x6ed9_eba1),
            40..60 => ((b & c) | (b & d) | (c & d), 0x8f1b_bcdc),
            _ => (b ^ c ^ d, 0xca62_c1d6),
        };
        let next = a
            .rotate_left(5)
            .wrapping_add(f)
            .wrapping_add(e)
            .wrapping_add(*word)
            .wrapping_add(k);
        (e, d, c, b, a) = (d, c, b.rotate_left(30), a, next);
    }
    for (sum, word) in state.iter_mut().zip([a, b, c, d, e]) {
        *sum = sum.wrapping_add(word);
    }
}

#[cfg(test)]
mod tests {
    use super::digest;

    #[test]
    fn digests_are_those_of_rfc_3174() {
        let hex = |bytes: [u8; 20]| bytes.map(|byte| format!("{byte:02x}")).concat();
        for (message, expected) in [
            ("abc".to_owned(), "a9993e364706816aba3e25717850c26c9cd0d89d"),
            (
                "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq".to_owned(),
                "84983e441c3bd26ebaae4aa1f95129e5e54670f1",
            ),
            (
                "a".repeat(1_000_000),
                "34aa973cd4c4daa4f61eeb2bdbad27316534016f",
            ),
            (
                "0123456701234567012345670123456701234567012345670123456701234567".repeat(10),
                "dea356a2cddd90c7a7ecedc5ebb563934f460452",
            ),
            (String::new(), "da39a3ee5e6b4b0d3255bfef95601890afd80709"),
        ] {
            assert_eq!(hex(digest(message.as_bytes())), expected);
        }
    }
}
