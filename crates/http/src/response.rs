//! Canonical response heads, and their conversion to HTTP/1 and HTTP/2.

use crate::downstream::PeerKind;
use crate::fields::{Field, Fields};
use crate::framing::{FramedResponse, Length};
use crate::hop;
use crate::known::Known;
use crate::name::FieldName;
use crate::raw::Version;
use crate::refusal::{Cause, Refusal};
use crate::request::{check_editable, emit_lower, set};
use crate::scan;
use crate::status::Status;
use crate::trust;
use crate::value::FieldValue;
use crate::websocket::WebSocketKey;

/// The head of a response: end-to-end fields alone, content of one length.
#[derive(Debug, Clone)]
pub struct ResponseHead {
    status: Status,
    fields: Fields,
    length: Length,
    opens_tunnel: bool,
}

impl FramedResponse {
    /// Makes the one form of a response. `key` is the key that an HTTP/1 upstream got in a WebSocket handshake, and must have
    /// accepted. `reader` is the place of the client.
    pub fn canonical(
        self,
        key: Option<&WebSocketKey>,
        reader: PeerKind,
    ) -> Result<ResponseHead, Refusal> {
        self.judged(key, reader).map_err(Refusal::response)
    }

    fn judged(
        mut self,
        key: Option<&WebSocketKey>,
        reader: PeerKind,
    ) -> Result<ResponseHead, Cause> {
        let fields = &mut self.raw.fields;
        if self.status == Status::SWITCHING_PROTOCOLS {
            let mut protocols = fields.all(Known::Upgrade).flat_map(scan::elements);
            if !protocols
                .next()
                .is_some_and(|name| name.eq_ignore_ascii_case(b"websocket"))
            {
                return Err(Cause::UnaskedUpgrade);
            }
            let accept = fields.get(Known::SecWebsocketAccept);
            if key
                .map(WebSocketKey::accept)
                .as_ref()
                .map(FieldValue::as_bytes)
                != accept
            {
                return Err(Cause::WebSocketAccept);
            }
        }
        fields.remove(Known::SecWebsocketAccept);
        hop::remove(fields, self.raw.version, false)?;
        trust::apply_to_response(fields, reader);
        // In these answers the field says nothing, and a recipient might wait for content (RFC 9110 §8.6).
        if self.status.is_informational() || self.status.code() == 204 {
            fields.remove(Known::ContentLength);
        }
        Ok(ResponseHead {
            status: self.status,
            length: self.length,
            opens_tunnel: self.opens_tunnel,
            fields: self.raw.fields,
        })
    }
}

impl ResponseHead {
    /// The status as it arrived.
    pub fn status(&self) -> Status {
        self.status
    }

    /// The end-to-end fields.
    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// The length of the content.
    pub fn length(&self) -> Length {
        self.length
    }

    /// True if a tunnel follows: the answer accepts CONNECT or WebSocket.
    pub fn opens_tunnel(&self) -> bool {
        self.opens_tunnel
    }

    /// Gives a field this value alone, in the place of the first one of its name.
    pub fn set(&mut self, name: &FieldName, value: &FieldValue) -> Result<(), Cause> {
        set(&mut self.fields, name, value)
    }

    /// Adds a field.
    pub fn add(&mut self, name: &FieldName, value: &FieldValue) -> Result<(), Cause> {
        check_editable(name)?;
        self.fields.add_named(name, value.as_bytes())
    }

    /// Removes all fields of a name.
    pub fn remove(&mut self, name: &FieldName) -> Result<(), Cause> {
        check_editable(name)?;
        self.fields.remove_named(name);
        Ok(())
    }

    /// Gives the fields of an HTTP/2 response to `emit`. Acceptance of a WebSocket is 200 there (RFC 8441 §4).
    pub fn http2(&self, mut emit: impl FnMut(Field<'_>)) {
        let status = match self.status {
            Status::SWITCHING_PROTOCOLS => Status::OK,
            status => status,
        };
        let code = status.code();
        let digits = [code / 100, code / 10 % 10, code % 10].map(|digit| b'0' + digit as u8);
        emit(Field::pseudo(":status", &digits));
        emit_lower(&self.fields, emit);
    }

    /// Gives the fields of an HTTP/1 response to `emit` and returns its status. `key` is the key of an HTTP/1 client that asked
    /// for a WebSocket; its acceptance is 101 there. Content-Length of [`Length::Known`] is among the fields; Transfer-Encoding is the writer's.
    pub fn http1(&self, key: Option<&WebSocketKey>, mut emit: impl FnMut(Field<'_>)) -> Status {
        self.fields.iter().for_each(&mut emit);
        let (Some(key), true) = (key, self.opens_tunnel) else {
            return self.status;
        };
        emit(Field::made(Known::Connection, b"upgrade"));
        emit(Field::made(Known::Upgrade, b"websocket"));
        emit(Field::made(
            Known::SecWebsocketAccept,
            key.accept().as_bytes(),
        ));
        Status::SWITCHING_PROTOCOLS
    }
}

/// True if trailers can follow a message of this version and length: HTTP/2, or HTTP/1.1 with chunks.
pub fn can_have_trailers(version: Version, length: Length) -> bool {
    match version {
        Version::Http10 => false,
        Version::Http11 => length == Length::Delimited,
        Version::Http2 => true,
    }
}
