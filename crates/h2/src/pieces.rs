//! Parts of content. A part is a slice of the buffer that the whole lies in, and keeps all of it alive.

use bytes::Bytes;

/// A part of this length may stay in its buffer, which has at most four times as many bytes.
const LARGE: usize = 8 * 1024;

/// Takes the first bytes of content. A part is copied if it is much less than the content was. So it keeps at most four times its length
/// alive if content below 8 KiB was the whole of its buffer, and larger content at least a quarter. In all, copies of the rest are a third of
/// the bytes, however often parts are taken.
#[must_use]
pub fn take(content: &mut Bytes, most: usize) -> Bytes {
    let before = content.len();
    if before <= most {
        return std::mem::take(content);
    }
    let mut part = content.split_to(most);
    own(&mut part, before);
    own(content, before);
    part
}

/// Copies what is left of so many bytes if it is much less.
#[inline]
pub(crate) fn own(rest: &mut Bytes, before: usize) {
    if class(rest.len()) < class(before) {
        *rest = Bytes::copy_from_slice(rest);
    }
}

/// The lengths of a class are within a factor of four.
#[inline]
fn class(length: usize) -> u32 {
    length
        .min(LARGE)
        .checked_ilog2()
        .map_or(0, |bits| bits.div_ceil(2))
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_class_holds_lengths_within_a_factor_of_four() {
        for (length, least) in [
            (1, 1),
            (7, 2),
            (511, 128),
            (2047, 512),
            (8191, 2048),
            (100_000, 8192),
        ] {
            assert_eq!(class(length), class(least), "{length}");
            assert!(least < 2 || class(least - 1) < class(least), "{least}");
        }
    }

    proptest! {
        #[test]
        fn the_parts_are_the_whole_and_keep_little_more_than_themselves(
            length in 1usize..33_000,
            steps in prop::collection::vec(1usize..9000, 1..20),
        ) {
            let whole: Vec<_> = (0..length).map(|at| at as u8).collect();
            let mut buffer = BytesMut::from(&whole[..]);
            let mut rest = buffer.split().freeze();
            let mut got = Vec::new();
            for most in steps.into_iter().cycle() {
                let part = take(&mut rest, most);
                prop_assert!(part.len() <= most);
                got.extend_from_slice(&part);
                if rest.is_empty() {
                    break;
                }
                // The rest alone holds the buffer if it has not been copied.
                drop(part);
                if rest.len() * 4 < length.min(LARGE) {
                    prop_assert!(buffer.try_reclaim(length), "{} of {length}", rest.len());
                }
            }
            prop_assert_eq!(got, whole);
        }
    }
}
