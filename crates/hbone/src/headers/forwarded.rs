//! `forwarded` (RFC 7239): the address of the client, and the service name that it connected to.

use std::fmt;
use std::net::SocketAddr;

/// The two parameters that tunnels carry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Forwarded {
    /// `for`: the address of the application's connection.
    pub client: Option<SocketAddr>,
    /// `host`: the service's host name, when the application addressed a service.
    pub host: Option<String>,
}

impl Forwarded {
    /// Reads a header value, the first element of it. What is not understood is left out; there are no errors.
    pub fn parse(header: &str) -> Self {
        let mut forwarded = Forwarded::default();
        for pair in Pairs(first_element(header)) {
            let Some((name, value)) = pair.split_once('=') else {
                continue;
            };
            let value = unquote(value.trim());
            match name.trim() {
                name if name.eq_ignore_ascii_case("for") => forwarded.client = value.parse().ok(),
                name if name.eq_ignore_ascii_case("host") => {
                    forwarded.host = is_host(value).then(|| value.to_owned());
                }
                _ => {}
            }
        }
        forwarded
    }
}

impl fmt::Display for Forwarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        if let Some(client) = self.client {
            // Quoted: a port's colon is no token character (RFC 7239 §4).
            write!(f, "for=\"{client}\"")?;
            separator = ";";
        }
        if let Some(host) = self.host.as_deref().filter(|host| is_host(host)) {
            write!(f, "{separator}host={host}")?;
        }
        Ok(())
    }
}

/// Host names only: other characters would need quoting, and no service has them.
fn is_host(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 253
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'*'))
}

fn unquote(value: &str) -> &str {
    value
        .strip_prefix('"')
        .and_then(|value| value.strip_suffix('"'))
        .unwrap_or(value)
}

fn first_element(header: &str) -> &str {
    split_unquoted(header, b',').0
}

/// The text before the first `separator` outside of quotes, and the text after it.
fn split_unquoted(text: &str, separator: u8) -> (&str, Option<&str>) {
    let mut quoted = false;
    for (at, b) in text.bytes().enumerate() {
        match b {
            b'"' => quoted = !quoted,
            b if b == separator && !quoted => return (&text[..at], Some(&text[at + 1..])),
            _ => {}
        }
    }
    (text, None)
}

struct Pairs<'a>(&'a str);

impl<'a> Iterator for Pairs<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        if self.0.is_empty() {
            return None;
        }
        let (pair, rest) = split_unquoted(self.0, b';');
        self.0 = rest.unwrap_or_default();
        Some(pair)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::option;
    use proptest::prelude::*;

    #[test]
    fn spells_what_the_mesh_expects() {
        let forwarded = Forwarded {
            client: Some("10.0.0.1:4711".parse().unwrap()),
            host: Some("web.default.svc.cluster.local".into()),
        };
        assert_eq!(
            forwarded.to_string(),
            "for=\"10.0.0.1:4711\";host=web.default.svc.cluster.local"
        );
    }

    #[test]
    fn reads_any_case_and_the_first_element_only() {
        let read =
            Forwarded::parse("For=\"[fd00::1]:80\"; HOST=a.b;proto=http, for=1.2.3.4:5;host=evil");
        assert_eq!(read.client, Some("[fd00::1]:80".parse().unwrap()));
        assert_eq!(read.host.as_deref(), Some("a.b"));
        // Separators within quotes separate nothing.
        let read = Forwarded::parse("by=\"a;host=x,host=y\";host=z");
        assert_eq!(read.host.as_deref(), Some("z"));
    }

    proptest! {
        #[test]
        fn round_trips(v4: Option<std::net::SocketAddrV4>, host in option::of("[a-z0-9.-]{1,40}")) {
            let forwarded = Forwarded { client: v4.map(SocketAddr::V4), host };
            prop_assert_eq!(Forwarded::parse(&forwarded.to_string()), forwarded);
        }

        #[test]
        fn never_panics(text in "\\PC{0,80}|([a-z\":;=,]{0,12}){0,8}") {
            let read = Forwarded::parse(&text);
            prop_assert!(http::HeaderValue::from_str(&read.to_string()).is_ok());
        }
    }
}
