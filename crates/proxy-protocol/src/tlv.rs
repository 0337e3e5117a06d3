//! The fields after the addresses: a type, a length, a value (section 2.2, "Type-Length-Value").

/// One field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tlv {
    /// What it is: from 0xE0 on an application's own, from 0xF0 on reserved.
    pub kind: u8,
    /// At most 65532 bytes, and less if others share the header.
    pub value: Vec<u8>,
}

impl Tlv {
    /// The identity that the source of the connection proved, as a URI (Istio: 0xD0).
    pub const SOURCE_IDENTITY: u8 = 0xD0;
    /// The hostname that the connection was addressed to, if it was one (Istio: 0xD1).
    pub const HOSTNAME: u8 = 0xD1;

    /// The source's identity.
    pub fn source_identity(uri: &str) -> Self {
        Tlv {
            kind: Self::SOURCE_IDENTITY,
            value: uri.as_bytes().to_vec(),
        }
    }

    /// The hostname that was asked for.
    pub fn hostname(hostname: &str) -> Self {
        Tlv {
            kind: Self::HOSTNAME,
            value: hostname.as_bytes().to_vec(),
        }
    }
}
