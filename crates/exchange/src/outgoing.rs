//! Fields of outgoing messages in the form of either codec, without a copy.

use lateen_h1::FieldWriter;
use lateen_h2::{Field, Known};
use lateen_http::{ConnectHead, RequestHead, ResponseHead, WebSocketKey};

use crate::keep::{named, placed};
use crate::lines::Lines;

/// The fields of one message that is being written.
pub(crate) trait Outgoing {
    /// Writes them for HTTP/1, without those that its writer makes.
    fn http1(&self, writer: &mut FieldWriter<'_>);

    /// Gives them for HTTP/2, where `names` holds those names that are put in lower case.
    fn http2<'a>(&'a self, names: &'a mut Vec<u8>) -> Vec<Field<'a>>;
}

/// The fields of a head, and the key of its WebSocket handshake in HTTP/1.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keyed<'h, H>(pub(crate) &'h H, pub(crate) Option<&'h WebSocketKey>);

/// Pseudo-header fields of a request: no head has more.
const PSEUDO: usize = 5;

impl Outgoing for Keyed<'_, RequestHead> {
    #[inline]
    fn http1(&self, writer: &mut FieldWriter<'_>) {
        if self
            .0
            .http1_lines(self.1, |line| writer.line(line))
            .is_none()
        {
            writer.fail(lateen_h1::WriteError::Upgrade);
        }
    }

    #[inline]
    fn http2<'a>(&'a self, names: &'a mut Vec<u8>) -> Vec<Field<'a>> {
        let mut fields = Vec::with_capacity(self.0.fields().len() + PSEUDO);
        self.0.http2_with(names, |field| fields.push(kept(field)));
        fields
    }
}

impl Outgoing for Keyed<'_, ResponseHead> {
    #[inline]
    fn http1(&self, writer: &mut FieldWriter<'_>) {
        self.0.http1_lines(self.1, |line| writer.line(line));
    }

    #[inline]
    fn http2<'a>(&'a self, names: &'a mut Vec<u8>) -> Vec<Field<'a>> {
        let mut fields = Vec::with_capacity(self.0.fields().len() + PSEUDO);
        self.0.http2_with(names, |field| fields.push(kept(field)));
        fields
    }
}

impl Outgoing for &ConnectHead {
    fn http1(&self, writer: &mut FieldWriter<'_>) {
        self.http1_lines(|line| writer.line(line));
    }

    fn http2<'a>(&'a self, names: &'a mut Vec<u8>) -> Vec<Field<'a>> {
        let mut fields = Vec::with_capacity(self.fields().len() + PSEUDO);
        self.http2_with(names, |field| fields.push(kept(field)));
        fields
    }
}

impl Outgoing for &Lines {
    fn http1(&self, writer: &mut FieldWriter<'_>) {
        match Lines::http1(self) {
            Ok(fields) => fields.into_iter().for_each(|field| writer.field(field)),
            Err(fault) => writer.fail(fault),
        }
    }

    fn http2<'a>(&'a self, _: &'a mut Vec<u8>) -> Vec<Field<'a>> {
        Lines::http2(self)
    }
}

/// The numbers of `lateen_h2` for those of `lateen_http`.
static NUMBERS: [Option<Known>; 128] = {
    let mut numbers = [None; 128];
    let mut n = 0;
    while n < lateen_http::Known::ALL.len() {
        let text = lateen_http::Known::ALL[n].as_str().as_bytes();
        let mut m = 0;
        while m < Known::ALL.len() {
            if is_same(text, Known::ALL[m].as_str().as_bytes()) {
                numbers[n] = Some(Known::ALL[m]);
            }
            m += 1;
        }
        n += 1;
    }
    numbers
};

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// A field of the message model, with its place in the peer's table.
#[inline]
fn kept(field: lateen_http::Field<'_>) -> Field<'_> {
    match field.known() {
        Some(known) => match NUMBERS[known as usize & 127] {
            Some(known) => placed(known, field.value()),
            None => Field::unnumbered(field.name(), field.value()),
        },
        None => named(field.name(), field.value()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_models_mean_the_same_name() {
        for known in lateen_http::Known::ALL {
            let number = NUMBERS[*known as usize & 127];
            assert_eq!(number, Known::of(known.as_str().as_bytes()), "{known:?}");
        }
    }
}
