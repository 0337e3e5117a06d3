//! A line of the access log as bytes. Each request has one, so the formatting of the standard library, which would cost many times
//! as much, serves only for what has to be escaped and for addresses of IPv6.

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use lateen_types::Identity;
use tracing::Level;

use crate::clock::Timestamp;
use crate::cut::cut_text;
use crate::fields;
use crate::log::{self, Format};
use crate::share::LogShare;
use crate::sink::Sink;

/// Room for most lines.
const ROOM: usize = 768;

/// A line that is being put together: its fields have the order of the calls.
#[derive(Debug)]
pub struct Line {
    format: Format,
    bytes: Vec<u8>,
    is_first: bool,
}

/// Fields that many lines have in common. They are written once.
#[derive(Clone, Debug)]
pub struct Part(Box<[u8]>);

impl Part {
    /// The fields that `write` adds, in the format of the process's log.
    pub fn of(write: impl FnOnce(&mut Line)) -> Self {
        Self::in_format(log::format(), write)
    }

    fn in_format(format: Format, write: impl FnOnce(&mut Line)) -> Self {
        let mut line = Line {
            format,
            bytes: Vec::new(),
            is_first: false,
        };
        write(&mut line);
        Self(line.bytes.into())
    }
}

impl Line {
    /// Begins a line of the level `info`, unless the levels in force leave it out.
    pub fn begin(message: &'static str) -> Option<Self> {
        let is_wanted = tracing::event_enabled!(target: "access", Level::INFO);
        is_wanted.then(|| Self::at(log::format(), Level::INFO, Timestamp::now(), message))
    }

    pub(crate) fn at(format: Format, level: Level, time: Timestamp, message: &'static str) -> Self {
        let mut bytes = Vec::with_capacity(ROOM);
        let level = log::level_name(level).as_bytes();
        match format {
            Format::Plain => {
                time.write(&mut bytes);
                bytes.push(b'\t');
                bytes.extend_from_slice(level);
                bytes.extend_from_slice(b"\taccess\t");
                bytes.extend_from_slice(message.as_bytes());
                bytes.push(b'\t');
            }
            Format::Json => {
                bytes.extend_from_slice(b"{\"level\":\"");
                bytes.extend_from_slice(level);
                bytes.extend_from_slice(b"\",\"time\":\"");
                time.write(&mut bytes);
                bytes.extend_from_slice(b"\",\"scope\":\"access\",\"message\":\"");
                bytes.extend_from_slice(message.as_bytes());
                bytes.push(b'"');
            }
        }
        Self {
            format,
            bytes,
            is_first: true,
        }
    }

    /// Fields that were written before.
    pub fn part(&mut self, part: &Part) {
        let fields = match (self.format, &*part.0) {
            // The space between two fields.
            (Format::Plain, [b' ', fields @ ..]) if std::mem::take(&mut self.is_first) => fields,
            (_, fields) => fields,
        };
        self.bytes.extend_from_slice(fields);
    }

    /// A text in quotes. Bytes that are no UTF-8 are replaced. An empty text is left out, and a long one is cut.
    #[inline]
    pub fn text(&mut self, name: &'static str, value: impl AsRef<[u8]>) {
        let value = value.as_ref();
        if !value.is_empty() {
            self.name(name);
            self.quoted(&cut_text(value));
        }
    }

    fn quoted(&mut self, value: &[u8]) {
        if is_plain(value) {
            self.bytes.push(b'"');
            self.bytes.extend_from_slice(value);
            self.bytes.push(b'"');
            return;
        }
        let value = String::from_utf8_lossy(value);
        match self.format {
            Format::Plain => self.show(format_args!("{value:?}")),
            Format::Json => self
                .bytes
                .extend_from_slice(log::json_string(&value).as_bytes()),
        }
    }

    /// A text that needs no quotes: they are left out but in JSON.
    pub fn bare(&mut self, name: &'static str, value: impl AsRef<str>) {
        self.name(name);
        self.quote();
        self.piece(value.as_ref());
        self.quote();
    }

    /// An address and port, without quotes but in JSON.
    pub fn address(&mut self, name: &'static str, value: SocketAddr) {
        self.name(name);
        self.quote();
        match value.ip() {
            IpAddr::V4(ip) => {
                for (n, octet) in ip.octets().into_iter().enumerate() {
                    if n > 0 {
                        self.bytes.push(b'.');
                    }
                    self.digits(octet.into());
                }
                self.bytes.push(b':');
                self.digits(value.port().into());
            }
            IpAddr::V6(_) => self.show(format_args!("{value}")),
        }
        self.quote();
    }

    /// A SPIFFE identity, without quotes but in JSON.
    pub fn identity(&mut self, name: &'static str, value: &Identity) {
        self.name(name);
        self.quote();
        for piece in value.pieces() {
            self.piece(piece);
        }
        self.quote();
    }

    /// A time in whole microseconds with the unit, without quotes but in JSON.
    pub fn micros(&mut self, name: &'static str, value: Duration) {
        self.name(name);
        self.quote();
        self.digits(u64::try_from(value.as_micros()).unwrap_or(u64::MAX));
        self.bytes.extend_from_slice(b"us");
        self.quote();
    }

    /// A number.
    #[inline]
    pub fn number(&mut self, name: &'static str, value: u64) {
        self.name(name);
        self.digits(value);
    }

    /// Ends the line and writes it to the log's output, as one of a share of its buffer.
    pub fn write(self, share: LogShare) {
        Sink::get().put(&self.end(), share);
    }

    pub(crate) fn end(mut self) -> Vec<u8> {
        self.bytes.extend_from_slice(match self.format {
            Format::Plain => b"\n",
            Format::Json => b"}\n",
        });
        self.bytes
    }

    /// Begins a field. Names are constants of the callers: within them, one is written by a few stores.
    #[inline(always)]
    fn name(&mut self, name: &'static str) {
        fields::expect_declared(name);
        match self.format {
            Format::Plain => {
                if !std::mem::take(&mut self.is_first) {
                    self.bytes.push(b' ');
                }
                self.bytes.extend_from_slice(name.as_bytes());
                self.bytes.push(b'=');
            }
            Format::Json => {
                self.bytes.extend_from_slice(b",\"");
                self.bytes.extend_from_slice(name.as_bytes());
                self.bytes.extend_from_slice(b"\":");
            }
        }
    }

    /// The quotes of what is a string in JSON alone.
    fn quote(&mut self) {
        if self.format == Format::Json {
            self.bytes.push(b'"');
        }
    }

    /// A part of a text without quotes of its own.
    fn piece(&mut self, text: &str) {
        if self.format == Format::Plain || is_plain(text.as_bytes()) {
            self.bytes.extend_from_slice(text.as_bytes());
        } else {
            let quoted = log::json_string(text);
            let inside = quoted
                .strip_prefix('"')
                .and_then(|rest| rest.strip_suffix('"'));
            self.bytes
                .extend_from_slice(inside.unwrap_or_default().as_bytes());
        }
    }

    fn digits(&mut self, number: u64) {
        let mut digits = itoa::Buffer::new();
        self.bytes
            .extend_from_slice(digits.format(number).as_bytes());
    }

    fn show(&mut self, value: std::fmt::Arguments<'_>) {
        self.bytes
            .write_fmt(value)
            .expect("a vector takes every write");
    }
}

/// True of printable ASCII without quotes and backslashes, which both formats show as it is. All bytes are looked at, so that the
/// compiler can look at many at a time.
fn is_plain(text: &[u8]) -> bool {
    text.iter().fold(true, |so_far, byte| {
        so_far & matches!(byte, b' '..=b'~') & (*byte != b'"') & (*byte != b'\\')
    })
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use proptest::prelude::*;

    use super::*;

    fn line(format: Format, write: impl FnOnce(&mut Line)) -> String {
        let time = Timestamp::from(UNIX_EPOCH);
        let mut line = Line::at(format, Level::INFO, time, "request complete");
        write(&mut line);
        String::from_utf8(line.end()).unwrap()
    }

    fn all(line: &mut Line) {
        line.address("src.addr", "10.244.1.2:40000".parse().unwrap());
        line.address("dst.addr", "[2001:db8::1]:80".parse().unwrap());
        let identity = Identity::new("cluster.local", "default", "a\"b").unwrap();
        line.identity("src.identity", &identity);
        line.text("src.workload", "");
        line.text("path", b"/a\"b\xff");
        line.bare("policy", "default/friends");
        line.number("status", 200);
        line.micros("duration", Duration::from_micros(1234));
    }

    #[test]
    fn fields_of_a_text_line_are_quoted_where_they_are_texts() {
        assert_eq!(
            line(Format::Plain, all),
            "1970-01-01T00:00:00.000000Z\tinfo\taccess\trequest complete\t\
             src.addr=10.244.1.2:40000 dst.addr=[2001:db8::1]:80 \
             src.identity=spiffe://cluster.local/ns/default/sa/a\"b path=\"/a\\\"b\u{fffd}\" \
             policy=default/friends status=200 duration=1234us\n"
        );
    }

    #[test]
    fn a_part_reads_like_its_fields_wherever_it_stands() {
        for format in [Format::Plain, Format::Json] {
            let part = Part::in_format(format, all);
            let nothing = Part::in_format(format, |_| {});
            let twice = line(format, |line| {
                line.part(&nothing);
                line.part(&part);
                line.number("attempts", 1);
                line.part(&part);
            });
            let expected = line(format, |line| {
                all(line);
                line.number("attempts", 1);
                all(line);
            });
            assert_eq!(twice, expected);
        }
    }

    #[test]
    fn a_json_line_is_one_object() {
        assert_eq!(
            line(Format::Json, all),
            "{\"level\":\"info\",\"time\":\"1970-01-01T00:00:00.000000Z\",\"scope\":\"access\",\
             \"message\":\"request complete\",\"src.addr\":\"10.244.1.2:40000\",\
             \"dst.addr\":\"[2001:db8::1]:80\",\
             \"src.identity\":\"spiffe://cluster.local/ns/default/sa/a\\\"b\",\
             \"path\":\"/a\\\"b\u{fffd}\",\"policy\":\"default/friends\",\"status\":200,\
             \"duration\":\"1234us\"}\n"
        );
    }

    #[test]
    fn a_long_text_is_cut_and_says_so() {
        for format in [Format::Plain, Format::Json] {
            let short = "/".repeat(crate::LONGEST_TEXT);
            let shown = line(format, |line| line.text("path", &short));
            assert!(shown.contains(&format!("{short}\"")), "{shown}");
            let shown = line(format, |line| line.text("path", vec![b'/'; 60_000]));
            assert!(shown.len() < 5000, "{} bytes", shown.len());
            assert!(shown.contains("/...<60000_bytes>\""), "{shown}");
        }
    }

    proptest! {
        #[test]
        fn a_text_is_shown_as_the_standard_library_does(text in any::<String>()) {
            prop_assume!(!text.is_empty());
            let shown = line(Format::Plain, |line| line.text("path", &text));
            let expected = format!("\tpath={text:?}\n");
            prop_assert!(shown.ends_with(&expected), "{shown:?} {expected:?}");
            let shown = line(Format::Json, |line| {
                line.text("path", &text);
                line.bare("policy", &text);
            });
            let read: serde_json::Value = serde_json::from_str(&shown).unwrap();
            prop_assert_eq!(read["path"].as_str(), Some(text.as_str()));
            prop_assert_eq!(read["policy"].as_str(), Some(text.as_str()));
        }
    }
}
