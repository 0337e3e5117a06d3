//! Request methods (RFC 9110 §9).

use std::fmt;

use bytes::Bytes;

use crate::refusal::Cause;
use crate::scan;

/// A request method. Methods are case-sensitive.
///
/// A case variant of a registered method is no method: applications fold the case, policies do not (GHSA-w44g-8m76-8gc5).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Method(Repr);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Repr {
    /// Its position in `REGISTERED`.
    Registered(u8),
    /// A token of at most `MAX` bytes.
    Other(Bytes),
}

/// The longest method. The longest registered one has 17 bytes.
const MAX: usize = 64;

macro_rules! registered {
    ($($name:ident $text:literal),* $(,)?) => {
        /// The methods of the IANA registry that have a name here come first.
        static REGISTERED: &[&str] = &[$($text,)* "ACL", "BASELINE-CONTROL", "BIND", "CHECKIN", "CHECKOUT", "COPY",
            "LABEL", "LINK", "LOCK", "MERGE", "MKACTIVITY", "MKCALENDAR", "MKCOL", "MKREDIRECTREF", "MKWORKSPACE", "MOVE",
            "ORDERPATCH", "PROPFIND", "PROPPATCH", "QUERY", "REBIND", "REPORT", "SEARCH", "UNBIND", "UNCHECKOUT", "UNLINK",
            "UNLOCK", "UPDATE", "UPDATEREDIRECTREF", "VERSION-CONTROL", PREFACE];
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        #[repr(u8)]
        enum Position { $($name),* }
        impl Method { $(#[doc = concat!("`", $text, "`")] pub const $name: Method = Method(Repr::Registered(Position::$name as u8));)* }
    };
}

/// The method of the HTTP/2 connection preface, which no request has (RFC 9113 §11.6).
const PREFACE: &str = "PRI";

registered! {
    GET "GET", POST "POST", PUT "PUT", DELETE "DELETE", HEAD "HEAD", OPTIONS "OPTIONS", PATCH "PATCH", CONNECT "CONNECT",
    TRACE "TRACE",
}

impl Method {
    /// Reads a method. `bytes` is a slice of the head, which another method than a registered one keeps alive.
    pub(crate) fn parse(bytes: &Bytes, method: &[u8]) -> Result<Method, Cause> {
        match method {
            b"GET" => return Ok(Method::GET),
            b"POST" => return Ok(Method::POST),
            _ => {}
        }
        if !scan::is_token(method) {
            return Err(Cause::MethodNotToken);
        }
        let same = |text: &&str| text.as_bytes().eq_ignore_ascii_case(method);
        match REGISTERED.iter().position(same) {
            Some(at) if REGISTERED[at].as_bytes() != method => Err(Cause::MethodCase),
            Some(at) if REGISTERED[at] == PREFACE => Err(Cause::MethodPreface),
            Some(at) => Ok(Method(Repr::Registered(at as u8))),
            None if method.len() > MAX => Err(Cause::MethodTooLong),
            None => Ok(Method(Repr::Other(bytes.slice_ref(method)))),
        }
    }

    /// A method of a rule.
    pub fn new(method: &str) -> Option<Method> {
        let bytes = Bytes::copy_from_slice(method.as_bytes());
        Method::parse(&bytes, &bytes).ok()
    }

    /// Copies the token out of the buffer that it keeps alive.
    pub(crate) fn detach(&mut self) {
        if let Repr::Other(bytes) = &mut self.0 {
            *bytes = Bytes::copy_from_slice(bytes);
        }
    }

    /// The token.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Registered(at) => REGISTERED[*at as usize].as_bytes(),
            Repr::Other(bytes) => bytes,
        }
    }
}

impl fmt::Debug for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.as_bytes()))
    }
}
