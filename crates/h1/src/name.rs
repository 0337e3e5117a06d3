//! Numbers of the field names that this crate acts on. All other names are [`Name::Other`].

use lateen_http::Known;

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

    /// The number of a name of the message model.
    #[inline]
    pub(crate) fn of_known(known: Known) -> Name {
        match known {
            Known::Authorization => Name::Authorization,
            Known::Connection => Name::Connection,
            Known::ContentEncoding => Name::ContentEncoding,
            Known::ContentLength => Name::ContentLength,
            Known::ContentRange => Name::ContentRange,
            Known::ContentType => Name::ContentType,
            Known::Cookie => Name::Cookie,
            Known::Expect => Name::Expect,
            Known::Host => Name::Host,
            Known::KeepAlive => Name::KeepAlive,
            Known::ProxyAuthorization => Name::ProxyAuthorization,
            Known::ProxyConnection => Name::ProxyConnection,
            Known::SetCookie => Name::SetCookie,
            Known::Te => Name::Te,
            Known::Trailer => Name::Trailer,
            Known::TransferEncoding => Name::TransferEncoding,
            Known::Upgrade => Name::Upgrade,
            _ => Name::Other,
        }
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
    fn the_message_model_knows_all_of_them() {
        for known in Known::ALL {
            let name = known.as_str().as_bytes();
            assert_eq!(Name::of_known(*known), Name::of(name), "{known:?}");
        }
        let numbers = Known::ALL.iter().map(|known| Name::of_known(*known));
        let mut numbers: Vec<u8> = numbers.map(|name| name as u8).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), Name::Upgrade as usize + 1);
    }

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
