//! Finds where a message's body ends: a known length, chunks (RFC 9112 §7.1), or the end of the
//! connection.

use super::Malformed;

/// The most bytes that chunk extensions and trailers of one body may take together.
const MAX_OVERHEAD: u32 = 16 * 1024;

/// A decoder for one body.
#[derive(Debug)]
pub struct Body {
    kind: Kind,
    overhead: u32,
}

#[derive(Debug)]
enum Kind {
    Length(u64),
    Chunked(Chunk),
    UntilClose,
}

/// Where in the chunked coding the next byte stands.
#[derive(Debug)]
enum Chunk {
    Size { size: u64, digits: u32 },
    Extension { size: u64 },
    SizeEnd { size: u64 },
    Data { left: u64 },
    DataCr,
    DataLf,
    TrailerStart,
    Trailer,
    TrailerLf,
    LastLf,
    Done,
}

impl Body {
    /// A body of exactly `length` bytes.
    pub fn length(length: u64) -> Body {
        Body {
            kind: Kind::Length(length),
            overhead: 0,
        }
    }

    /// A body in chunks.
    pub fn chunked() -> Body {
        Body {
            kind: Kind::Chunked(Chunk::Size { size: 0, digits: 0 }),
            overhead: 0,
        }
    }

    /// A body that the end of the connection ends.
    pub fn until_close() -> Body {
        Body {
            kind: Kind::UntilClose,
            overhead: 0,
        }
    }

    /// Whether nothing more belongs to this body.
    pub fn is_complete(&self) -> bool {
        matches!(self.kind, Kind::Length(0) | Kind::Chunked(Chunk::Done))
    }

    /// Whether only the end of the connection ends this body.
    pub fn ends_with_connection(&self) -> bool {
        matches!(self.kind, Kind::UntilClose)
    }

    /// Takes what belongs to the body from `input`, hands its content to `sink`, and returns how
    /// many bytes it took.
    pub fn decode(
        &mut self,
        input: &[u8],
        mut sink: impl FnMut(&[u8]),
    ) -> Result<usize, Malformed> {
        match &mut self.kind {
            Kind::UntilClose => {
                sink(input);
                Ok(input.len())
            }
            Kind::Length(left) => {
                let taken = take(left, input);
                if taken > 0 {
                    sink(&input[..taken]);
                }
                Ok(taken)
            }
            Kind::Chunked(chunk) => {
                let mut at = 0;
                while at < input.len() && !matches!(chunk, Chunk::Done) {
                    if let Chunk::Data { left } = chunk {
                        let taken = take(left, &input[at..]);
                        sink(&input[at..at + taken]);
                        at += taken;
                        if *left == 0 {
                            *chunk = Chunk::DataCr;
                        }
                        continue;
                    }
                    if matches!(chunk, Chunk::Extension { .. } | Chunk::Trailer) {
                        self.overhead += 1;
                        if self.overhead > MAX_OVERHEAD {
                            return Err(Malformed("chunk extensions and trailers exceed 16 KiB"));
                        }
                    }
                    chunk.step(input[at])?;
                    at += 1;
                }
                Ok(at)
            }
        }
    }
}

/// Takes as much of `input` as `left` allows.
fn take(left: &mut u64, input: &[u8]) -> usize {
    let taken = usize::try_from(*left)
        .unwrap_or(usize::MAX)
        .min(input.len());
    *left -= taken as u64;
    taken
}

impl Chunk {
    /// Takes one byte that is not content.
    fn step(&mut self, byte: u8) -> Result<(), Malformed> {
        *self = match (&*self, byte) {
            (Chunk::Size { digits: 0, .. }, b'\r' | b';') => {
                return Err(Malformed("chunk without a size"));
            }
            (&Chunk::Size { size, .. }, b'\r') => Chunk::SizeEnd { size },
            (&Chunk::Size { size, digits: 1.. }, b';' | b' ' | b'\t') => Chunk::Extension { size },
            (&Chunk::Size { size, digits }, _) => {
                let digit = (byte as char)
                    .to_digit(16)
                    .ok_or(Malformed("chunk size is not hexadecimal"))?;
                if digits == 15 {
                    return Err(Malformed("chunk size has more than 15 digits"));
                }
                Chunk::Size {
                    size: size << 4 | u64::from(digit),
                    digits: digits + 1,
                }
            }
            (&Chunk::Extension { size }, b'\r') => Chunk::SizeEnd { size },
            (Chunk::Extension { .. }, b'\n') => {
                return Err(Malformed("chunk line ends without a carriage return"));
            }
            (&Chunk::Extension { size }, _) => Chunk::Extension { size },
            (Chunk::SizeEnd { size: 0 }, b'\n') => Chunk::TrailerStart,
            (&Chunk::SizeEnd { size }, b'\n') => Chunk::Data { left: size },
            (Chunk::DataCr, b'\r') => Chunk::DataLf,
            (Chunk::DataLf, b'\n') => Chunk::Size { size: 0, digits: 0 },
            (Chunk::TrailerStart, b'\r') => Chunk::LastLf,
            (Chunk::Trailer, b'\r') => Chunk::TrailerLf,
            (Chunk::TrailerStart | Chunk::Trailer, b'\n') => {
                return Err(Malformed("trailer ends without a carriage return"));
            }
            (Chunk::TrailerStart | Chunk::Trailer, _) => Chunk::Trailer,
            (Chunk::TrailerLf, b'\n') => Chunk::TrailerStart,
            (Chunk::LastLf, b'\n') => Chunk::Done,
            (Chunk::SizeEnd { .. } | Chunk::TrailerLf | Chunk::LastLf, _) => {
                return Err(Malformed("carriage return without a line feed"));
            }
            (Chunk::DataCr | Chunk::DataLf, _) => {
                return Err(Malformed("chunk is longer than its size"));
            }
            (Chunk::Data { .. } | Chunk::Done, _) => {
                return Err(Malformed("content outside of a chunk"));
            }
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode_in_pieces(
        mut body: Body,
        input: &[u8],
        piece: usize,
    ) -> Result<(Vec<u8>, usize), Malformed> {
        let (mut content, mut used) = (Vec::new(), 0);
        for part in input.chunks(piece.max(1)) {
            let taken = body.decode(part, |bytes| content.extend_from_slice(bytes))?;
            used += taken;
            if body.is_complete() {
                break;
            }
            assert_eq!(taken, part.len(), "an incomplete body takes everything");
        }
        Ok((content, used))
    }

    fn encode(chunks: &[Vec<u8>], extension: &str, trailer: &str) -> Vec<u8> {
        let mut out = Vec::new();
        for chunk in chunks {
            out.extend_from_slice(format!("{:x}{extension}\r\n", chunk.len()).as_bytes());
            out.extend_from_slice(chunk);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(format!("0\r\n{trailer}\r\n").as_bytes());
        out
    }

    proptest! {
        #[test]
        fn chunks_come_back_as_they_were_written(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 0..8),
            extension in "(;[a-z]{1,5}=[0-9]{0,3})?",
            trailer in "([a-z]{1,5}: [a-z]{0,9}\r\n){0,2}",
            piece in 1usize..64,
            rest in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let encoded = encode(&chunks, &extension, &trailer);
            let mut input = encoded.clone();
            input.extend_from_slice(&rest);
            let (content, used) = decode_in_pieces(Body::chunked(), &input, piece).unwrap();
            prop_assert_eq!(content, chunks.concat());
            prop_assert_eq!(used, encoded.len(), "bytes behind the body are left alone");
        }

        #[test]
        fn no_bytes_make_it_panic(input in prop::collection::vec(any::<u8>(), 0..400), piece in 1usize..9) {
            let _ = decode_in_pieces(Body::chunked(), &input, piece);
        }

        #[test]
        fn bytes_that_resemble_chunks_do_not_make_it_panic(input in "([0-9a-f]{0,3};?\r?\n?[xy]{0,4}){0,12}", piece in 1usize..9) {
            let _ = decode_in_pieces(Body::chunked(), input.as_bytes(), piece);
        }
    }

    #[test]
    fn bad_chunks_are_refused() {
        for bad in [
            "\r\n",
            "g\r\n",
            "-1\r\n",
            "2\r\nabc\r\n",
            "1\nx",
            "1\r\nx\nx",
            "1;e\n",
            "1000000000000000\r\n",
            "0\r\n\n",
            "0\r\na\n",
        ] {
            let result = decode_in_pieces(Body::chunked(), bad.as_bytes(), 64);
            assert!(result.is_err(), "{bad:?} gave {result:?}");
        }
    }

    #[test]
    fn endless_trailers_are_refused() {
        let mut input = b"0\r\n".to_vec();
        input.resize(20_000, b'a');
        assert!(decode_in_pieces(Body::chunked(), &input, 1000).is_err());
    }
}
