//! WebSocket handshake between HTTP/1 and HTTP/2: keys and their acceptance (RFC 6455 §4, RFC 8441 §5).

mod sha1;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use crate::value::FieldValue;

/// The text that a server adds to the key (RFC 6455 §1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The nonce of a WebSocket client: 16 bytes in Base64 (RFC 6455 §4.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebSocketKey(Bytes);

impl WebSocketKey {
    /// A key of random bytes, for an HTTP/1 upstream of an HTTP/2 client, which sends none.
    pub fn of(random: [u8; 16]) -> WebSocketKey {
        WebSocketKey(STANDARD.encode(random).into())
    }

    /// A key of `sec-websocket-key`. None unless it encodes 16 bytes.
    pub(crate) fn parse(value: &[u8]) -> Option<WebSocketKey> {
        if value.len() != 24 || STANDARD.decode(value).ok()?.len() != 16 {
            return None;
        }
        Some(WebSocketKey(Bytes::copy_from_slice(value)))
    }

    /// The value of `sec-websocket-key`.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The value of `sec-websocket-accept` that belongs to the key.
    pub fn accept(&self) -> FieldValue {
        let digest = sha1::digest(&[&self.0, GUID].concat());
        // Base64 has no control characters.
        FieldValue::of_text(STANDARD.encode(digest).into())
    }
}
