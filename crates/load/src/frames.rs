//! The messages of a gRPC call on the wire: a byte that says whether it is compressed, the length in
//! four bytes, and the message. Bytes in, messages out.

use std::io::{Read, Write};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

/// The largest message, in bytes, before and after it is decompressed; gRPC's usual limit.
const MAX_MESSAGE: usize = 4 << 20;

/// The largest message that is skipped, in bytes.
const MAX_SKIPPED: usize = 1 << 30;

/// Length and flag.
const HEAD: usize = 5;

/// Why no further message can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// The message is larger than 4 MiB.
    #[error("message is larger than 4 MiB")]
    TooLarge,
    /// It is no message, or not compressed as it says.
    #[error("message is malformed")]
    Malformed,
}

/// Takes a call's bytes apart.
#[derive(Debug, Default)]
pub struct Frames(BytesMut);

impl Frames {
    /// Takes a piece of input.
    pub fn push(&mut self, input: &[u8]) {
        self.0.extend_from_slice(input);
    }

    /// Whether no part of a message is held.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the next message is compressed, and its length, if all of it is there.
    fn head(&self, gzip: bool, most: usize) -> Result<Option<(bool, usize)>, Broken> {
        let Some((&[compressed, length @ ..], content)) = self.0.split_first_chunk::<HEAD>() else {
            return Ok(None);
        };
        let compressed = match compressed {
            0 => false,
            1 if gzip => true,
            _ => return Err(Broken::Malformed),
        };
        let length = u32::from_be_bytes(length) as usize;
        if length > most {
            return Err(Broken::TooLarge);
        }
        Ok((content.len() >= length).then_some((compressed, length)))
    }

    /// Drops the next message, compressed or not, and gives its length, if all of it is there.
    pub fn skip(&mut self) -> Result<Option<usize>, Broken> {
        let head = self.head(true, MAX_SKIPPED)?;
        Ok(head.map(|(_, length)| {
            self.0.advance(HEAD + length);
            length
        }))
    }

    /// The next message, if all of it is there. `gzip` is whether messages may be compressed.
    pub fn next(&mut self, gzip: bool) -> Result<Option<Bytes>, Broken> {
        let Some((compressed, length)) = self.head(gzip, MAX_MESSAGE)? else {
            return Ok(None);
        };
        self.0.advance(HEAD);
        let message = self.0.split_to(length).freeze();
        if !compressed {
            return Ok(Some(message));
        }
        let mut plain = Vec::new();
        GzDecoder::new(&message[..])
            .take(MAX_MESSAGE as u64 + 1)
            .read_to_end(&mut plain)
            .map_err(|_| Broken::Malformed)?;
        if plain.len() > MAX_MESSAGE {
            return Err(Broken::TooLarge);
        }
        Ok(Some(plain.into()))
    }
}

/// A message of at most 4 GiB as it is sent.
pub fn frame(message: &[u8], gzip: bool) -> Bytes {
    let compressed = gzip.then(|| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(message).expect("memory takes every byte");
        encoder.finish().expect("memory takes every byte")
    });
    let message = compressed.as_deref().unwrap_or(message);
    let mut framed = BytesMut::with_capacity(HEAD + message.len());
    framed.put_u8(u8::from(gzip));
    framed.put_u32(u32::try_from(message.len()).expect("messages have four bytes of length"));
    framed.put_slice(message);
    framed.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(pieces: &[&[u8]], gzip: bool) -> Result<Vec<Bytes>, Broken> {
        let (mut frames, mut messages) = (Frames::default(), Vec::new());
        for piece in pieces {
            frames.push(piece);
            while let Some(message) = frames.next(gzip)? {
                messages.push(message);
            }
        }
        Ok(messages)
    }

    #[test]
    fn what_cannot_be_taken_is_refused_before_it_is_held() {
        assert_eq!(all(&[&[0, 0, 64, 0, 1]], false), Err(Broken::TooLarge));
        assert_eq!(all(&[&[0, 0, 64, 0, 0]], false), Ok(vec![]));
        assert_eq!(all(&[&[2, 0, 0, 0, 0]], true), Err(Broken::Malformed));
        assert_eq!(all(&[&[1, 0, 0, 0, 0]], false), Err(Broken::Malformed));
        assert_eq!(all(&[&[1, 0, 0, 0, 1, 7]], true), Err(Broken::Malformed));
    }

    #[test]
    fn a_small_message_that_swells_is_refused() {
        let bomb = frame(&vec![0; MAX_MESSAGE + 1], true);
        assert!(bomb.len() < 100_000);
        assert_eq!(all(&[&bomb], true), Err(Broken::TooLarge));
        let fits = frame(&vec![0; MAX_MESSAGE], true);
        assert_eq!(all(&[&fits], true).unwrap()[0].len(), MAX_MESSAGE);
    }

    proptest! {
        #[test]
        fn messages_come_back_however_they_are_cut(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 0..6),
            gzip in any::<bool>(),
            cut in 1usize..50,
        ) {
            let bytes: Vec<u8> = messages.iter().flat_map(|message| frame(message, gzip)).collect();
            let pieces: Vec<&[u8]> = bytes.chunks(cut).collect();
            let mut frames = Frames::default();
            let mut lengths = Vec::new();
            for piece in &pieces {
                frames.push(piece);
                while let Some(length) = frames.skip().unwrap() { lengths.push(length); }
            }
            prop_assert!(frames.is_empty());
            let sent = messages.iter().map(|message| frame(message, gzip).len() - HEAD);
            prop_assert_eq!(lengths, sent.collect::<Vec<_>>());
            prop_assert_eq!(all(&pieces, gzip), Ok(messages.into_iter().map(Bytes::from).collect()));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), gzip in any::<bool>()) {
            let _ = all(&[&bytes], gzip);
            let mut frames = Frames(bytes[..].into());
            while let Ok(Some(_)) = frames.skip() {}
        }
    }
}
