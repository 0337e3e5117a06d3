//! Reader of frames from a byte stream, however the stream is cut (RFC 9113 §4). Data and header blocks pass as slices of the
//! input. Of all other frames, a few bytes are kept until the frame is complete.
//!
//! The reader checks the lengths and the order of frames. It does not judge anything that depends on a stream's state.

use crate::error::{Cause, ConnectionError, StreamId};
use crate::frame::{HEAD, Head, PREFACE, flag, kind};

mod frames;
mod part;

pub(crate) use part::Part;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Preface,
    Head,
    /// The first `need` bytes of a payload, or of the next entry of SETTINGS.
    Prefix,
    /// Data, or a fragment of a header block.
    Payload,
    /// Padding, and whatever is ignored.
    Skip,
}

/// Where in the stream we are.
#[derive(Debug)]
pub(crate) struct Reader {
    stage: Stage,
    /// SETTINGS have not come yet.
    first: bool,
    /// No piece of the current payload was handed out.
    begins: bool,
    /// Bytes of the preface, a header or a prefix that came before.
    have: u8,
    need: u8,
    kept: [u8; HEAD],
    head: Head,
    /// Bytes of the payload still to come, padding included.
    left: u32,
    /// What of them is padding, and what padding counts.
    tail: u32,
    padding: u32,
    /// The stream whose header block is under way, and whether it ends with it.
    block: u32,
    block_ends: bool,
    max_frame: u32,
}

impl Reader {
    /// A stream that begins with the client's preface, or with a frame.
    pub(crate) fn new(preface: bool, max_frame: u32) -> Self {
        Reader {
            stage: if preface { Stage::Preface } else { Stage::Head },
            first: true,
            begins: true,
            have: 0,
            need: 0,
            kept: [0; HEAD],
            head: Head::default(),
            left: 0,
            tail: 0,
            padding: 0,
            block: 0,
            block_ends: false,
            max_frame,
        }
    }

    /// What is still to come of the frame that is under way: its sender can say nothing else before.
    pub(crate) fn due(&self) -> u32 {
        match self.stage {
            Stage::Payload | Stage::Skip => self.left,
            Stage::Preface | Stage::Head | Stage::Prefix => 0,
        }
    }

    /// The stream whose header block is under way.
    pub(crate) fn block(&self) -> Option<StreamId> {
        (self.block != 0).then_some(StreamId(self.block))
    }

    /// The next part; `None` when the input is used up.
    pub(crate) fn next<'a>(
        &mut self,
        input: &mut &'a [u8],
    ) -> Result<Option<Part<'a>>, ConnectionError> {
        loop {
            match self.stage {
                Stage::Head => {
                    let Some(head) = self.read_head(input) else {
                        return Ok(None);
                    };
                    if let Some(part) = self.whole_data(head, input) {
                        return Ok(Some(part));
                    }
                    if let Some(part) = self.begin(head)? {
                        return Ok(Some(part));
                    }
                }
                Stage::Payload => return Ok(self.payload(input)),
                Stage::Prefix => {
                    let wanted = usize::from(self.need - self.have).min(input.len());
                    let (bytes, rest) = input.split_at(wanted);
                    let at = usize::from(self.have);
                    self.kept[at..at + wanted].copy_from_slice(bytes);
                    *input = rest;
                    self.have += wanted as u8;
                    self.left -= wanted as u32;
                    if self.have < self.need {
                        return Ok(None);
                    }
                    self.have = 0;
                    if let Some(part) = self.prefixed()? {
                        return Ok(Some(part));
                    }
                }
                Stage::Skip => {
                    let skipped = (self.left as usize).min(input.len());
                    *input = &input[skipped..];
                    self.left -= skipped as u32;
                    if self.left > 0 {
                        return Ok(None);
                    }
                    self.stage = Stage::Head;
                }
                Stage::Preface => {
                    let expected = &PREFACE[usize::from(self.have)..];
                    let n = expected.len().min(input.len());
                    if input[..n] != expected[..n] {
                        return Err(ConnectionError::protocol(Cause::Preface));
                    }
                    *input = &input[n..];
                    self.have += n as u8;
                    if n < expected.len() {
                        return Ok(None);
                    }
                    self.have = 0;
                    self.stage = Stage::Head;
                }
            }
        }
    }

    #[inline]
    fn read_head(&mut self, input: &mut &[u8]) -> Option<Head> {
        if self.have == 0
            && let Some((head, rest)) = input.split_first_chunk::<HEAD>()
        {
            *input = rest;
            return Some(Head::parse(*head));
        }
        let at = usize::from(self.have);
        let n = (HEAD - at).min(input.len());
        self.kept[at..at + n].copy_from_slice(&input[..n]);
        *input = &input[n..];
        self.have += n as u8;
        if usize::from(self.have) < HEAD {
            return None;
        }
        self.have = 0;
        Some(Head::parse(self.kept))
    }

    /// Most of what comes on a tunnel: a plain DATA frame that is all there. It leaves no trace here.
    #[inline]
    fn whole_data<'a>(&self, head: Head, input: &mut &'a [u8]) -> Option<Part<'a>> {
        let plain = head.kind == kind::DATA
            && !head.has(flag::PADDED)
            && head.stream != 0
            && head.length <= self.max_frame
            && self.block == 0
            && !self.first;
        if !plain {
            return None;
        }
        let (bytes, rest) = input.split_at_checked(head.length as usize)?;
        *input = rest;
        Some(Part::Data {
            stream: head.stream,
            begins: true,
            length: head.length,
            padding: 0,
            bytes,
            over: true,
            end_stream: head.has(flag::END_STREAM),
        })
    }

    /// What there is of data or a fragment; `None` when there is nothing to say of it.
    fn payload<'a>(&mut self, input: &mut &'a [u8]) -> Option<Part<'a>> {
        let n = (self.left - self.tail).min(u32::try_from(input.len()).unwrap_or(u32::MAX));
        let (bytes, rest) = input.split_at(n as usize);
        *input = rest;
        self.left -= n;
        if self.left == self.tail && self.tail > 0 {
            let skipped = (self.tail as usize).min(input.len());
            *input = &input[skipped..];
            self.left -= skipped as u32;
            self.tail = self.left;
        }
        let over = self.left == 0;
        if over {
            self.stage = Stage::Head;
        } else if bytes.is_empty() && !self.begins {
            return None;
        }
        let begins = std::mem::replace(&mut self.begins, false);
        let Head { stream, length, .. } = self.head;
        if self.head.kind == kind::DATA {
            return Some(Part::Data {
                stream,
                begins,
                length,
                padding: self.padding,
                bytes,
                over,
                end_stream: self.head.has(flag::END_STREAM),
            });
        }
        let over = over && self.head.has(flag::END_HEADERS);
        if over {
            self.block = 0;
        }
        Some(Part::Block {
            stream,
            begins: begins && self.head.kind == kind::HEADERS,
            frame: begins,
            bytes,
            over,
            end_stream: self.block_ends,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads all of it; what the frame that is under way still owes.
    fn due(reader: &mut Reader, mut input: &[u8]) -> u32 {
        while reader.next(&mut input).unwrap().is_some() {}
        assert!(input.is_empty());
        reader.due()
    }

    #[test]
    fn what_is_due_is_the_rest_of_the_frame_that_is_under_way() {
        let mut reader = Reader::new(false, 1 << 18);
        assert_eq!(due(&mut reader, &[0, 0, 0, 4, 0, 0, 0, 0, 0]), 0);
        // DATA of 1000 bytes, 100 of them padding.
        let head = [0, 0x03, 0xe8, 0, flag::PADDED, 0, 0, 0, 1];
        assert_eq!(due(&mut reader, &head[..8]), 0);
        assert_eq!(due(&mut reader, &head[8..]), 0);
        assert_eq!(due(&mut reader, &[100]), 999);
        assert_eq!(due(&mut reader, &[0; 300]), 699);
        assert_eq!(due(&mut reader, &[0; 650]), 49);
        assert_eq!(due(&mut reader, &[0; 49]), 0);
    }
}
