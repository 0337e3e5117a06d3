//! Any bytes as the messages of a gRPC call: the result does not depend on how they are cut, and a message
//! that was taken comes back from its frame.
#![no_main]

use bytes::Bytes;
use lateen_load::frames::{Broken, Frames, frame};
use libfuzzer_sys::fuzz_target;

fn outcome(pieces: &[&[u8]], gzip: bool) -> (Vec<Bytes>, Option<Broken>) {
    let mut frames = Frames::default();
    let mut messages = Vec::new();
    for piece in pieces {
        frames.push(piece);
        loop {
            match frames.next(gzip) {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(broken) => return (messages, Some(broken)),
            }
        }
    }
    (messages, None)
}

fuzz_target!(|data: &[u8]| {
    let [flags, cut, bytes @ ..] = data else { return };
    let gzip = flags & 1 == 1;
    let (first, second) = bytes.split_at(usize::from(*cut).min(bytes.len()));
    let whole = outcome(&[bytes], gzip);
    assert_eq!(whole, outcome(&[first, second], gzip));
    for message in whole.0 {
        assert_eq!(outcome(&[&frame(&message, gzip)], gzip), (vec![message], None));
    }
});
