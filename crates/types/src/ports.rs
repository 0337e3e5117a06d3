//! Ports to which a captured pod's traffic is redirected, inside the pod's network namespace. They are Istio's, so each side's
//! rules work with the other side's proxy.

/// Connections that the pod opens.
pub const OUTBOUND: u16 = 15001;

/// Connections to the pod that did not come through a tunnel.
pub const INBOUND_PLAINTEXT: u16 = 15006;

/// Tunnels to the pod: HTTP/2 CONNECT over mutual TLS.
pub const HBONE: u16 = 15008;

/// Queries that the pod sends to its resolver, over UDP and TCP.
pub const DNS: u16 = 15053;

/// Whether a connection to this port of a captured pod would come back to its own proxy: the loop that no route and no
/// CONNECT request may enter.
pub const fn is_proxys_own(port: u16) -> bool {
    matches!(port, OUTBOUND | INBOUND_PLAINTEXT | HBONE)
}
