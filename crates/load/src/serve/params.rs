//! Parameters of a request to the echo service, from its query. Names, forms and the treatment of invalid values are those of
//! Fortio's echo server. So its URLs work here and have the same effect.
//!
//! `writes` and `nodelay` are Lateen's own.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;

use lateen_http::{FieldName, FieldValue};
use rand::Rng;

use super::chance::{Choice, choose, happens};
use crate::text;

/// The most pieces that a response is written in.
const MAX_WRITES: u32 = 64;

/// The names of the parameters; all but the last count once.
pub const NAMES: [&str; 8] = [
    "status", "size", "delay", "close", "gzip", "writes", "nodelay", "header",
];

/// Fields that are the connection's.
const FRAMING: &[&str] = &[
    "content-length",
    "transfer-encoding",
    "keep-alive",
    "proxy-connection",
    "upgrade",
    "te",
    "trailer",
];

/// The most that a request may ask for; more is cut to it.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub struct Limits {
    /// The largest body that size= gets, in bytes; Fortio's is 262144
    #[arg(long = "max-size", value_name = "BYTES", default_value_t = 1 << 30)]
    pub size: u64,
    /// The longest wait that delay= gets; Fortio's is 1.5s
    #[arg(long = "max-delay", value_name = "TIME", default_value = "60s", value_parser = text::duration)]
    pub delay: Duration,
}

/// The effect of `status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The answer has this status, from 200 to 999. With 101 the connection ends without an answer.
    Final(u16),
    /// An answer without content goes ahead with this one; the status itself is 200.
    Interim(u16),
    /// No status has three digits like that: the connection ends without an answer.
    None,
}

/// The form of the answer to one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Params {
    /// The status.
    pub status: Status,
    /// The length of the body; `None` echoes the request's.
    pub size: Option<u64>,
    /// The wait before it.
    pub delay: Duration,
    /// Whether to end the connection afterwards.
    pub close: bool,
    /// Whether to compress the body, if the client takes that.
    pub gzip: bool,
    /// More fields for the head. None of them concerns framing or the connection.
    pub headers: Vec<(FieldName, FieldValue)>,
    /// In how many writes the response leaves: 1 is everything at once, 2 head and body apart, more
    /// cut the body further. At most 64.
    pub writes: u32,
    /// Whether TCP_NODELAY is set while it leaves.
    pub nodelay: bool,
}

impl Default for Params {
    fn default() -> Params {
        Params {
            status: Status::Final(200),
            size: None,
            delay: Duration::ZERO,
            close: false,
            gzip: false,
            headers: Vec::new(),
            writes: 1,
            nodelay: true,
        }
    }
}

impl Params {
    /// Reads the query of a request target. Of several parameters of one name the first counts,
    /// except for `header`. Unknown names are ignored. Where the query gives several values with
    /// probabilities, `random` chooses.
    pub fn parse(target: &str, limits: &Limits, random: &mut impl Rng) -> Params {
        let mut params = Params::default();
        let Some((_, query)) = target.split_once('?') else {
            return params;
        };
        let mut seen = BTreeSet::new();
        for (name, value) in pairs(query) {
            let first = NAMES.contains(&&*name) && seen.insert(name.clone());
            match &*name {
                "header" => params.add_header(&value),
                _ if !first || value.is_empty() => {}
                "status" => params.status = status(&value, random),
                "size" => {
                    if let Choice::Value(size) = choose(&value, random, whole) {
                        let size = u64::try_from(size).unwrap_or(0);
                        params.size = Some(size.min(limits.size));
                    }
                }
                "delay" => {
                    if let Choice::Value(delay) = choose(&value, random, duration) {
                        params.delay = delay.min(limits.delay);
                    }
                }
                "close" => params.close |= happens(&value, random),
                "gzip" => params.gzip = happens(&value, random),
                "writes" => {
                    if let Some(writes) = whole(&value) {
                        let most = i64::from(MAX_WRITES);
                        params.writes = writes.clamp(1, most) as u32;
                    }
                }
                "nodelay" => params.nodelay = !matches!(&*value, "0" | "false" | "off"),
                _ => {}
            }
        }
        params
    }

    /// Takes `Name:value`; what is no field is left out.
    fn add_header(&mut self, text: &str) {
        let Some((name, value)) = text.split_once(':') else {
            return;
        };
        let Some(name) = FieldName::new(name) else {
            return;
        };
        // Nothing in a value may begin a line of its own.
        let value = value.replace(|c: char| c.is_ascii_control() && c != '\t', " ");
        let value = value.trim_matches([' ', '\t']);
        if name.as_str() == "connection" {
            self.close |= value.eq_ignore_ascii_case("close");
        } else if !FRAMING.contains(&name.as_str()) {
            let value = FieldValue::new(value.to_owned());
            self.headers.extend(value.map(|value| (name, value)));
        }
    }
}

fn status(value: &str, random: &mut impl Rng) -> Status {
    match choose(value, random, whole) {
        Choice::Rest => Status::Final(200),
        Choice::Invalid => Status::Final(400),
        Choice::Value(code) => match u16::try_from(code) {
            Ok(code @ (101 | 200..=999)) => Status::Final(code),
            Ok(code @ 100..=199) => Status::Interim(code),
            _ => Status::None,
        },
    }
}

fn whole(text: &str) -> Option<i64> {
    text.parse().ok()
}

/// A duration as Go writes it, so with a sign and without a limit; a negative one is none.
fn duration(text: &str) -> Option<Duration> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    // Go counts in 64 signed bits.
    let fits = |nanoseconds: &f64| *nanoseconds < 2f64.powi(63);
    let nanoseconds = text::go_nanoseconds(unsigned).filter(fits)?;
    let sign = f64::from(!text.starts_with('-'));
    Some(Duration::from_nanos((sign * nanoseconds) as u64))
}

/// The pairs of a query, decoded. As in Go, a pair with a semicolon or a broken escape is left out.
fn pairs(query: &str) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    query
        .split('&')
        .filter(|pair| !pair.is_empty() && !pair.contains(';'))
        .filter_map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(name)?, decode(value)?))
        })
}

/// Undoes percent-encoding and `+` for a space.
fn decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains(['%', '+']) {
        return Some(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || (rest.next()? as char).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            b'+' => b' ',
            byte => byte,
        });
    }
    Some(Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    impl Params {
        /// The parameters of a query with these limits.
        pub fn of(query: &str, size: u64, delay: Duration) -> Params {
            let mut random = SmallRng::seed_from_u64(1);
            Params::parse(&format!("/?{query}"), &Limits { size, delay }, &mut random)
        }
    }

    fn parse(query: &str) -> Params {
        Params::of(query, 100_000, Duration::from_secs(2))
    }

    fn own(name: &str, value: &'static str) -> Vec<(FieldName, FieldValue)> {
        let field = FieldName::new(name).zip(FieldValue::new(value));
        vec![field.unwrap()]
    }

    #[test]
    fn parameters_are_read() {
        assert_eq!(parse(""), Params::default());
        assert_eq!(parse("unknown=1&&"), Params::default());
        let more = "close=true&gzip=true&header=X-A:%20b+c&header=x-a:d&writes=2&nodelay=0";
        let all = parse(&format!("status=404&size=1024&delay=1.5ms&{more}"));
        let expected = Params {
            status: Status::Final(404),
            size: Some(1024),
            delay: Duration::from_micros(1500),
            close: true,
            gzip: true,
            headers: [own("x-a", "b c"), own("x-a", "d")].concat(),
            writes: 2,
            nodelay: false,
        };
        assert_eq!(all, expected);
    }

    /// Each was put to Fortio 1.75.2 too.
    #[test]
    fn values_that_make_no_sense_do_what_fortio_does() {
        for (expected, values) in [
            (Status::Final(400), "abc 503,404 503:70,500:70 1:x"),
            (Status::None, "99 1000 -5 70000 0"),
            (Status::Interim(150), "150"),
            (Status::Final(101), "101"),
            (Status::Final(999), "999"),
            (Status::Final(200), " 503;x 5%3"),
            (Status::Final(503), "503&status=404"),
            (Status::Final(404), "503:0%25,404:100%25"),
        ] {
            for value in values.split(' ') {
                let params = parse(&format!("status={value}"));
                assert_eq!(params.status, expected, "{value}");
            }
        }
        for query in ["status", "Status=503"] {
            assert_eq!(parse(query).status, Status::Final(200), "{query}");
        }
        for (query, expected) in [
            ("size=x", None),
            ("size=", None),
            ("size=-3", Some(0)),
            ("size=200000", Some(100_000)),
            ("size=1%2&size=2;x&size=3", Some(3)),
            ("%73ize=3:100", Some(3)),
        ] {
            assert_eq!(parse(query).size, expected, "{query}");
        }
        for (delays, microseconds) in [
            ("1h2m", 2_000_000),
            ("%2B1s", 1_000_000),
            (".5s", 500_000),
            ("1s500us", 1_000_500),
            ("5 -1s 1+s s . 99999999999h 0", 0),
        ] {
            for delay in delays.split(' ') {
                let expected = Duration::from_micros(microseconds);
                let params = parse(&format!("delay={delay}"));
                assert_eq!(params.delay, expected, "{delay}");
            }
        }
        let close = |query: &str| parse(query).close;
        assert!(!close("close") && !close("close=false") && !close("close=0&close=true"));
        assert!(close("close=x") && close("close=100") && close("header=Connection:close"));
    }

    #[test]
    fn fields_cannot_smuggle_lines_or_framing() {
        let headers = |query: &str| parse(query).headers;
        assert_eq!(headers("header=X:%0d%0aY:z"), own("x", "Y:z"));
        assert_eq!(headers("header=X:a%0d%0aY:z"), own("x", "a  Y:z"));
        assert_eq!(headers("header=Empty:"), own("empty", ""));
        let none = " bad :v a%20b:c a%0d%0ab:c content-length:5 Transfer-Encoding:chunked";
        for header in none.split(' ') {
            assert_eq!(headers(&format!("header={header}")), vec![], "{header}");
        }
    }

    #[test]
    fn our_own_parameters_are_cut_to_their_range() {
        let writes = |query: &str| parse(query).writes;
        let cut = ["writes=0", "writes=3", "writes=65", "writes=x"].map(writes);
        assert_eq!(cut, [1, 3, 64, 1]);
        assert!(parse("nodelay=1").nodelay && parse("nodelay").nodelay);
        assert!(!parse("nodelay=0").nodelay && !parse("nodelay=false").nodelay);
    }

    proptest! {
        #[test]
        fn no_target_makes_it_panic_or_exceeds_a_limit(query in "[\\PC]{0,40}|((status|size|delay|close|gzip|header|writes|nodelay)=[0-9a-z:,.%+-]{0,9}&?){0,5}") {
            let params = parse(&query);
            prop_assert!(params.delay <= Duration::from_secs(2) && params.size.unwrap_or(0) <= 100_000);
            prop_assert!((1..=MAX_WRITES).contains(&params.writes));
            for (name, value) in &params.headers {
                prop_assert!(!name.as_str().contains(['\r', '\n', ':']));
                prop_assert!(!value.as_bytes().iter().any(|byte| b"\r\n\0".contains(byte)));
            }
        }
    }
}
