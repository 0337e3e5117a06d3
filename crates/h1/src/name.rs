//! Numbers of the field names that this crate acts on. All other names are [`Name::Other`].

/// A field name that framing, routing or trailers depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Name {
    Other,
    Authorization,
    Connection,
    ContentEncoding,
    ContentLength,
    ContentRange,
    ContentType,
    Cookie,
    Expect,
    Host,
    KeepAlive,
    ProxyAuthorization,
    ProxyConnection,
    SetCookie,
    Te,
    Trailer,
    TransferEncoding,
    Upgrade,
}

impl Name {
    /// The number of a name, whatever its case.
    #[inline]
    pub(crate) fn of(name: &[u8]) -> Name {
        use Name::*;
        let candidates: &[(&[u8], Name)] = match name.len() {
            2 => &[(b"te", Te)],
            4 => &[(b"host", Host)],
            6 => &[(b"expect", Expect), (b"cookie", Cookie)],
            7 => &[(b"upgrade", Upgrade), (b"trailer", Trailer)],
            10 => &[
                (b"connection", Connection),
                (b"keep-alive", KeepAlive),
                (b"set-cookie", SetCookie),
            ],
            12 => &[(b"content-type", ContentType)],
            13 => &[
                (b"authorization", Authorization),
                (b"content-range", ContentRange),
            ],
            14 => &[(b"content-length", ContentLength)],
            16 => &[
                (b"content-encoding", ContentEncoding),
                (b"proxy-connection", ProxyConnection),
            ],
            17 => &[(b"transfer-encoding", TransferEncoding)],
            19 => &[(b"proxy-authorization", ProxyAuthorization)],
            _ => return Other,
        };
        let same = |(known, _): &&(&[u8], Name)| {
            // Two letters tell most names apart, and cost less than a comparison.
            (name[0] | 0x20, name[1] | 0x20) == (known[0], known[1])
                && name.eq_ignore_ascii_case(known)
        };
        candidates
            .iter()
            .find(same)
            .map_or(Other, |(_, number)| *number)
    }

    /// True for fields that the writer makes itself: framing and the connection's persistence.
    pub(crate) fn is_made_by_the_writer(self) -> bool {
        use Name::*;
        matches!(
            self,
            Connection | ContentLength | KeepAlive | ProxyConnection | TransferEncoding
        )
    }

    /// True for fields that a trailer section must not have (RFC 9110 §6.5.1): framing, routing, authentication, and
    /// fields that say how to read the content.
    pub(crate) fn is_forbidden_in_trailers(self) -> bool {
        self != Name::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_in_any_case() {
        for (name, number) in [
            (&b"Host"[..], Name::Host),
            (b"CONTENT-LENGTH", Name::ContentLength),
            (b"Transfer-encoding", Name::TransferEncoding),
            (b"tE", Name::Te),
            (b"Set-Cookie", Name::SetCookie),
            (b"Proxy-Authorization", Name::ProxyAuthorization),
            (b"transfer_encoding", Name::Other),
            (b"hosts", Name::Other),
            (b"", Name::Other),
        ] {
            assert_eq!(Name::of(name), number, "{}", String::from_utf8_lossy(name));
        }
    }
}
