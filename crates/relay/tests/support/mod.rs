//! What the tests of relays share.

/// Bytes that differ from place to place and from seed to seed.
pub fn noise(length: usize, seed: u32) -> Vec<u8> {
    let byte = |i: u32| (i.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 11) as u8;
    (0..length as u32).map(byte).collect()
}
