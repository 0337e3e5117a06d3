//! Messages of gRPC inside of a stream: five bytes of prefix, then the message.

use super::interface::Malformed;

/// The longest message that is taken, in bytes.
const LONGEST: usize = 1 << 30;

/// A message with its prefix, uncompressed.
pub fn frame(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("a message is shorter than 4 GiB");
    let mut out = Vec::with_capacity(message.len() + 5);
    out.push(0);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(message);
    out
}

/// A protobuf message whose third field is `text`: a PingMessage of Fortio's, an echo of ours.
pub fn ping(text: &[u8]) -> Vec<u8> {
    let mut out = vec![3 << 3 | 2];
    let mut length = text.len();
    while length >= 0x80 {
        out.push(length as u8 & 0x7f | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(text);
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
    /// Takes a piece of content and returns how many messages it completes.
    pub fn feed(&mut self, mut input: &[u8]) -> Result<u32, Malformed> {
        let mut complete = 0;
        while !input.is_empty() {
            if self.begun < self.prefix.len() {
                let taken = input.len().min(self.prefix.len() - self.begun);
                let (now, rest) = input.split_at(taken);
                self.prefix[self.begun..self.begun + taken].copy_from_slice(now);
                self.begun += taken;
                input = rest;
                if self.begun < self.prefix.len() {
                    break;
                }
                let [compressed, length @ ..] = self.prefix;
                self.left = u32::from_be_bytes(length) as usize;
                if compressed > 1 || self.left > LONGEST {
                    return Err(Malformed::Rule("not the prefix of a message of gRPC"));
                }
            }
            let taken = input.len().min(self.left);
            self.left -= taken;
            input = &input[taken..];
            if self.left == 0 {
                self.begun = 0;
                complete += 1;
            }
        }
        // An empty message is complete with its prefix.
        if self.begun == self.prefix.len() && self.left == 0 {
            self.begun = 0;
            complete += 1;
        }
        Ok(complete)
    }

    /// Whether a message has begun and not ended.
    pub fn is_within(&self) -> bool {
        self.begun > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
            let bytes: Vec<u8> = messages.iter().flat_map(|message| frame(message)).collect();
            let mut reader = Messages::default();
            let counts = bytes.chunks(piece).map(|part| reader.feed(part));
            let count: u32 = counts.map(Result::unwrap).sum();
            prop_assert_eq!(count as usize, messages.len());
            prop_assert!(!reader.is_within());
            prop_assert_eq!(reader.feed(&frame(b"longer")[..part]), Ok(0));
            prop_assert!(reader.is_within());
        }

        #[test]
        fn no_bytes_make_it_panic(input in prop::collection::vec(any::<u8>(), 0..60), piece in 1usize..9) {
            let mut reader = Messages::default();
            for part in input.chunks(piece) {
                if reader.feed(part).is_err() { break }
            }
        }
    }
}
