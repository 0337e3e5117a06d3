//! Heads of CONNECT requests (RFC 9110 §9.3.6).

use std::net::IpAddr;

use crate::authority::Authority;
use crate::fields::{Field, Fields, Line};
use crate::known::Known;
use crate::pseudo::{PseudoField, PseudoSet};
use crate::raw::Version;

/// A CONNECT for a tunnel to an authority. It has neither a path nor content.
#[derive(Debug, Clone)]
pub struct ConnectHead {
    pub(crate) authority: Authority,
    pub(crate) fields: Fields,
    pub(crate) version: Version,
    pub(crate) client: IpAddr,
    /// Pseudo-header fields that came as HPACK literals that are never indexed.
    pub(crate) never_indexed: PseudoSet,
}

impl ConnectHead {
    /// The far end of the tunnel. It has a port.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The end-to-end fields.
    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// The version in which the request arrived.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The client's address as far as header trust believes it.
    pub fn client(&self) -> IpAddr {
        self.client
    }

    /// Copies the head out of the read buffer that it keeps alive.
    pub(crate) fn detach(&mut self) {
        self.authority.detach();
        self.fields.detach();
    }

    /// Gives the fields of an HTTP/2 CONNECT to `emit` (RFC 9113 §8.5).
    pub fn http2(&self, emit: impl FnMut(Field<'_>)) {
        self.http2_with(&mut Vec::new(), emit);
    }

    /// The same. `names` holds names that are put in lower case, for as long as the fields are used.
    pub fn http2_with<'a>(&'a self, names: &'a mut Vec<u8>, mut emit: impl FnMut(Field<'a>)) {
        emit(Field::of_pseudo(PseudoField::Method, b"CONNECT"));
        let never_indexed = self.never_indexed.has(PseudoField::Authority);
        let authority = Field::of_pseudo(PseudoField::Authority, self.authority.as_bytes());
        emit(authority.with_never_indexed(never_indexed));
        self.fields.lower(names, emit);
    }

    /// Gives the fields of an HTTP/1 CONNECT to `emit`. The authority is the request target.
    pub fn http1(&self, mut emit: impl FnMut(Field<'_>)) {
        emit(Field::made(Known::Host, self.authority.as_bytes()));
        self.fields.iter().for_each(emit);
    }

    /// The same, with neighbours that arrived as lines of HTTP/1 in one piece.
    pub fn http1_lines(&self, mut emit: impl FnMut(Line<'_>)) {
        let host = Field::made(Known::Host, self.authority.as_bytes());
        emit(Line::Field(host));
        self.fields.lines(true, emit);
    }
}
