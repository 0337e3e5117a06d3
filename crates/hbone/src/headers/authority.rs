//! `:authority` of a CONNECT request: the destination of the tunnel.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// The longest host name, RFC 1035 §2.3.4, in bytes of its text form.
const MAX_NAME: usize = 253;

/// The target of a CONNECT request: `ip:port`, `[ipv6]:port` or `name:port`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Authority {
    /// An address.
    Ip(SocketAddr),
    /// A host name, in lower case, that the receiver resolves.
    Name {
        /// The name.
        name: String,
        /// The port, 1 to 65535.
        port: u16,
    },
}

impl Authority {
    /// The port, 1 to 65535.
    pub fn port(&self) -> u16 {
        match self {
            Authority::Ip(address) => address.port(),
            Authority::Name { port, .. } => *port,
        }
    }
}

impl From<SocketAddr> for Authority {
    fn from(address: SocketAddr) -> Self {
        Authority::Ip(address)
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Authority::Ip(address) => address.fmt(f),
            Authority::Name { name, port } => write!(f, "{name}:{port}"),
        }
    }
}

/// An authority that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("authority {text:?} is not ADDRESS:PORT, [IPV6]:PORT or NAME:PORT")]
pub struct AuthorityError {
    text: String,
}

impl FromStr for Authority {
    type Err = AuthorityError;

    fn from_str(text: &str) -> Result<Self, AuthorityError> {
        parse(text).ok_or_else(|| AuthorityError {
            // A peer chose the text: what ends up in a log is bounded.
            text: text.chars().take(MAX_NAME + 8).collect(),
        })
    }
}

fn parse(text: &str) -> Option<Authority> {
    let (host, port) = text.rsplit_once(':')?;
    // `u16::from_str` takes a leading plus sign; an authority does not (RFC 3986 §3.2.3).
    if port.is_empty() || !port.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let port = port.parse().ok().filter(|port| *port != 0)?;
    if let Some(v6) = host.strip_prefix('[') {
        let ip = v6.strip_suffix(']')?.parse().ok()?;
        return Some(Authority::Ip(SocketAddr::new(IpAddr::V6(ip), port)));
    }
    if let Ok(ip) = host.parse() {
        return Some(Authority::Ip(SocketAddr::new(IpAddr::V4(ip), port)));
    }
    let name = host.to_ascii_lowercase();
    is_host_name(&name).then_some(Authority::Name { name, port })
}

/// Labels of letters, digits, `-` and `_`, separated by single dots. A name that ends in a number is
/// refused: it is a misspelt IPv4 address (WHATWG URL, "ends in a number").
fn is_host_name(name: &str) -> bool {
    name.len() <= MAX_NAME
        && name.split('.').all(|label| {
            (1..=63).contains(&label.len())
                && label
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        })
        && !name
            .rsplit('.')
            .next()
            .is_some_and(|last| last.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn accepts_addresses_and_names() {
        let ip = |text: &str| Authority::Ip(text.parse().unwrap());
        assert_eq!("10.0.0.1:80".parse(), Ok(ip("10.0.0.1:80")));
        assert_eq!("[fd00::1]:80".parse(), Ok(ip("[fd00::1]:80")));
        assert_eq!(
            "Reviews.default.svc.cluster.local:9080".parse(),
            Ok(Authority::Name {
                name: "reviews.default.svc.cluster.local".into(),
                port: 9080
            })
        );
    }

    #[test]
    fn refuses_what_is_no_target() {
        for text in [
            "",
            ":",
            "a",
            "a:",
            ":80",
            "a:0",
            "a:65536",
            "a:+1",
            "a:-1",
            "a: 1",
            "10.0.0.256:80",
            "10.0.0:80",
            "fd00::1:80",
            "[fd00::1]",
            "[10.0.0.1]:80",
            "[fd00::1%eth0]:80",
            "a..b:80",
            ".a:80",
            "a.:80",
            "user@a:80",
            "a/b:80",
            "a b:80",
            "a:80:80",
            "é:80",
        ] {
            assert!(text.parse::<Authority>().is_err(), "{text:?} was accepted");
        }
    }

    proptest! {
        #[test]
        fn never_panics_and_round_trips(text in "(\\PC{0,20}|[a-z0-9.:\\[\\]-]{0,30}|[a-z]{1,5}(\\.[a-z]{1,5}){0,3}:[0-9]{1,5})") {
            if let Ok(authority) = text.parse::<Authority>() {
                prop_assert_eq!(authority.to_string().parse::<Authority>(), Ok(authority));
            }
        }

        #[test]
        fn addresses_round_trip(address: SocketAddr) {
            let text = address.to_string();
            match address {
                // A scope or flow has no place in an authority.
                SocketAddr::V6(v6) if v6.scope_id() != 0 => {}
                _ if address.port() == 0 => prop_assert!(text.parse::<Authority>().is_err()),
                _ => {
                    let parsed = text.parse::<Authority>().unwrap();
                    prop_assert_eq!(parsed.to_string(), text);
                }
            }
        }
    }
}
