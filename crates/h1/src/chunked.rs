//! Decoder of the chunked transfer coding (RFC 9112 §7.1).

use bytes::{Buf, Bytes};

use crate::config::Config;
use crate::error::Error;
use crate::piece::{Piece, split};
use crate::section::Section;
use crate::trailers::{Judge, Trailers};

/// Chunk bytes that are free of charge, beside twice the data: a size of 16 digits.
const FREE: u32 = 16;

/// A position within the coding.
#[derive(Debug, Default)]
enum State {
    /// The first digit of a size.
    #[default]
    Size,
    /// Digits so far.
    Digits(u64),
    /// Within an extension, which is ignored.
    Extension(u64),
    SizeLf(u64),
    Data(u64),
    DataCr,
    DataLf,
    /// Behind the last chunk.
    Last,
    Trailers(Section<Judge>),
}

/// A body in chunks that is being read.
#[derive(Debug, Default)]
pub(crate) struct Chunked {
    state: State,
    /// Bytes of chunk lines that are not paid for by data.
    overhead: u32,
}

impl Chunked {
    /// Bytes of a trailer section that has not ended.
    pub(crate) fn incomplete(&self) -> usize {
        match &self.state {
            State::Trailers(section) => section.held(),
            _ => 0,
        }
    }

    pub(crate) fn read(
        &mut self,
        input: &mut Bytes,
        config: &Config,
    ) -> Result<Option<Piece>, Error> {
        loop {
            match &mut self.state {
                State::Data(left) => {
                    if input.is_empty() {
                        return Ok(None);
                    }
                    let bytes = split(input, left);
                    if *left == 0 {
                        self.state = State::DataCr;
                    }
                    return Ok(Some(Piece::Data { bytes, end: false }));
                }
                State::Last => match input.first_chunk::<2>() {
                    Some(b"\r\n") => {
                        input.advance(2);
                        return Ok(Some(Piece::End));
                    }
                    None if input.is_empty() => return Ok(None),
                    _ => self.state = State::Trailers(Section::default()),
                },
                State::Trailers(section) => {
                    let Some((judge, fields)) = section.read(input, config)? else {
                        return Ok(None);
                    };
                    if fields.is_empty() && judge.dropped == 0 {
                        return Ok(Some(Piece::End));
                    }
                    return Ok(Some(Piece::Trailers(Trailers {
                        fields,
                        dropped: judge.dropped,
                    })));
                }
                _ => {
                    let used = self.lines(input, config)?;
                    input.advance(used);
                    if input.is_empty() {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Reads the bytes between data, and returns their number.
    fn lines(&mut self, input: &[u8], config: &Config) -> Result<usize, Error> {
        for (at, &byte) in input.iter().enumerate() {
            if matches!(self.state, State::Data(_) | State::Last) {
                return Ok(at);
            }
            self.step(byte, config)?;
        }
        Ok(input.len())
    }

    #[inline]
    fn step(&mut self, byte: u8, config: &Config) -> Result<(), Error> {
        self.state = match (&self.state, byte) {
            (State::Size, _) => State::Digits(digit(byte).ok_or(Error::ChunkSize)?),
            (&State::Digits(size), b'\r') => State::SizeLf(size),
            (&State::Digits(size), b';') => State::Extension(size),
            (&State::Digits(size), _) => {
                let digit = digit(byte).ok_or(if byte == b'\n' {
                    Error::BareLineFeed
                } else {
                    Error::ChunkSize
                })?;
                if size >> 56 != 0 {
                    return Err(Error::ChunkSizeOverflow);
                }
                self.charge(config)?;
                State::Digits(size << 4 | digit)
            }
            (&State::Extension(size), b'\r') => State::SizeLf(size),
            (State::Extension(_), b'\n') => return Err(Error::BareLineFeed),
            (State::Extension(_), 0..=8 | 11 | 12 | 14..=31 | 127) => {
                return Err(Error::ControlCharacter);
            }
            (&State::Extension(size), _) => {
                self.charge(config)?;
                State::Extension(size)
            }
            (State::SizeLf(0), b'\n') => State::Last,
            (&State::SizeLf(size), b'\n') => {
                let paid = size.saturating_mul(2).min(u64::from(u32::MAX - FREE)) as u32 + FREE;
                self.overhead = self.overhead.saturating_sub(paid);
                State::Data(size)
            }
            (State::SizeLf(_), _) => return Err(Error::BareCarriageReturn),
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => State::Size,
            (State::DataCr | State::DataLf, _) => return Err(Error::ChunkEnd),
            (State::Data(_) | State::Last | State::Trailers(_), _) => return Err(Error::ChunkEnd),
        };
        Ok(())
    }

    /// Counts one byte of a chunk line.
    fn charge(&mut self, config: &Config) -> Result<(), Error> {
        self.overhead += 1;
        match self.overhead <= config.chunk_overhead {
            true => Ok(()),
            false => Err(Error::ChunkOverhead),
        }
    }
}

fn digit(byte: u8) -> Option<u64> {
    (byte as char).to_digit(16).map(u64::from)
}
