//! Authorities in one form: a lower-case host, and a port apart (RFC 3986 §3.2, RFC 9110 §7.2).

mod host;

use std::fmt;

use bytes::Bytes;

use crate::refusal::Cause;

/// The host of a request and its port, in the one form that routes, policies, logs and upstreams see.
///
/// The form: lower case, no user information, no trailing dot, an IPv6 address as RFC 5952 writes it, a port without leading
/// zeros. A port is kept if the client sent one, also where it is the scheme's default.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Authority {
    /// `host` or `host:port`.
    text: Bytes,
    /// The length of the host within `text`, with the brackets of an IPv6 address.
    host: u16,
    /// 1 to 65535, or 0 if there is none.
    port: u16,
}

impl Authority {
    /// Reads an authority that is a slice of `buffer`, which it keeps alive if it has the one form already.
    #[inline]
    pub(crate) fn parse(buffer: &Bytes, authority: &[u8]) -> Result<Authority, Cause> {
        let length = host::plain(authority);
        let (host, port) = (
            authority.get(..length).unwrap_or_default(),
            &authority[length..],
        );
        if !host.is_empty()
            && !host::is_suspicious(host)
            && let Some(number) = plain_port(port)
        {
            return Ok(Authority {
                text: buffer.slice_ref(authority),
                host: length as u16,
                port: number,
            });
        }
        Authority::rewritten(authority)
    }

    /// Reads an authority and writes it in the one form.
    fn rewritten(authority: &[u8]) -> Result<Authority, Cause> {
        if authority.contains(&b'@') {
            return Err(Cause::UserInformation);
        }
        let end = match authority.first() {
            Some(b'[') => {
                let end = authority.iter().position(|&byte| byte == b']');
                end.ok_or(Cause::HostLiteral)? + 1
            }
            _ => {
                let end = authority.iter().position(|&byte| byte == b':');
                end.unwrap_or(authority.len())
            }
        };
        let (host, rest) = authority.split_at(end);
        let mut text = host::canonical(host)?;
        let port = match rest {
            [] | [b':'] => 0,
            [b':', digits @ ..] => port(digits).ok_or(Cause::Port)?,
            _ => return Err(Cause::HostLiteral),
        };
        let length = text.len();
        if port != 0 {
            text.push(':');
            text.push_str(&port.to_string());
        }
        Ok(Authority {
            text: text.into(),
            host: length as u16,
            port,
        })
    }

    /// An authority of a rule.
    pub fn new(authority: &str) -> Result<Authority, Cause> {
        let bytes = Bytes::copy_from_slice(authority.as_bytes());
        Authority::parse(&bytes, &bytes)
    }

    /// The host, in lower case; an IPv6 address has its brackets.
    #[inline]
    pub fn host(&self) -> &[u8] {
        &self.text[..self.host as usize]
    }

    /// The port, if the client sent one.
    #[inline]
    pub fn port(&self) -> Option<u16> {
        (self.port != 0).then_some(self.port)
    }

    /// Copies the text out of the buffer that it keeps alive.
    pub(crate) fn detach(&mut self) {
        self.text = Bytes::copy_from_slice(&self.text);
    }

    /// `host` or `host:port`, as policies match it and upstreams receive it.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.text
    }
}

/// The port of `:digits` without leading zeros, or 0 of nothing. None of all else.
#[inline]
fn plain_port(rest: &[u8]) -> Option<u16> {
    match rest {
        [] => Some(0),
        [b':', digits @ ..] if !matches!(digits, [b'0', ..]) => port(digits),
        _ => None,
    }
}

/// A port from 1 to 65535, in at most five digits.
fn port(digits: &[u8]) -> Option<u16> {
    if digits.len() > 5 {
        return None;
    }
    let number = crate::scan::decimal(digits)?;
    u16::try_from(number).ok().filter(|port| *port != 0)
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.text))
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.text))
    }
}

/// Hosts that a listener serves: one host, or all hosts below a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPattern(Pattern);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Pattern {
    Any,
    Exact(Box<[u8]>),
    /// With its leading dot.
    Suffix(Box<[u8]>),
}

impl HostPattern {
    /// A pattern: `*`, a host, or `*.` and a domain. None if the host is not valid.
    pub fn new(pattern: &str) -> Option<HostPattern> {
        if pattern == "*" {
            return Some(HostPattern(Pattern::Any));
        }
        let domain = pattern.strip_prefix("*.");
        let host = host::canonical(domain.unwrap_or(pattern).as_bytes()).ok()?;
        Some(HostPattern(match domain {
            Some(_) => Pattern::Suffix(format!(".{host}").into_bytes().into()),
            None => Pattern::Exact(host.into_bytes().into()),
        }))
    }

    /// True if the pattern covers the host. A wildcard stands for one or more labels.
    pub fn covers(&self, authority: &Authority) -> bool {
        let host = authority.host();
        match &self.0 {
            Pattern::Any => true,
            Pattern::Exact(text) => host == &**text,
            Pattern::Suffix(text) => host.len() > text.len() && host.ends_with(text),
        }
    }
}
