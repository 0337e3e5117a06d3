//! Formats of times: strftime's, and Envoy's fractions of a second. Times are UTC.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lateen_telemetry::civil;

const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// The format of a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TimeFormat(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Literal(Box<str>),
    /// A conversion of strftime.
    Part(char),
    /// So many digits of the fraction of the second.
    Fraction(u8),
}

impl TimeFormat {
    /// Reads a format; without one it is that of Envoy: `2026-11-20T21:37:00.123Z`.
    pub(in crate::waypoint) fn parse(format: Option<&str>) -> Self {
        let format = format
            .filter(|format| !format.is_empty())
            .unwrap_or("%Y-%m-%dT%H:%M:%S.%3fZ");
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = format;
        while let Some(at) = rest.find('%') {
            literal.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            let (read, behind) = conversion(rest);
            let Some(read) = read else {
                literal.push('%');
                continue;
            };
            if !literal.is_empty() {
                pieces.push(Piece::Literal(std::mem::take(&mut literal).into()));
            }
            pieces.extend(read);
            rest = behind;
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal.into()));
        }
        Self(pieces)
    }

    /// The time in this format. One before 1970 is shown as 1970.
    pub(crate) fn show(&self, time: SystemTime) -> String {
        let time = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut text = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Literal(literal) => text.push_str(literal),
                Piece::Part(part) => show(*part, time, &mut text),
                Piece::Fraction(digits) => {
                    let nanos = format!("{:09}", time.subsec_nanos());
                    text.push_str(&nanos[..usize::from(*digits)]);
                }
            }
        }
        text
    }
}

/// Reads a conversion behind its `%`, and returns what follows it.
fn conversion(text: &str) -> (Option<Vec<Piece>>, &str) {
    let mut chars = text.chars();
    let Some(first) = chars.next() else {
        return (None, text);
    };
    let parts = |parts: &str| parts.chars().map(Piece::Part).collect();
    let literal = |text: &str| Piece::Literal(text.into());
    let read = match first {
        'f' => vec![Piece::Fraction(9)],
        '1'..='9' if chars.next() == Some('f') => vec![Piece::Fraction(first as u8 - b'0')],
        // `%E3S` of abseil: seconds with their fraction.
        'E' => match (chars.next(), chars.next()) {
            (Some(digit @ '1'..='9'), Some('S')) => vec![
                Piece::Part('S'),
                literal("."),
                Piece::Fraction(digit as u8 - b'0'),
            ],
            _ => return (None, text),
        },
        'F' => vec![
            Piece::Part('Y'),
            literal("-"),
            Piece::Part('m'),
            literal("-"),
            Piece::Part('d'),
        ],
        'D' => vec![
            Piece::Part('m'),
            literal("/"),
            Piece::Part('d'),
            literal("/"),
            Piece::Part('y'),
        ],
        'T' => vec![
            Piece::Part('H'),
            literal(":"),
            Piece::Part('M'),
            literal(":"),
            Piece::Part('S'),
        ],
        'R' => vec![Piece::Part('H'), literal(":"), Piece::Part('M')],
        '%' => vec![literal("%")],
        'z' => vec![literal("+0000")],
        'Z' => vec![literal("UTC")],
        'h' => parts("b"),
        'Y' | 'y' | 'm' | 'd' | 'e' | 'j' | 'H' | 'I' | 'p' | 'M' | 'S' | 's' | 'a' | 'A' | 'b'
        | 'B' | 'u' | 'w' => parts(first.encode_utf8(&mut [0; 4])),
        _ => return (None, text),
    };
    (Some(read), chars.as_str())
}

fn show(part: char, time: Duration, text: &mut String) {
    let seconds = time.as_secs();
    let days = seconds / 86_400;
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    // 1970-01-01 was a Thursday.
    let weekday = (days + 4) % 7;
    let name = |names: &[&'static str], at: u64| names[at as usize];
    let written = match part {
        'Y' => write!(text, "{year:04}"),
        'y' => write!(text, "{:02}", year % 100),
        'm' => write!(text, "{month:02}"),
        'd' => write!(text, "{day:02}"),
        'e' => write!(text, "{day:2}"),
        'j' => write!(text, "{:03}", day_of_year(year, month, day)),
        'H' => write!(text, "{hour:02}"),
        'I' => write!(text, "{:02}", (hour + 11) % 12 + 1),
        'p' => write!(text, "{}", if hour < 12 { "AM" } else { "PM" }),
        'M' => write!(text, "{minute:02}"),
        'S' => write!(text, "{second:02}"),
        's' => write!(text, "{seconds}"),
        'A' => write!(text, "{}", name(&DAYS, weekday)),
        'a' => write!(text, "{}", &name(&DAYS, weekday)[..3]),
        'B' => write!(text, "{}", name(&MONTHS, month - 1)),
        'b' => write!(text, "{}", &name(&MONTHS, month - 1)[..3]),
        'u' => write!(text, "{}", (weekday + 6) % 7 + 1),
        'w' => write!(text, "{weekday}"),
        _ => unreachable!("conversion() makes no other part"),
    };
    written.expect("a String takes every write");
}

/// The day of the year, from 1.
fn day_of_year(year: u64, month: u64, day: u64) -> u64 {
    const BEFORE: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let is_leap = if year.is_multiple_of(100) {
        year.is_multiple_of(400)
    } else {
        year.is_multiple_of(4)
    };
    BEFORE[month as usize - 1] + day + u64::from(is_leap && month > 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(format: &str, seconds: u64, nanos: u32) -> String {
        TimeFormat::parse(Some(format)).show(UNIX_EPOCH + Duration::new(seconds, nanos))
    }

    #[test]
    fn a_time_without_a_format_has_milliseconds() {
        let time = UNIX_EPOCH + Duration::new(1_795_210_620, 7_123_456);
        for format in [None, Some("")] {
            assert_eq!(
                TimeFormat::parse(format).show(time),
                "2026-11-20T21:37:00.007Z"
            );
        }
    }

    #[test]
    fn conversions_are_those_of_strftime_and_envoy() {
        // A Friday, and the last second of a leap day, a Tuesday.
        let (friday, leap) = (1_795_210_620, 951_868_799);
        for (format, seconds, expected) in [
            (
                "%Y/%m/%dT%H:%M:%S%z %s",
                friday,
                "2026/11/20T21:37:00+0000 1795210620",
            ),
            (
                "%s.%3f %6f %9f %f %1f",
                friday,
                "1795210620.012 012345 012345678 012345678 0",
            ),
            ("%Y-%m-%dT%H:%M:%E3SZ", friday, "2026-11-20T21:37:00.012Z"),
            (
                "%F %T %D %R %Z",
                friday,
                "2026-11-20 21:37:00 11/20/26 21:37 UTC",
            ),
            (
                "%a %A %b %h %B %u %w",
                friday,
                "Fri Friday Nov Nov November 5 5",
            ),
            ("%j %e %I%p %y", leap, "060 29 11PM 00"),
            ("%j", 951_868_800, "061"),
            ("%j", 978_220_800, "366"),
            ("%I %p", 0, "12 AM"),
            ("100%% %q %E %", friday, "100% %q %E %"),
        ] {
            assert_eq!(shown(format, seconds, 12_345_678), expected, "{format}");
        }
    }
}
