//! Conversion of received heads and trailers from the codecs to the message model.

use std::cell::RefCell;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use lateen_h2::FieldPlace;
use lateen_http::{
    Asked, FramedRequest, FramedResponse, Limits, RawRequest, RawResponse, RawTrailers, Refusal,
    Status, Trailers, Version,
};

use crate::inbox::LARGE;
use crate::names::{Name, of_number};

/// The place of `part` within `whole`, of which it is a slice.
#[inline]
fn place(whole: &[u8], part: &[u8]) -> Range<usize> {
    let start = (part.as_ptr() as usize).wrapping_sub(whole.as_ptr() as usize);
    start..start.wrapping_add(part.len())
}

fn version(version: lateen_h1::Version) -> Version {
    match version {
        lateen_h1::Version::Http10 => Version::Http10,
        lateen_h1::Version::Http11 => Version::Http11,
    }
}

/// Bytes of a block to which heads are copied. A head keeps no more alive than its block.
const BLOCK: usize = 4 * 1024;

/// Bytes of the largest head that is copied to a block. Others have an allocation of their own.
const SMALL: usize = BLOCK / 4;

thread_local! {
    /// The free end of a thread's last block. An allocation for each head would cost more than the copy.
    static HEADS: RefCell<BytesMut> = RefCell::new(BytesMut::new());
}

/// The bytes of a head that came over HTTP/1. All but a large one are copied, for a request may last, and would keep the buffer
/// that it was read into for as long. No account is charged with that.
#[inline]
fn owned(bytes: &Bytes) -> Bytes {
    if bytes.len() >= LARGE {
        return bytes.clone();
    }
    if bytes.len() > SMALL {
        return Bytes::copy_from_slice(bytes);
    }
    HEADS.with_borrow_mut(|block| {
        if block.capacity() < bytes.len() {
            block.reserve(BLOCK);
        }
        block.extend_from_slice(bytes);
        block.split().freeze()
    })
}

/// A request of HTTP/1.
pub(crate) fn http1_request(
    head: &lateen_h1::Request,
    limits: Limits,
) -> Result<FramedRequest, Refusal> {
    let bytes = head.fields().buffer();
    let (method, target) = (place(bytes, head.method()), place(bytes, head.target()));
    let mut raw = RawRequest::http1(
        owned(bytes),
        method,
        target,
        version(head.version()),
        limits,
    )?;
    raw.lines(head.fields().lines())?;
    raw.frame()
}

/// A response of HTTP/1 over the bytes in which it came.
pub(crate) fn http1_response(
    head: &lateen_h1::Response,
    asked: Asked,
    limits: Limits,
) -> Result<FramedResponse, Refusal> {
    let bytes = head.fields().buffer();
    // The codec took a number of three digits.
    let status = Status::new(head.status()).unwrap_or(Status::BAD_GATEWAY);
    let mut raw = RawResponse::http1(bytes.clone(), status, version(head.version()), limits)?;
    raw.lines(head.fields().lines())?;
    raw.frame(asked)
}

/// The trailers of an HTTP/1 message.
pub(crate) fn http1_trailers(
    trailers: &lateen_h1::Trailers,
    limits: Limits,
) -> Result<Trailers, Refusal> {
    let bytes = trailers.fields.buffer();
    let mut raw = RawTrailers::new(owned(bytes), Version::Http11, limits)?;
    for field in trailers.fields.iter() {
        raw.field(place(bytes, field.name()), place(bytes, field.value()))?;
    }
    Ok(raw.canonical())
}

/// The names and values of a header list. The codec uses its buffer again.
fn copied(fields: &lateen_h2::Fields) -> Bytes {
    Bytes::copy_from_slice(fields.buffer())
}

/// A request of HTTP/2.
pub(crate) fn http2_request(
    fields: &lateen_h2::Fields,
    end: bool,
    limits: Limits,
) -> Result<FramedRequest, Refusal> {
    let mut raw = RawRequest::http2(copied(fields), end, limits)?;
    for FieldPlace {
        known,
        name,
        value,
        never_indexed,
    } in fields.places()
    {
        let pseudo = match of_number(known) {
            Name::Field(known) => raw.numbered(known, value).map(|()| None),
            Name::Pseudo(field) => raw.pseudo(field, value).map(|()| Some(field)),
            Name::Text => raw.field(name, value).map(|()| None),
        }?;
        if never_indexed {
            raw.never_index(pseudo);
        }
    }
    raw.frame()
}

/// A response of HTTP/2.
pub(crate) fn http2_response(
    fields: &lateen_h2::Fields,
    end: bool,
    asked: Asked,
    limits: Limits,
) -> Result<FramedResponse, Refusal> {
    let mut raw = RawResponse::http2(copied(fields), end, limits)?;
    for FieldPlace {
        known,
        name,
        value,
        never_indexed,
    } in fields.places()
    {
        let pseudo = match of_number(known) {
            Name::Field(known) => raw.numbered(known, value).map(|()| None),
            Name::Pseudo(field) => raw.pseudo(field, value).map(|()| Some(field)),
            Name::Text => raw.field(name, value).map(|()| None),
        }?;
        if never_indexed {
            raw.never_index(pseudo);
        }
    }
    raw.frame(asked)
}

/// The trailers of an HTTP/2 message.
pub(crate) fn http2_trailers(
    fields: &lateen_h2::Fields,
    limits: Limits,
) -> Result<Trailers, Refusal> {
    let mut raw = RawTrailers::new(copied(fields), Version::Http2, limits)?;
    for place in fields.places() {
        raw.field(place.name, place.value)?;
        if place.never_indexed {
            raw.never_index();
        }
    }
    Ok(raw.canonical())
}
