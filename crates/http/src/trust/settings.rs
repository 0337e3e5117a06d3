//! Header trust settings of a listener.

/// Treatment of `x-forwarded-for` at the edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ForwardedFor {
    /// The peer's address is added behind all that arrived, as in Istio. Applications must count from the right.
    #[default]
    Append,
    /// Elements that no trusted proxy wrote are removed first.
    Vouched,
}

/// Treatment of names with an underscore. Some applications read `x_forwarded_for` as `x-forwarded-for`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Underscores {
    /// The field is kept.
    #[default]
    Keep,
    /// The field is removed.
    Remove,
    /// The request is refused, as Istio's edge profile does.
    Refuse,
}

/// Treatment of `x-forwarded-client-cert` (Istio's `forwardClientCertDetails`). Without a client certificate the field is
/// removed, except by `AlwaysForwardOnly`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ForwardClientCert {
    /// The field is removed.
    #[default]
    Sanitize,
    /// The field is kept.
    ForwardOnly,
    /// The client's certificate is added behind what arrived.
    AppendForward,
    /// The client's certificate replaces what arrived.
    SanitizeSet,
    /// The field is kept in any case. Whoever can connect can write it.
    AlwaysForwardOnly,
}

/// Parts of the certificate that are written (Istio's `setCurrentClientCertDetails`). The hash and the URI of this proxy are written
/// always.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CertDetails {
    /// `Subject`
    pub subject: bool,
    /// `Cert`
    pub cert: bool,
    /// `Chain`
    pub chain: bool,
    /// `URI`
    pub uri: bool,
    /// `DNS`
    pub dns: bool,
}

impl CertDetails {
    /// Istio's choice: subject, URI and DNS names.
    pub const ISTIO: CertDetails = CertDetails {
        subject: true,
        cert: false,
        chain: false,
        uri: true,
        dns: true,
    };
}

/// Header trust of a listener: Istio's `gatewayTopology` and what belongs to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Trust {
    /// How many proxies in front are trusted (`numTrustedProxies`).
    pub trusted_proxies: u8,
    /// Treatment of `x-forwarded-for` at the edge.
    pub forwarded_for: ForwardedFor,
    /// Treatment of `x-forwarded-client-cert` (`forwardClientCertDetails`).
    pub client_cert: ForwardClientCert,
    /// Parts of the client certificate that `x-forwarded-client-cert` gets (`setCurrentClientCertDetails`).
    pub cert_details: CertDetails,
    /// Keeps `x-request-id` of clients at the edge.
    pub keeps_request_id: bool,
    /// Removes the trace context of clients at the edge.
    pub drops_trace_context: bool,
    /// Treatment of names with an underscore.
    pub underscores: Underscores,
}

impl Trust {
    /// Istio's settings for gateways.
    pub fn gateway(trusted_proxies: u8) -> Trust {
        Trust {
            trusted_proxies,
            client_cert: ForwardClientCert::SanitizeSet,
            cert_details: CertDetails::ISTIO,
            underscores: Underscores::Refuse,
            ..Trust::default()
        }
    }

    /// Istio's settings for sidecars.
    pub fn sidecar() -> Trust {
        Trust {
            client_cert: ForwardClientCert::AppendForward,
            cert_details: CertDetails::ISTIO,
            ..Trust::default()
        }
    }

    /// Istio's settings for waypoints.
    pub fn waypoint() -> Trust {
        Trust::default()
    }
}
