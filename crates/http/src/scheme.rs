//! URI schemes of requests (RFC 9110 §4.2).

/// A scheme that the data plane serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// `http`
    Http,
    /// `https`
    Https,
}

impl Scheme {
    /// Reads a scheme in any case of letters (RFC 3986 §3.1). None for all others.
    pub fn parse(scheme: &[u8]) -> Option<Scheme> {
        if scheme.eq_ignore_ascii_case(b"http") {
            Some(Scheme::Http)
        } else if scheme.eq_ignore_ascii_case(b"https") {
            Some(Scheme::Https)
        } else {
            None
        }
    }

    /// The scheme in lower case.
    pub const fn as_str(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }
}
