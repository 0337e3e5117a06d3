//! Answers that the proxy gives itself: a status with a sentence, or a status of gRPC to a client that speaks it.

use bytes::Bytes;
use lateen_exchange::{Error, server};
use lateen_http::{Canonical, FieldName, FieldValue, Known, Length, Status};

use super::date;
use super::grpc;
use super::head;

/// The challenge that 401 must have (RFC 9110 §15.5.2), for a token that is not accepted (RFC 6750 §3.1).
const CHALLENGE: &[u8] = br#"Bearer error="invalid_token""#;

/// The content of an answer to a request. `head` is its head, as far as there is one. A call of gRPC has its text in a field.
pub(super) fn content(head: Option<&Canonical>, text: &'static str) -> &'static str {
    match head.is_some_and(|head| head::is_grpc(head) || head::is_head(head)) {
        true => "",
        false => text,
    }
}

/// The status of an answer to a request, and that of gRPC if the request is a call: its answer is 200, and says in a field what failed.
pub(super) fn statuses(head: Option<&Canonical>, status: Status) -> (Status, Option<u32>) {
    match head.is_some_and(head::is_grpc) {
        true => (Status::OK, Some(grpc_status(status.code()))),
        false => (status, None),
    }
}

/// Answers a request.
///
/// # Errors
/// The client has left, or has been answered, or leaves 4 KiB unread while its account has no room.
pub(super) async fn reply(
    below: &server::Exchange,
    head: Option<&Canonical>,
    status: Status,
    text: &'static str,
) -> Result<(), Error> {
    let (status, of_grpc) = statuses(head, status);
    if let Some(of_grpc) = of_grpc {
        let fields = [
            field(Known::ContentType, Bytes::from_static(b"application/grpc")),
            field(Known::GrpcStatus, of_grpc.to_string().into()),
            field(Known::GrpcMessage, Bytes::from_static(text.as_bytes())),
            (Known::Date.into(), date::now()),
        ];
        below.reply(status, &fields, Length::Known(0))?;
        return below.finish();
    }
    let fields = [
        field(Known::ContentType, Bytes::from_static(b"text/plain")),
        (Known::Date.into(), date::now()),
        field(Known::WwwAuthenticate, Bytes::from_static(CHALLENGE)),
    ];
    // A challenge belongs to 401 alone.
    let fields = match status.code() {
        401 => &fields[..],
        _ => &fields[..2],
    };
    below.reply(status, fields, Length::Known(text.len() as u64))?;
    let content = content(head, text);
    below.send(Bytes::from_static(content.as_bytes())).await?;
    below.finish()
}

fn field(name: Known, value: Bytes) -> (FieldName, FieldValue) {
    let value = FieldValue::new(value).expect("texts of this module have no control characters");
    (name.into(), value)
}

/// The status of gRPC for a status of HTTP. An answer that came too late is DEADLINE_EXCEEDED, as in Envoy: clients repeat calls for
/// UNAVAILABLE, which gRPC's mapping has for 504.
fn grpc_status(status: u16) -> u32 {
    match status {
        504 => 4,
        status => grpc::status_of_http(status),
    }
}
