//! Facts of a canonical head that this role goes by.

use std::time::Duration;

use lateen_http::{
    Authority, Canonical, Fields, Known, Length, Method, Upgrade, Version, WebSocketKey,
};

use super::grpc;

/// The end-to-end fields.
pub(super) fn fields(head: &Canonical) -> &Fields {
    match head {
        Canonical::Request(head) => head.fields(),
        Canonical::Connect(head) => head.fields(),
    }
}

/// The host and its port.
pub(super) fn authority(head: &Canonical) -> &Authority {
    match head {
        Canonical::Request(head) => head.authority(),
        Canonical::Connect(head) => head.authority(),
    }
}

/// The host without its port, in lower case.
pub(super) fn host(head: &Canonical) -> Option<&str> {
    std::str::from_utf8(authority(head).host()).ok()
}

/// The method.
pub(super) fn method(head: &Canonical) -> &[u8] {
    match head {
        Canonical::Request(head) => head.method().as_bytes(),
        Canonical::Connect(_) => Method::CONNECT.as_bytes(),
    }
}

/// The version in which the request arrived.
pub(super) fn version(head: &Canonical) -> Version {
    match head {
        Canonical::Request(head) => head.version(),
        Canonical::Connect(head) => head.version(),
    }
}

/// True if the request asks for a WebSocket.
pub(super) fn is_upgrade(head: &Canonical) -> bool {
    matches!(head, Canonical::Request(head) if head.upgrade().is_some())
}

/// True if the request asks for a WebSocket by extended CONNECT, which every status of success accepts (RFC 8441 §4).
pub(super) fn is_extended_connect(head: &Canonical) -> bool {
    is_upgrade(head) && version(head) == Version::Http2
}

/// True if the request asks for a tunnel of bytes: by an upgrade, or by CONNECT.
pub(super) fn asks_for_tunnel(head: &Canonical) -> bool {
    match head {
        Canonical::Request(head) => head.upgrade().is_some(),
        Canonical::Connect(_) => true,
    }
}

/// True of a call of gRPC. A request for a tunnel is none, whatever its content type says: the 200 with which a call is refused would
/// tell its client that the tunnel is open (RFC 9110 §9.3.6, RFC 8441 §5).
pub(super) fn is_grpc(head: &Canonical) -> bool {
    let content_type = fields(head).get(Known::ContentType);
    content_type.is_some_and(grpc::is_grpc) && !asks_for_tunnel(head)
}

/// The time that the client of a call of gRPC gives it, if it says so.
pub(super) fn grpc_deadline(head: &Canonical) -> Option<Duration> {
    let limit = fields(head).get(Known::GrpcTimeout)?;
    grpc::timeout(limit).filter(|_| is_grpc(head))
}

/// True of HEAD.
pub(super) fn is_head(head: &Canonical) -> bool {
    matches!(head, Canonical::Request(head) if *head.method() == Method::HEAD)
}

/// True if content may come before the answer. Bytes of a tunnel come behind it.
pub(super) fn has_content(head: &Canonical) -> bool {
    match head {
        Canonical::Request(head) => {
            head.upgrade().is_none() && !matches!(head.length(), Length::None | Length::Known(0))
        }
        Canonical::Connect(_) => false,
    }
}

/// True of methods that may be processed twice (RFC 9110 §9.2.2).
pub(super) fn is_idempotent(head: &Canonical) -> bool {
    const METHODS: [Method; 6] = [
        Method::GET,
        Method::HEAD,
        Method::OPTIONS,
        Method::PUT,
        Method::DELETE,
        Method::TRACE,
    ];
    matches!(head, Canonical::Request(head) if METHODS.contains(head.method()))
}

/// The key of a client that asks for a WebSocket over HTTP/1.
pub(super) fn websocket_key(head: &Canonical) -> Option<&WebSocketKey> {
    match head {
        Canonical::Request(head) => match head.upgrade() {
            Some(Upgrade::WebSocket { key }) => key.as_ref(),
            None => None,
        },
        Canonical::Connect(_) => None,
    }
}
