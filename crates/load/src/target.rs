//! Target of requests: a URL whose scheme names the protocol, parsed and resolved once.

use std::io;
use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs};

/// A reason why a URL cannot be used, with its fix.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The text is not a URL of the kind that is served here; the fault in it and its cure.
    #[error("url {0:?}: {1}")]
    Invalid(String, &'static str),
    /// The host of the URL did not resolve; the resolver's error.
    #[error("resolve {0}: {1}; check the name, and that a resolver knows it from here")]
    Resolve(String, #[source] io::Error),
}

/// The protocol of a target, from the scheme of its URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scheme {
    /// HTTP in the clear.
    Http,
    /// HTTP over TLS.
    Https,
    /// gRPC in the clear.
    Grpc,
    /// gRPC over TLS.
    Grpcs,
    /// Raw bytes that come back as they were sent.
    Tcp,
}

impl Scheme {
    /// The name of each, and the port of a URL that names none; raw bytes have no usual one.
    const ALL: [(&'static str, Scheme, Option<u16>); 5] = [
        ("http", Scheme::Http, Some(80)),
        ("https", Scheme::Https, Some(443)),
        ("grpc", Scheme::Grpc, Some(80)),
        ("grpcs", Scheme::Grpcs, Some(443)),
        ("tcp", Scheme::Tcp, None),
    ];

    /// Whether TLS is spoken below the protocol.
    pub fn is_encrypted(self) -> bool {
        matches!(self, Scheme::Https | Scheme::Grpcs)
    }

    /// Whether it is gRPC.
    pub fn is_grpc(self) -> bool {
        matches!(self, Scheme::Grpc | Scheme::Grpcs)
    }
}

/// A URL taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// The protocol.
    pub scheme: Scheme,
    /// The host, without the brackets of an IPv6 address.
    pub host: String,
    /// The port; the scheme's own unless given.
    pub port: u16,
    /// Host and port as they go into the Host field.
    pub authority: String,
    /// Path and query; at least `/`.
    pub path: String,
}

impl Url {
    /// Takes apart `scheme://host[:port][/path][?query]`.
    pub fn parse(url: &str) -> Result<Url, TargetError> {
        let invalid = |reason| TargetError::Invalid(url.to_owned(), reason);
        if !url.bytes().all(|byte| byte.is_ascii_graphic()) {
            let reason = "only printable ASCII may stand in a url; percent-encode the rest";
            return Err(invalid(reason));
        }
        let known = url.split_once("://").and_then(|(name, rest)| {
            let known = Scheme::ALL.iter().find(|(known, ..)| *known == name)?;
            Some((*known, rest))
        });
        let Some(((_, scheme, usual), rest)) = known else {
            let reason = "it must begin with http://, https://, grpc://, grpcs:// or tcp://";
            return Err(invalid(reason));
        };
        let rest = rest.split_once('#').map_or(rest, |(before, _)| before);
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if authority.contains('@') {
            let reason = "user information is not sent; use --header authorization:...";
            return Err(invalid(reason));
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(bracketed) => {
                let (host, after) = bracketed
                    .split_once(']')
                    .ok_or_else(|| invalid("the bracket of the IPv6 address is not closed"))?;
                if host.parse::<Ipv6Addr>().is_err() {
                    return Err(invalid("what stands in brackets is not an IPv6 address"));
                }
                let port = (!after.is_empty()).then(|| after.strip_prefix(':').unwrap_or(""));
                (host, port)
            }
            None => match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        let strange = ['[', ']', '"', '<', '>', '\\', '^', '`', '{', '|', '}'];
        if host.is_empty() || host.contains(strange) {
            let reason = "the host is missing or has characters that no host has";
            return Err(invalid(reason));
        }
        let port = match port {
            None => usual.ok_or_else(|| invalid("tcp:// needs a port; write tcp://host:port"))?,
            // Digits alone: a parser takes a sign, too.
            Some(digits) => match digits.parse() {
                Ok(port @ 1..) if !digits.starts_with('+') => port,
                _ => return Err(invalid("the port must be between 1 and 65535")),
            },
        };
        if scheme == Scheme::Tcp && !matches!(path, "" | "/") {
            return Err(invalid("tcp:// has no path; write tcp://host:port"));
        }
        let root = if path.starts_with('/') { "" } else { "/" };
        Ok(Url {
            scheme,
            host: host.to_owned(),
            port,
            authority: authority.to_owned(),
            path: format!("{root}{path}"),
        })
    }

    /// Resolves the host to its first address, IPv4 first, since that is what every mesh carries.
    pub fn resolve(&self) -> Result<SocketAddr, TargetError> {
        let failed = |source| TargetError::Resolve(self.host.clone(), source);
        let addresses = (self.host.as_str(), self.port).to_socket_addrs();
        let first = addresses.map_err(failed)?.min_by_key(SocketAddr::is_ipv6);
        first.ok_or_else(|| failed(io::Error::other("no address")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn urls_are_taken_apart() {
        for (url, host, port, authority, path) in [
            ("http://d:9080/d/0", "d", 9080, "d:9080", "/d/0"),
            ("http://a", "a", 80, "a", "/"),
            ("http://a/", "a", 80, "a", "/"),
            ("https://a?size=1", "a", 443, "a", "/?size=1"),
            ("http://a?u=http://b#c", "a", 80, "a", "/?u=http://b"),
            ("http://10.0.0.1:1", "10.0.0.1", 1, "10.0.0.1:1", "/"),
            ("http://[::1]:8080/x", "::1", 8080, "[::1]:8080", "/x"),
            ("http://[fd00::2]", "fd00::2", 80, "[fd00::2]", "/"),
            ("grpc://a/p.S/M", "a", 80, "a", "/p.S/M"),
            ("grpcs://a", "a", 443, "a", "/"),
            ("tcp://a:7", "a", 7, "a:7", "/"),
        ] {
            let parsed = Url::parse(url).unwrap();
            assert_eq!((&*parsed.host, parsed.port), (host, port), "{url}");
            assert_eq!(
                (&*parsed.authority, &*parsed.path),
                (authority, path),
                "{url}"
            );
            let scheme = url.split("://").next().unwrap();
            assert_eq!(format!("{:?}", parsed.scheme).to_lowercase(), scheme);
            assert_eq!(parsed.scheme.is_encrypted(), scheme.ends_with('s'), "{url}");
            assert_eq!(parsed.scheme.is_grpc(), scheme.starts_with("grpc"), "{url}");
        }
    }

    #[test]
    fn what_is_not_a_usable_url_is_refused_with_a_cure() {
        let table = [
            ("details:9080", "begin with http://"),
            ("ftp://a", "begin with http://"),
            ("tcp://a", "needs a port"),
            ("tcp://a:1/x", "has no path"),
            ("http://", "host is missing"),
            ("http://:80", "host is missing"),
            ("http://a:0", "between 1 and 65535"),
            ("http://a:65536", "between 1 and 65535"),
            ("http://a:+80", "between 1 and 65535"),
            ("http://a:", "between 1 and 65535"),
            ("http://u@a", "--header authorization"),
            ("http://[::1", "not closed"),
            ("http://[1.2.3.4]", "not an IPv6 address"),
            ("http://[::1]80", "between 1 and 65535"),
            ("http://a/ b", "percent-encode"),
            ("http://a\r\nx: y", "percent-encode"),
        ];
        for (url, expected) in table {
            let error = Url::parse(url).unwrap_err().to_string();
            assert!(error.contains(expected), "{url}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic_or_smuggles_a_line(text in "((http|https|grpc|tcp)://)?[\\PC\r\n]{0,40}") {
            if let Ok(url) = Url::parse(&text) {
                prop_assert!(!url.path.contains(['\r', '\n', ' ']) && !url.authority.contains(['\r', '\n', ' ']));
                prop_assert!(url.path.starts_with('/') && url.port > 0);
            }
        }
    }
}
