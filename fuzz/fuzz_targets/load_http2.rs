//! Any bytes as what a server sends to the load generator's client of HTTP/2 and gRPC: nothing panics, a request ends
//! once, and how the bytes are cut into reads changes nothing.
#![no_main]

use lateen_load::client::{Completion, Form, Output, Protocol, Request, Start};
use libfuzzer_sys::fuzz_target;

fn outcome(form: Form, pieces: &[&[u8]]) -> (Vec<Completion>, bool) {
    let request = Request {
        method: "GET".to_owned(),
        authority: "a".to_owned(),
        path: "/".to_owned(),
        headers: Vec::new(),
        body: b"body".as_slice().into(),
    };
    let mut client = Protocol::http2(&[request], "http", form).client();
    let mut out = Output::default();
    client.open(&mut out);
    for slot in 0..3 {
        client.start(Start { slot, request: 0, last: false }, &mut out);
    }
    let broke = pieces.iter().any(|piece| client.receive(&piece.to_vec().into(), 0, &mut out).is_err());
    client.end(&mut out);
    (out.done, broke)
}

fuzz_target!(|data: &[u8]| {
    let Some((&[form, cut], bytes)) = data.split_first_chunk() else { return };
    let form = match form % 3 {
        0 => Form::Http,
        1 => Form::Unary,
        _ => Form::Streaming,
    };
    let at = usize::from(cut).min(bytes.len());
    let (first, second) = bytes.split_at(at);
    let whole = outcome(form, &[bytes]);
    assert_eq!(whole, outcome(form, &[first, second]));
    let mut slots: Vec<usize> = whole.0.iter().map(|completion| completion.slot).collect();
    slots.sort_unstable();
    slots.dedup();
    assert_eq!(slots.len(), whole.0.len(), "a request ends once");
});
