//! Any bytes as HTTP/1.1 responses: the result does not depend on how they are cut into reads.
#![no_main]

use lateen_load::http::ResponseParser;
use libfuzzer_sys::fuzz_target;

fn outcome(pieces: &[&[u8]]) -> (Vec<(u16, u64)>, bool) {
    let mut parser = ResponseParser::default();
    let mut seen = Vec::new();
    for piece in pieces {
        let mut rest = *piece;
        loop {
            match parser.feed(rest) {
                Ok(Some((response, used))) => {
                    seen.push((response.status, response.content));
                    rest = &rest[used..];
                    if rest.is_empty() {
                        break;
                    }
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
