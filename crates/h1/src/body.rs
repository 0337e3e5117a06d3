//! Content of a message as it arrives: a known length, chunks, or all bytes up to the end of the connection (RFC 9112 §6.3).

use bytes::Bytes;

use crate::chunked::Chunked;
use crate::config::Config;
use crate::error::Error;
use crate::piece::{Piece, split};

/// The content of a message that is being read.
#[derive(Debug)]
pub(crate) enum Body {
    /// So many bytes are to come, at least one.
    Length(u64),
    Chunked(Box<Chunked>),
    UntilClose,
}

impl Body {
    pub(crate) fn chunked() -> Body {
        Body::Chunked(Box::default())
    }

    /// Bytes of a trailer section that has not ended.
    #[inline]
    pub(crate) fn incomplete(&self) -> usize {
        match self {
            Body::Chunked(chunked) => chunked.incomplete(),
            Body::Length(_) | Body::UntilClose => 0,
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
