//! Forms of a request target (RFC 9112 §3.2), and the grammar of hosts.

use crate::scan;

/// The form of a request target (RFC 9112 §3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TargetForm {
    /// A path with an optional query.
    #[default]
    Origin,
    /// A whole URI, as proxies receive it.
    Absolute,
    /// A host and a port, for CONNECT alone.
    Authority,
    /// `*`, for OPTIONS alone.
    Asterisk,
}

impl TargetForm {
    /// The form of a target whose bytes are valid, or none if the method does not allow it.
    #[inline]
    pub(crate) fn of(method: &[u8], target: &[u8]) -> Option<TargetForm> {
        if method == b"CONNECT" {
            return is_authority(target).then_some(TargetForm::Authority);
        }
        match target {
            [b'/', ..] => Some(TargetForm::Origin),
            b"*" => (method == b"OPTIONS").then_some(TargetForm::Asterisk),
            _ => is_absolute(target).then_some(TargetForm::Absolute),
        }
    }
}

/// True for `scheme://authority`, with whatever follows. A URI with user information is refused (RFC 9110 §4.2.4).
fn is_absolute(target: &[u8]) -> bool {
    let Some(colon) = target.iter().position(|&byte| byte == b':') else {
        return false;
    };
    let (scheme, rest) = target.split_at(colon);
    let is_scheme = scheme.first().is_some_and(u8::is_ascii_alphabetic)
        && scheme
            .iter()
            .all(|&byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    let Some(rest) = rest.strip_prefix(b"://") else {
        return false;
    };
    let end = rest
        .iter()
        .position(|byte| b"/?".contains(byte))
        .unwrap_or(rest.len());
    is_scheme && end > 0 && is_host(&rest[..end])
}

/// True for a host and a port (RFC 9112 §3.2.3).
fn is_authority(target: &[u8]) -> bool {
    split_port(target).is_some_and(|(host, port)| {
        !host.is_empty() && is_literal_or_name(host) && port.is_some_and(is_port)
    })
}

/// True for the value of a Host field: a host with an optional port, or nothing (RFC 9110 §7.2).
pub(crate) fn is_host(value: &[u8]) -> bool {
    split_port(value).is_some_and(|(host, port)| {
        is_literal_or_name(host) && port.is_none_or(|port| port.is_empty() || is_port(port))
    })
}

/// Splits the port off. None if something other than a port stands behind the host, or an IP literal is not closed.
fn split_port(authority: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let host = match authority.first() {
        Some(b'[') => authority.iter().position(|&byte| byte == b']')? + 1,
        _ => scan::host(authority),
    };
    match &authority[host..] {
        [] => Some((authority, None)),
        [b':', port @ ..] => Some((&authority[..host], Some(port))),
        _ => None,
    }
}

fn is_port(port: &[u8]) -> bool {
    scan::decimal(port).is_some_and(|port| port <= u64::from(u16::MAX))
}

/// True unless it is a malformed IP literal (RFC 3986 §3.2.2). The bytes of a name were judged when it was split off.
fn is_literal_or_name(host: &[u8]) -> bool {
    match host {
        [b'[', literal @ .., b']'] => {
            !literal.is_empty()
                && literal
                    .iter()
                    .all(|byte| byte.is_ascii_alphanumeric() || b":.%-_~".contains(byte))
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_the_forms_of_their_methods() {
        use TargetForm::*;
        for (method, target, form) in [
            ("GET", "/", Some(Origin)),
            ("GET", "//a/../b?c=d", Some(Origin)),
            ("GET", "http://a", Some(Absolute)),
            ("GET", "HTTP://a:80/b?c", Some(Absolute)),
            ("GET", "http://[::1]:80?c", Some(Absolute)),
            ("OPTIONS", "*", Some(Asterisk)),
            ("CONNECT", "a:80", Some(Authority)),
            ("CONNECT", "[::1]:80", Some(Authority)),
            ("GET", "*", None),
            ("GET", "a:80", None),
            ("GET", "a", None),
            ("GET", "?a", None),
            ("GET", "http:/a", None),
            ("GET", "http://", None),
            ("GET", "http:///a", None),
            ("GET", "http://u@a/", None),
            ("GET", "1http://a/", None),
            ("GET", "http://a:b/", None),
            ("OPTIONS", "**", None),
            ("CONNECT", "/", None),
            ("CONNECT", "a", None),
            ("CONNECT", "a:", None),
            ("CONNECT", ":80", None),
            ("CONNECT", "a:65536", None),
            ("CONNECT", "a:80/b", None),
            ("CONNECT", "u@a:80", None),
            ("CONNECT", "http://a:80", None),
            ("CONNECT", "*", None),
            ("CONNECT", "[::1:80", None),
            ("CONNECT", "[]:80", None),
            ("CONNECT", "::1:80", None),
        ] {
            assert_eq!(
                TargetForm::of(method.as_bytes(), target.as_bytes()),
                form,
                "{method} {target}"
            );
        }
    }

    #[test]
    fn host_fields_are_a_host_with_an_optional_port() {
        for good in [
            "",
            "a",
            "a.b-c_d:80",
            "10.0.0.7",
            "[fe80::1%25eth0]:1",
            "a:",
            "%41",
        ] {
            assert!(is_host(good.as_bytes()), "{good}");
        }
        for bad in [
            "a b", "a,b", "a/b", "a?b", "a#b", "u@a", "a:x", "a:1:2", "[::1", "[::1]x", "a\\b",
            "\u{e9}", "[a]b:1", "a:70000",
        ] {
            assert!(!is_host(bad.as_bytes()), "{bad}");
        }
    }
}
