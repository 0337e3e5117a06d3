//! Messages of gRPC inside of a stream: five bytes of prefix, then the message.

use super::interface::Malformed;

/// The longest message that is taken, in bytes.
const LONGEST: u32 = 1 << 30;

/// A protobuf message whose third field is `text`: a PingMessage of Fortio's, an echo of ours.
pub fn ping(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    prost::encoding::bytes::encode(3, &text.to_vec(), &mut out);
    out
}

/// Finds the ends of messages in the content of a stream.
#[derive(Debug, Default)]
pub struct Messages {
    prefix: [u8; 5],
    /// Bytes of the prefix that have come.
    begun: usize,
    /// Bytes of the message that have not.
    left: usize,
}

impl Messages {
    /// Takes content up to the end of the message that it goes on with. Returns the length of that message if it is
    /// complete.
    pub fn feed(&mut self, input: &mut &[u8]) -> Result<Option<u64>, Malformed> {
        let missing = self.prefix.len() - self.begun;
        let (now, rest) = input.split_at(missing.min(input.len()));
        self.prefix[self.begun..][..now.len()].copy_from_slice(now);
        self.begun += now.len();
        *input = rest;
        if self.begun < self.prefix.len() {
            return Ok(None);
        }
        let [compressed, length @ ..] = self.prefix;
        let length = u32::from_be_bytes(length);
        if missing > 0 {
            if compressed > 1 || length > LONGEST {
                return Err(Malformed::Rule("not the prefix of a message of gRPC"));
            }
            self.left = length as usize;
        }
        let taken = input.len().min(self.left);
        *input = &input[taken..];
        self.left -= taken;
        if self.left > 0 {
            return Ok(None);
        }
        self.begun = 0;
        Ok(Some(u64::from(length)))
    }

    /// Whether a message has begun and not ended.
    pub fn is_within(&self) -> bool {
        self.begun > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::frame;
    use proptest::prelude::*;

    #[test]
    fn a_ping_is_protobuf() {
        assert_eq!(ping(b"ab"), b"\x1a\x02ab");
        assert_eq!(ping(&[b'x'; 300])[..3], [0x1a, 0xac, 0x02]);
    }

    proptest! {
        #[test]
        fn messages_are_counted_however_they_are_cut(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8),
            piece in 1usize..30,
            part in 1usize..5,
        ) {
            let bytes: Vec<u8> = messages.iter().flat_map(|message| frame(message, false)).collect();
            let mut reader = Messages::default();
            let mut lengths = Vec::new();
            for mut part in bytes.chunks(piece) {
                while !part.is_empty() {
                    lengths.extend(reader.feed(&mut part).unwrap());
                }
            }
            prop_assert_eq!(lengths, messages.iter().map(|message| message.len() as u64).collect::<Vec<_>>());
            prop_assert!(!reader.is_within());
            prop_assert_eq!(reader.feed(&mut &frame(b"longer", false)[..part]), Ok(None));
            prop_assert!(reader.is_within());
        }

        #[test]
        fn no_bytes_make_it_panic(input in prop::collection::vec(any::<u8>(), 0..60), piece in 1usize..9) {
            let mut reader = Messages::default();
            for mut part in input.chunks(piece) {
                while !part.is_empty() && reader.feed(&mut part).is_ok() {}
            }
        }
    }
}
