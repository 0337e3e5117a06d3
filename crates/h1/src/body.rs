//! Content of a message as it arrives: a known length, chunks, or all bytes up to the end of the connection (RFC 9112 §6.3).

use bytes::Bytes;

use crate::chunked::Chunked;
use crate::config::Config;
use crate::error::Error;
use crate::trailers::Trailers;

/// The content of a message that is being read.
#[derive(Debug)]
pub(crate) enum Body {
    /// So many bytes are to come, at least one.
    Length(u64),
    Chunked(Box<Chunked>),
    UntilClose,
}

/// A piece of content or its end.
#[derive(Debug)]
pub(crate) enum Piece {
    Data { bytes: Bytes, end: bool },
    Trailers(Trailers),
    End,
}

impl Body {
    pub(crate) fn chunked() -> Body {
        Body::Chunked(Box::default())
    }

    /// Chunks with little data so far.
    pub(crate) fn tiny_chunks(&self) -> u64 {
        match self {
            Body::Chunked(chunked) => chunked.tiny(),
            _ => 0,
        }
    }

    /// Takes one piece from `input`. None needs more input.
    #[inline]
    pub(crate) fn read(
        &mut self,
        input: &mut Bytes,
        config: &Config,
    ) -> Result<Option<Piece>, Error> {
        if input.is_empty() {
            return Ok(None);
        }
        match self {
            Body::Length(left) => {
                let bytes = split(input, left);
                Ok(Some(Piece::Data {
                    bytes,
                    end: *left == 0,
                }))
            }
            Body::Chunked(chunked) => chunked.read(input, config),
            Body::UntilClose => Ok(Some(Piece::Data {
                bytes: std::mem::take(input),
                end: false,
            })),
        }
    }
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
