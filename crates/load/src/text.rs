//! Durations and request fields as users write them.

use std::ops::RangeBounds;
use std::time::Duration;

use lateen_http::FieldName;

/// Reads `10s`, `250ms`, `1.5h`, `1m30s`: what Go's and Kubernetes' tools accept. At most a year.
pub fn duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text:?} is not a duration; write for example 10s, 250ms or 1m30s");
    let nanoseconds = go_nanoseconds(text.trim()).ok_or_else(bad)?;
    if nanoseconds > 366.0 * 86400e9 {
        return Err(format!("{text:?} is longer than a year"));
    }
    Duration::try_from_secs_f64(nanoseconds / 1e9).map_err(|_| bad())
}

/// The nanoseconds of a duration as Go writes it, without a sign: numbers with units, or a bare 0.
pub fn go_nanoseconds(text: &str) -> Option<f64> {
    if text == "0" {
        return Some(0.0);
    }
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let (mut rest, mut nanoseconds) = (text, 0.0);
    loop {
        let (number, after) = rest.split_at(rest.find(|c| !is_number(c))?);
        let (unit, more) = after.split_at(after.find(is_number).unwrap_or(after.len()));
        let scale = match unit {
            "ns" => 1.0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3600e9,
            _ => return None,
        };
        nanoseconds += number.parse::<f64>().ok()? * scale;
        rest = more;
        if rest.is_empty() {
            return Some(nanoseconds);
        }
    }
}

/// Reads a number in a range; `cure` says what to write instead of another.
pub fn number(
    range: impl RangeBounds<f64> + Clone,
    cure: &'static str,
) -> impl Fn(&str) -> Result<f64, String> + Clone {
    move |text| {
        let number = text.trim().parse::<f64>().ok();
        let number = number.filter(|number| range.contains(number));
        number.ok_or_else(|| cure.to_owned())
    }
}

/// Reads `Name: value` into a request field.
pub fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once(':')
        .ok_or_else(|| format!("{text:?} has no colon; write NAME:VALUE"))?;
    let value = value.trim();
    if FieldName::new(name).is_none() {
        return Err(format!("{name:?} is not a field name"));
    }
    let is_control = |byte: u8| byte.is_ascii_control() && byte != b'\t';
    if value.bytes().any(is_control) {
        return Err(format!("the value of {name} has control characters"));
    }
    for own in ["connection", "content-length", "transfer-encoding"] {
        if name.eq_ignore_ascii_case(own) {
            return Err(format!(
                "{name} is set by lateen-load itself; use --no-keepalive for connection: close"
            ));
        }
    }
    Ok((name.to_owned(), value.to_owned()))
}

/// A duration as people read it: three digits and the unit that suits it.
pub fn readable(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    if seconds >= 1.0 {
        format!("{} s", (seconds * 100.0).round() / 100.0)
    } else if seconds >= 1e-3 {
        format!("{} ms", (seconds * 1e5).round() / 100.0)
    } else {
        format!("{} µs", (seconds * 1e7).round() / 10.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_are_read() {
        let texts = ["10s", "250ms", "1m30s", "1.5h", "0", " 0.5s ", "150us"];
        let milliseconds = [10_000.0, 250.0, 90_000.0, 5_400_000.0, 0.0, 500.0, 0.15];
        let expected = milliseconds.map(|ms| Ok(Duration::from_secs_f64(ms / 1e3)));
        assert_eq!(texts.map(duration), expected);
    }

    #[test]
    fn what_is_not_a_duration_is_refused() {
        for text in [
            "", "10", "s", "-1s", "1 s", "1.2.3s", "1d", "9999999h", "1s2", ".",
        ] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        let weight = number(0.000_001..=1e6, "above zero");
        assert_eq!(weight("3"), Ok(3.0));
        for text in ["0", "-1", "nan", "inf", "1e7", "x", ""] {
            assert_eq!(weight(text), Err("above zero".to_owned()), "{text}");
        }
    }

    #[test]
    fn fields_are_read_and_dangerous_ones_refused() {
        let field = |name: &str, value: &str| Ok((name.to_owned(), value.to_owned()));
        assert_eq!(header("X-A:  b c "), field("X-A", "b c"));
        assert_eq!(header("Host: other"), field("Host", "other"));
        let own = "Connection: close|Content-Length: 4";
        for text in "no colon|: v|a b: c|a: b\r\nc: d"
            .split('|')
            .chain(own.split('|'))
        {
            assert!(header(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_them_panic(text in "\\PC{0,30}|[0-9.]{0,9}(ns|us|ms|s|m|h)?[0-9.]{0,3}s?") {
            let _ = duration(&text);
            let _ = header(&text);
        }

        #[test]
        fn whole_milliseconds_come_back(milliseconds in 0u64..100_000_000) {
            prop_assert_eq!(duration(&format!("{milliseconds}ms")), Ok(Duration::from_millis(milliseconds)));
        }
    }
}
