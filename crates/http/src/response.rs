//! Canonical response heads, and their conversion to HTTP/1 and HTTP/2.

use crate::downstream::PeerKind;
use crate::fields::{Field, Fields, Line};
use crate::framing::{FramedResponse, Length};
use crate::hop;
use crate::known::Known;
use crate::name::FieldName;
use crate::pseudo::PseudoField;
use crate::raw::Version;
use crate::refusal::{Cause, Refusal};
use crate::request::{check_editable, set};
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
        // The end says the length, and in HTTP/1 a length beside chunks would be a second one.
        if self.length == Length::Delimited {
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

    /// Copies the head out of the read buffer that it keeps alive: a head that is kept for long then costs its own bytes alone.
    pub fn detach(&mut self) {
        self.fields.detach();
    }

    /// Bytes of the buffer that the head lies in, once it is detached. Fields that were removed are among them.
    pub fn buffer_len(&self) -> usize {
        self.fields.bytes().len()
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
    pub fn http2(&self, emit: impl FnMut(Field<'_>)) {
        self.http2_with(&mut Vec::new(), emit);
    }

    /// The same. `names` holds names that are put in lower case, for as long as the fields are used.
    #[inline]
    pub fn http2_with<'a>(&'a self, names: &'a mut Vec<u8>, mut emit: impl FnMut(Field<'a>)) {
        let status = match self.status {
            Status::SWITCHING_PROTOCOLS => Status::OK,
            status => status,
        };
        emit(Field::of_pseudo(PseudoField::Status, status.digits()));
        self.fields.lower(names, emit);
    }

    /// Gives the fields of an HTTP/1 response to `emit` and returns its status. `key` is the key of an HTTP/1 client that asked
    /// for a WebSocket; its acceptance is 101 there. Content-Length of [`Length::Known`] is among the fields; Transfer-Encoding is the writer's.
    pub fn http1(&self, key: Option<&WebSocketKey>, mut emit: impl FnMut(Field<'_>)) -> Status {
        self.parts(key, false, |line| {
            if let Line::Field(field) = line {
                emit(field);
            }
        });
        self.http1_status(key)
    }

    /// The same, with neighbours that arrived as lines of HTTP/1 in one piece.
    #[inline]
    pub fn http1_lines(&self, key: Option<&WebSocketKey>, emit: impl FnMut(Line<'_>)) {
        self.parts(key, true, emit);
    }

    /// The status of the answer in HTTP/1; see [`ResponseHead::http1`].
    #[inline]
    pub fn http1_status(&self, key: Option<&WebSocketKey>) -> Status {
        match key.is_some() && self.opens_tunnel {
            true => Status::SWITCHING_PROTOCOLS,
            false => self.status,
        }
    }

    #[inline]
    fn parts(&self, key: Option<&WebSocketKey>, joins: bool, mut emit: impl FnMut(Line<'_>)) {
        self.fields.lines(joins, &mut emit);
        let (Some(key), true) = (key, self.opens_tunnel) else {
            return;
        };
        let accept = key.accept();
        for (known, value) in [
            (Known::Connection, &b"upgrade"[..]),
            (Known::Upgrade, b"websocket"),
            (Known::SecWebsocketAccept, accept.as_bytes()),
        ] {
            emit(Line::Field(Field::made(known, value)));
        }
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
