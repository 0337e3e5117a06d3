//! Canonical request heads, their edits, and their conversion to HTTP/1 and HTTP/2.

use std::net::IpAddr;

use crate::authority::Authority;
use crate::fields::{Field, Fields, Line};
use crate::framing::{Asked, Length};
use crate::known::{Known, NameSet};
use crate::method::Method;
use crate::name::FieldName;
use crate::path::Path;
use crate::pseudo::{PseudoField, PseudoSet};
use crate::raw::Version;
use crate::refusal::Cause;
use crate::scheme::Scheme;
use crate::value::FieldValue;
use crate::websocket::WebSocketKey;

/// The head of a request in the one form that routes, policies, logs and upstreams see. Only
/// [`FramedRequest::canonical`](crate::FramedRequest::canonical) makes one.
///
/// Its fields are end-to-end fields alone: neither `host` nor hop-by-hop fields are among them.
#[derive(Debug, Clone)]
pub struct RequestHead {
    pub(crate) method: Method,
    pub(crate) scheme: Scheme,
    pub(crate) authority: Authority,
    pub(crate) path: Path,
    pub(crate) fields: Fields,
    pub(crate) length: Length,
    pub(crate) version: Version,
    /// The client's address as far as header trust believes it.
    pub(crate) client: IpAddr,
    pub(crate) accepts_trailers: bool,
    pub(crate) upgrade: Option<Upgrade>,
    /// Pseudo-header fields that came as HPACK literals that are never indexed.
    pub(crate) never_indexed: PseudoSet,
}

/// A protocol to which the client asks to switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Upgrade {
    /// WebSocket, by Upgrade (RFC 6455) or by extended CONNECT (RFC 8441).
    WebSocket {
        /// The key of an HTTP/1 client. HTTP/2 has none.
        key: Option<WebSocketKey>,
    },
}

impl RequestHead {
    /// The method. That of a WebSocket handshake is GET in HTTP/2 as well.
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// The scheme: that of the transport, or of a trusted `x-forwarded-proto`.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The host and its port.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The path and its query.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The end-to-end fields.
    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// The length of the content.
    pub fn length(&self) -> Length {
        self.length
    }

    /// The version in which the request arrived.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The client's address as far as header trust believes it (Istio's `remote.ip`).
    pub fn client(&self) -> IpAddr {
        self.client
    }

    /// True if the client announced that it reads trailers.
    pub fn accepts_trailers(&self) -> bool {
        self.accepts_trailers
    }

    /// The protocol to which the client asks to switch.
    pub fn upgrade(&self) -> Option<&Upgrade> {
        self.upgrade.as_ref()
    }

    /// The facts on which the framing of the answer depends.
    pub fn asked(&self) -> Asked {
        match self.upgrade {
            Some(_) => Asked::Upgrade,
            None if self.method == Method::HEAD => Asked::Head,
            None => Asked::Ordinary,
        }
    }

    /// Copies the head out of the read buffer that it keeps alive.
    pub(crate) fn detach(&mut self) {
        self.method.detach();
        self.authority.detach();
        self.path.detach();
        self.fields.detach();
    }

    /// Replaces the host, as a rewrite rule says.
    pub fn set_authority(&mut self, authority: Authority) {
        self.authority = authority;
    }

    /// Replaces the path and query, as a rewrite rule says.
    pub fn set_path(&mut self, path: Path) {
        self.path = path;
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

    /// Gives the fields of an HTTP/2 request to `emit`, pseudo-header fields first (RFC 9113 §8.3.1). A WebSocket handshake
    /// becomes an extended CONNECT (RFC 8441 §4).
    pub fn http2(&self, emit: impl FnMut(Field<'_>)) {
        self.http2_with(&mut Vec::new(), emit);
    }

    /// The same. `names` holds names that are put in lower case, for as long as the fields are used.
    #[inline]
    pub fn http2_with<'a>(&'a self, names: &'a mut Vec<u8>, mut emit: impl FnMut(Field<'a>)) {
        let method = match self.upgrade {
            Some(_) => &Method::CONNECT,
            None => &self.method,
        };
        let mut pseudo = |field, value| {
            let never_indexed = self.never_indexed.has(field);
            emit(Field::of_pseudo(field, value).with_never_indexed(never_indexed));
        };
        pseudo(PseudoField::Method, method.as_bytes());
        pseudo(PseudoField::Scheme, self.scheme.as_str().as_bytes());
        pseudo(PseudoField::Authority, self.authority.as_bytes());
        pseudo(PseudoField::Path, self.path.target());
        if self.upgrade.is_some() {
            pseudo(PseudoField::Protocol, b"websocket");
        }
        self.fields.lower(names, emit);
    }

    /// Gives the fields of an HTTP/1 request to `emit`, `host` first. The method and [`Path::target`] make the request line.
    ///
    /// `key` is the key for a WebSocket client that sent none. Without any key the handshake fails with `None`.
    /// Transfer-Encoding is the writer's, by [`RequestHead::length`].
    #[must_use]
    pub fn http1(&self, key: Option<&WebSocketKey>, mut emit: impl FnMut(Field<'_>)) -> Option<()> {
        self.parts(key, false, |line| {
            if let Line::Field(field) = line {
                emit(field);
            }
        })
    }

    /// The same, with neighbours that arrived as lines of HTTP/1 in one piece.
    #[must_use]
    #[inline]
    pub fn http1_lines<'a>(
        &'a self,
        key: Option<&'a WebSocketKey>,
        emit: impl FnMut(Line<'a>),
    ) -> Option<()> {
        self.parts(key, true, emit)
    }

    #[inline]
    fn parts<'a>(
        &'a self,
        key: Option<&'a WebSocketKey>,
        joins: bool,
        mut emit: impl FnMut(Line<'a>),
    ) -> Option<()> {
        let key = match &self.upgrade {
            Some(Upgrade::WebSocket { key: own }) => Some(own.as_ref().or(key)?),
            None => None,
        };
        let mut made = |known, value| emit(Line::Field(Field::made(known, value)));
        made(Known::Host, self.authority.as_bytes());
        self.fields.lines(joins, &mut emit);
        let options: &[u8] = match (key, self.accepts_trailers) {
            (None, false) => return Some(()),
            (None, true) => b"te",
            (Some(_), false) => b"upgrade",
            (Some(_), true) => b"upgrade, te",
        };
        let mut made = |known, value| emit(Line::Field(Field::made(known, value)));
        made(Known::Connection, options);
        if let Some(key) = key {
            made(Known::Upgrade, b"websocket");
            made(Known::SecWebsocketKey, key.as_bytes());
        }
        Some(())
    }
}

pub(crate) fn set(fields: &mut Fields, name: &FieldName, value: &FieldValue) -> Result<(), Cause> {
    check_editable(name)?;
    match name.known() {
        Some(known) => fields.set(known, &[value.as_bytes()]),
        None => {
            fields.remove_named(name);
            fields.add_named(name, value.as_bytes())
        }
    }
}

/// Refuses names whose meaning the model holds elsewhere.
pub(crate) fn check_editable(name: &FieldName) -> Result<(), Cause> {
    match name.known() {
        Some(known) if NameSet::RESERVED.has(known) => Err(Cause::Reserved(known)),
        _ => Ok(()),
    }
}
