//! Content as it is handed to the caller: slices of the input.

use bytes::Bytes;

use crate::trailers::Trailers;

/// A piece of content or its end.
#[derive(Debug)]
pub(crate) enum Piece {
    Data { bytes: Bytes, end: bool },
    Trailers(Trailers),
    End,
}

/// Takes as much of `input` as `left` allows.
#[inline]
pub(crate) fn split(input: &mut Bytes, left: &mut u64) -> Bytes {
    let all = input.len() as u64;
    if all <= *left {
        *left -= all;
        return std::mem::take(input);
    }
    input.split_to(std::mem::take(left) as usize)
}
