//! Framed heads: exactly one length of the content (RFC 9112 §6, RFC 9113 §8.1.1).

use crate::fields::Fields;
use crate::known::Known;
use crate::method::Method;
use crate::raw::{Raw, RawRequest, RawResponse, Version};
use crate::refusal::{Cause, Refusal};
use crate::scan;
use crate::status::Status;

/// The length of a message's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// There is no content.
    None,
    /// So many bytes follow.
    Known(u64),
    /// The content ends by itself: the last chunk, or END_STREAM.
    Delimited,
    /// The content ends with the connection. Responses of HTTP/1 alone.
    UntilClose,
}

/// A request head whose content has exactly one length.
#[derive(Debug, Clone)]
pub struct FramedRequest {
    pub(crate) raw: Raw,
    pub(crate) method: Method,
    pub(crate) length: Length,
}

impl RawRequest {
    /// Judges the method and the length of the content.
    pub fn frame(self) -> Result<FramedRequest, Refusal> {
        let raw = self.0;
        let method = raw
            .text(raw.pseudo.method)
            .ok_or(Cause::PseudoMissing(":method"))?;
        let method = Method::parse(raw.fields.bytes(), method)?;
        let length = match announced(&raw)? {
            Announced::Nothing if raw.version != Version::Http2 => Length::None,
            Announced::Nothing if raw.ends => Length::None,
            Announced::Nothing | Announced::Chunked => Length::Delimited,
            Announced::Bytes(bytes) => {
                if raw.ends && bytes != 0 {
                    return Err(Cause::LengthOfNothing.into());
                }
                Length::Known(bytes)
            }
        };
        if method == Method::CONNECT && (has_length(&raw.fields)) {
            return Err(Cause::ConnectContent.into());
        }
        Ok(FramedRequest {
            raw,
            method,
            length,
        })
    }
}

impl FramedRequest {
    /// The method.
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// The length of the content.
    pub fn length(&self) -> Length {
        self.length
    }

    /// True if the client allows another request behind this one (RFC 9112 §9.3). HTTP/2 always does.
    pub fn persists(&self) -> bool {
        let options = self.raw.fields.all(Known::Connection);
        let mut options = options.flat_map(scan::elements);
        match self.raw.version {
            Version::Http10 => options.any(|option| option.eq_ignore_ascii_case(b"keep-alive")),
            Version::Http11 => !options.any(|option| option.eq_ignore_ascii_case(b"close")),
            Version::Http2 => true,
        }
    }
}

/// The request that a response answers, as far as it decides about framing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// A request whose answer may have content.
    Ordinary,
    /// HEAD.
    Head,
    /// CONNECT without a protocol.
    Connect,
    /// A request for an upgrade: Upgrade, or extended CONNECT (RFC 8441).
    Upgrade,
}

/// A response head whose content has exactly one length.
#[derive(Debug, Clone)]
pub struct FramedResponse {
    pub(crate) raw: Raw,
    pub(crate) status: Status,
    pub(crate) length: Length,
    /// What follows the head is a tunnel and no content.
    pub(crate) opens_tunnel: bool,
}

impl RawResponse {
    /// Judges the status and the length of the content, which depend on the request (RFC 9112 §6.3).
    pub fn frame(self, asked: Asked) -> Result<FramedResponse, Refusal> {
        self.framed(asked).map_err(Refusal::response)
    }

    fn framed(self, asked: Asked) -> Result<FramedResponse, Cause> {
        let mut raw = self.raw;
        let is_http2 = raw.version == Version::Http2;
        let status = match self.status {
            Some(status) => status,
            None => {
                let digits = raw.text(raw.pseudo.status);
                Status::parse(digits.ok_or(Cause::PseudoMissing(":status"))?)
                    .ok_or(Cause::Status)?
            }
        };
        let pseudo = &raw.pseudo;
        if is_http2 && (pseudo.method.is_some() || pseudo.path.is_some() || pseudo.scheme.is_some())
        {
            return Err(Cause::PseudoMisplaced(":method, :path or :scheme"));
        }
        if is_http2 && (pseudo.authority.is_some() || pseudo.protocol.is_some()) {
            return Err(Cause::PseudoMisplaced(":authority or :protocol"));
        }
        let is_switch = status == Status::SWITCHING_PROTOCOLS;
        if is_switch && (is_http2 || asked != Asked::Upgrade) {
            return Err(Cause::UnaskedUpgrade);
        }
        let opens_tunnel = match asked {
            Asked::Connect => status.is_success(),
            Asked::Upgrade if is_http2 => status.is_success(),
            Asked::Upgrade => is_switch,
            _ => false,
        };
        if opens_tunnel && has_length(&raw.fields) {
            // RFC 9110 §8.6 forbids a length, but servers of WebSockets say that there is none.
            if asked != Asked::Connect && !matches!(announced(&raw)?, Announced::Bytes(0)) {
                return Err(Cause::TunnelContent);
            }
            // A client ignores both fields here (RFC 9110 §9.3.6). They go no further, for another reader might not.
            raw.fields.remove(Known::ContentLength);
            raw.fields.remove(Known::TransferEncoding);
        }
        let has_none = opens_tunnel || asked == Asked::Head || status.has_no_content();
        // They may say how the content of a 200 to GET would be framed (RFC 9110 §8.6, RFC 9112 §6.1).
        let may_announce = !has_none || asked == Asked::Head || status.code() == 304;
        let length = match announced(&raw)? {
            Announced::Chunked if !may_announce => return Err(Cause::CodingOfNothing),
            Announced::Bytes(bytes) if bytes != 0 && !may_announce => {
                return Err(Cause::LengthOfNothing);
            }
            _ if has_none => Length::None,
            Announced::Bytes(bytes) if raw.ends && bytes != 0 => {
                return Err(Cause::LengthOfNothing);
            }
            // Trailers may follow: a call of gRPC that fails before its first message often ends so.
            Announced::Bytes(0) if is_http2 && !raw.ends => Length::Delimited,
            Announced::Bytes(bytes) => Length::Known(bytes),
            Announced::Chunked => Length::Delimited,
            Announced::Nothing if raw.ends => Length::None,
            Announced::Nothing if is_http2 => Length::Delimited,
            Announced::Nothing => Length::UntilClose,
        };
        Ok(FramedResponse {
            raw,
            status,
            length,
            opens_tunnel,
        })
    }
}

impl FramedResponse {
    /// The status.
    pub fn status(&self) -> Status {
        self.status
    }

    /// The length of the content.
    pub fn length(&self) -> Length {
        self.length
    }

    /// True if a tunnel follows the head: the answer accepts CONNECT or an upgrade.
    pub fn opens_tunnel(&self) -> bool {
        self.opens_tunnel
    }

    /// The seconds that a server of HTTP/1 keeps the connection for once it is idle: `Keep-Alive: timeout=5` (RFC 2068 §19.7.1.1).
    pub fn keep_alive(&self) -> Option<u16> {
        let value = self.raw.fields.get(Known::KeepAlive)?;
        let timeout = scan::elements(value).find_map(|element| {
            let (name, value) = element.split_at_checked(b"timeout=".len())?;
            name.eq_ignore_ascii_case(b"timeout=").then_some(value)
        })?;
        u16::try_from(scan::decimal(timeout)?).ok()
    }
}

/// What the fields say about the content.
enum Announced {
    Nothing,
    Bytes(u64),
    Chunked,
}

#[inline]
fn has_length(fields: &Fields) -> bool {
    fields.has(Known::ContentLength) || fields.has(Known::TransferEncoding)
}

/// Reads Content-Length and Transfer-Encoding. One of them, once, in one spelling: parsers differ over all else.
#[inline]
fn announced(raw: &Raw) -> Result<Announced, Cause> {
    let fields = &raw.fields;
    let length = fields.get(Known::ContentLength);
    if let Some(coding) = fields.get(Known::TransferEncoding) {
        return match raw.version {
            _ if length.is_some() => Err(Cause::LengthAndCoding),
            Version::Http10 => Err(Cause::CodingInHttp10),
            _ if fields.is_repeated(Known::TransferEncoding) => Err(Cause::Coding),
            _ if coding.eq_ignore_ascii_case(b"chunked") => Ok(Announced::Chunked),
            _ => Err(Cause::Coding),
        };
    }
    let Some(length) = length else {
        return Ok(Announced::Nothing);
    };
    if fields.is_repeated(Known::ContentLength) {
        return Err(Cause::Duplicate(Known::ContentLength));
    }
    scan::decimal(length)
        .map(Announced::Bytes)
        .ok_or(Cause::Length)
}
