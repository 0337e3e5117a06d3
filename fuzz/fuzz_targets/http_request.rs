//! Any bytes as HTTP/1.1 requests: the result does not depend on how they are cut into reads.
#![no_main]

use lateen_load::http::{MAX_BODY, Request, RequestParser};
use libfuzzer_sys::fuzz_target;

fn outcome(pieces: &[&[u8]]) -> (Vec<Request>, bool) {
    let mut parser = RequestParser::default();
    let mut seen = Vec::new();
    for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() {
            match parser.feed(rest) {
                Ok(Some((request, used))) => {
                    assert!(request.body.len() <= MAX_BODY);
                    seen.push(request);
                    rest = &rest[used..];
                }
                Ok(None) => break,
                Err(_) => return (seen, true),
            }
        }
    }
    (seen, false)
}

fuzz_target!(|data: &[u8]| {
    let Some((&cut, bytes)) = data.split_first() else { return };
    let at = usize::from(cut).min(bytes.len());
    let (first, second) = bytes.split_at(at);
    assert_eq!(outcome(&[bytes]), outcome(&[first, second]));
});
