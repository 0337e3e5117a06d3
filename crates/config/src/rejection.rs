//! Reasons for which a resource is rejected.

use std::net::IpAddr;

use lateen_types::{IdentityError, NameError, Strng};

/// A resource that was not taken in; its previous version, if any, stays live.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{name}: {reason}")]
pub struct Refused {
    /// The xDS name.
    pub name: Strng,
    /// What is wrong with it.
    pub reason: Rejection,
}

/// What is wrong with a resource; the text travels back to the control plane in the NACK.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Rejection {
    /// The bytes are no such message.
    #[error("cannot be decoded: {0}")]
    Decode(#[from] prost::DecodeError),
    /// An Address with neither a workload nor a service.
    #[error(
        "carries neither a workload nor a service; the control plane may be newer than this proxy"
    )]
    Empty,
    /// The xDS name is not the name inside.
    #[error("carries {inner:?}; a resource's name must be that of what it carries")]
    OtherName {
        /// What the content calls itself.
        inner: String,
    },
    /// An extension of ours whose content is something else.
    #[error("extension {name} cannot be read; the control plane may be newer than this proxy")]
    Extension {
        /// Its name.
        name: &'static str,
    },
    /// A policy with fields or extensions that this proxy does not know: one that it leaves out may be what narrows it.
    #[error(
        "has content that this proxy does not know, so that it may mean less than it seems to; the control plane may be newer than this proxy"
    )]
    UnknownContent,
    /// Content that the kind's own rules refuse.
    #[error("{0}")]
    Invalid(String),
    /// A field that must be there is not.
    #[error("{field} is missing")]
    Missing {
        /// The field.
        field: &'static str,
    },
    /// A namespace with a slash in it, which would make the service's name that of another.
    #[error("namespace {namespace:?} has a slash in it; a namespace is a DNS label")]
    NamespaceSlash {
        /// The namespace.
        namespace: String,
    },
    /// An address of another length than an IP address has.
    #[error("{field} holds an address of {bytes} bytes; IPv4 has 4 and IPv6 has 16")]
    AddressLength {
        /// The field.
        field: &'static str,
        /// Its length.
        bytes: usize,
    },
    /// A prefix longer than its address.
    #[error("{field} holds {address}/{length}; the prefix is longer than the address")]
    PrefixLength {
        /// The field.
        field: &'static str,
        /// The address.
        address: IpAddr,
        /// The prefix length in bits.
        length: u32,
    },
    /// A service that lists an address twice.
    #[error("lists the address {address} twice")]
    DuplicateAddress {
        /// Network and address.
        address: String,
    },
    /// An enum value of another version of the contract.
    #[error(
        "{field} has the unknown value {value}; the control plane may be newer than this proxy"
    )]
    UnknownValue {
        /// The field.
        field: &'static str,
        /// Its value.
        value: i32,
    },
    /// A tunnel protocol that a node proxy cannot speak.
    #[error("tunnel_protocol LEGACY_ISTIO_MTLS is spoken between sidecars only; use HBONE or NONE")]
    LegacyMtls,
    /// A port out of range.
    #[error("{field} is {value}; a port is between {low} and 65535")]
    Port {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u32,
        /// The lowest that this field takes.
        low: u16,
    },
    /// Parts that make no identity.
    #[error("{0}")]
    Identity(#[from] IdentityError),
    /// A key that is not `namespace/hostname`.
    #[error("services: {0}")]
    ServiceKey(#[from] NameError),
}
